/** Prompts from files. */
import { formatNamed } from "../train/data/sources/formats.js";
import { readRecords } from "../train/data/sources/records.js";
import { dataError } from "../train/data/sources/sourceFile.js";

/**
 * The prompts of a source of data: the lines of text files, and the field `prompt` or `text` of records. A chat is no
 * prompt, because a template has to make a text of it.
 */
export async function readPrompts(source: string): Promise<string[]> {
  const prompts: string[] = [];
  for await (const { file, line, fields } of readRecords(source)) {
    const prompt = fields.prompt ?? fields.text;
    if (typeof prompt !== "string") {
      throw dataError(file, "the record has no prompt: name one of its fields prompt or text", { line });
    }
    const isText = (formatNamed(file) ?? "text") === "text";
    prompts.push(...(isText ? prompt.split(/\r?\n/).filter((one) => one !== "") : [prompt]));
  }
  if (prompts.length === 0) throw dataError(source, "it has no prompts");
  return prompts;
}
