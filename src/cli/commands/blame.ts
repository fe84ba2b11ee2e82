import { readRecordings } from "../../engines/flight/file.js";
import { formatBlame } from "../../engines/flight/flightAnalysis.js";
import { defineCommand, exitCodes } from "../command.js";
import { UsageError } from "../commandLine.js";

/** Reports from flight recordings what every device was doing and which ones have diverged. */
export const blame = defineCommand({
  name: "blame",
  summary: "what every device was doing when a run failed, and which have diverged",
  usage: "<recording or folder of recordings> […]",
  options: {},
  takesFields: false,
  examples: ["shardwise blame runs/default/flight", "shardwise blame flight-0.json flight-1.json"],
  maxArguments: Number.POSITIVE_INFINITY,
  run: async ({ positional }) => {
    if (positional.length === 0)
      throw new UsageError("blame needs a recording, or a folder of them, such as runs/default/flight");
    process.stdout.write(formatBlame(positional.flatMap((path) => readRecordings(path))));
    return exitCodes.ok;
  },
});
