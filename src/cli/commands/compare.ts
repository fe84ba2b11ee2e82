import { optionalText } from "../../train/config/configSchema.js";
import { replaceFile } from "../../train/files/disk/files.js";
import { comparePage, compareText, readRuns } from "../../train/report/compareRuns.js";
import { defineCommand, exitCodes } from "../command.js";
import { UsageError } from "../commandLine.js";
import { freeName } from "../runArguments.js";

/** Compares runs: their curves in one plot, and the differences of their configurations. */
export const compare = defineCommand({
  name: "compare",
  summary: "draw runs over each other, with what differs in their configurations",
  usage: "<folder of a run> <folder of a run> […] [options]",
  options: { write: optionalText("the file for the page; the next free compare.html by default") },
  takesFields: false,
  examples: ["shardwise compare runs/default runs/default-2", "shardwise compare runs/* --write all.html"],
  maxArguments: Number.POSITIVE_INFINITY,
  run: async ({ positional, values }) => {
    if (positional.length < 2)
      throw new UsageError(
        "compare needs the folders of two runs or more, such as runs/default runs/default-2",
      );
    const runs = readRuns(positional);
    const page = values.write ?? freeName("compare", ".html");
    await replaceFile(page, comparePage(runs));
    process.stdout.write(`${compareText(runs)}\nthe curves are in ${page}\n`);
    return exitCodes.ok;
  },
});
