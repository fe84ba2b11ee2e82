import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { flag, integer, optionalText } from "../../train/config/configSchema.js";
import { parseFields } from "../../train/data/sources/examples.js";
import { byteTokenizer } from "../../train/data/tokenizers/tokenizer.js";
import { readTokenizer } from "../../train/data/tokenizers/tokenizerFile.js";
import { dataStatistics } from "../../train/data/tokens/dataStatistics.js";
import { replaceFile } from "../../train/files/disk/files.js";
import { dataPage, dataText } from "../../train/report/dataPage.js";
import { defineCommand, exitCodes } from "../command.js";
import { UsageError } from "../commandLine.js";
import { freeName } from "../runArguments.js";

/** Describes data: counts, lengths, samples and duplicates. */
export const data = defineCommand({
  name: "data",
  summary: "describe data: counts, lengths, duplicates and samples, as text and as a page",
  usage: "<file, folder, pattern or URL> […] [options]",
  options: {
    tokenizer: optionalText("count tokens of `bytes`, a tokenizer.json, or the folder of a model"),
    fields: optionalText("fields of the records, such as text=content"),
    samples: integer(5, "number of samples", 0),
    seed: integer(0, "seed of the samples", 0),
    json: flag(false, "print everything as JSON, and write no page"),
    write: optionalText("the file for the page; the next free data.html by default"),
  },
  takesFields: false,
  examples: [
    "shardwise data chats.jsonl",
    "shardwise data web/*.parquet code --tokenizer models/llama --write web.html",
    "shardwise data texts.csv --fields text=body --json",
  ],
  maxArguments: Number.POSITIVE_INFINITY,
  run: async ({ positional, values }) => {
    if (positional.length === 0) throw new UsageError("data needs a file, a folder, a pattern or a URL");
    const { tokenizer, fields = "", samples, seed, json } = values;
    const statistics = await dataStatistics(positional, {
      fields: parseFields(fields),
      samples,
      seed,
      ...(tokenizer !== undefined && { tokenizer: await openTokenizer(tokenizer) }),
    });
    if (json) process.stdout.write(`${JSON.stringify(statistics, null, 2)}\n`);
    else {
      const page = values.write ?? freeName("data", ".html");
      await replaceFile(page, dataPage(positional.join(", "), statistics));
      process.stdout.write(`${dataText(statistics)}\nlengths, duplicates and samples are in ${page}\n`);
    }
    return exitCodes.ok;
  },
});

async function openTokenizer(name: string) {
  if (name === "bytes") return byteTokenizer();
  const isFolder = existsSync(name) && statSync(name).isDirectory();
  return readTokenizer(isFolder ? join(name, "tokenizer.json") : name);
}
