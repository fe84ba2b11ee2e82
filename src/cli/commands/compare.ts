import { replaceFile } from "../../train/files/files.js";
import { comparePage, compareText, readRuns } from "../../train/report/compareRuns.js";
import { UsageError } from "../arguments.js";
import { type Command, exitCodes } from "../command.js";
import { textOption } from "../machineArguments.js";
import { freeName } from "../runArguments.js";

/** Compares runs: their curves over each other, and what differs in their configurations. */
export const compare: Command = {
  name: "compare",
  summary: "draw runs over each other, with what differs in their configurations",
  usage: "<folder of a run> <folder of a run> […] [options]",
  options: [{ name: "write", help: "the file for the page; the next free compare.html by default" }],
  takesFields: false,
  examples: ["shardwise compare runs/default runs/default-2", "shardwise compare runs/* --write all.html"],
  maxArguments: Number.POSITIVE_INFINITY,
  run: async (args) => {
    const { positional } = args;
    if (positional.length < 2)
      throw new UsageError(
        "compare needs the folders of two runs or more, such as runs/default runs/default-2",
      );
    const runs = readRuns(positional);
    const page = textOption(args, "write") ?? freeName("compare", ".html");
    await replaceFile(page, comparePage(runs));
    process.stdout.write(`${compareText(runs)}\nthe curves are in ${page}\n`);
    return exitCodes.ok;
  },
};
