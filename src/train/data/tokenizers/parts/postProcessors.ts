/** The post-processors of a `tokenizer.json`: the special tokens around the tokens of a text. */

import { isObject } from "../../../files/disk/json.js";
import type { Makers, TokenizerFields } from "./fields.js";

/** Adds special tokens to those of a text. */
export type PostProcessor = (tokens: readonly number[]) => readonly number[];

/** A pair such as `["[CLS]", 101]`. */
function specialPair(fields: TokenizerFields, name: string): number {
  const [, id] = fields.list(name);
  if (typeof id === "number") return id;
  throw fields.wrong(name, "must be a token and its id");
}

const around = (fields: TokenizerFields): PostProcessor => {
  const [first, last] = [specialPair(fields, "cls"), specialPair(fields, "sep")];
  return (tokens) => [first, ...tokens, last];
};

function template(fields: TokenizerFields): PostProcessor {
  const special = fields.json.special_tokens === undefined ? {} : fields.object("special_tokens").json;
  const parts = fields.parts("single").map((part) => {
    if (isObject(part.json.Sequence)) return "text" as const;
    const name = part.object("SpecialToken").text("id");
    const entry = special[name];
    const ids = isObject(entry) ? entry.ids : undefined;
    if (Array.isArray(ids) && ids.every((id) => typeof id === "number")) return ids as readonly number[];
    throw fields.wrong("special_tokens", `lacks the ids of ${JSON.stringify(name)}`);
  });
  return (tokens) => parts.flatMap((part) => (part === "text" ? tokens : part));
}

const makers: Makers<PostProcessor> = {
  ByteLevel: () => (tokens) => tokens,
  BertProcessing: around,
  RobertaProcessing: around,
  TemplateProcessing: template,
  Sequence: (fields) => {
    const steps = fields.parts("processors").map(readPostProcessor);
    return (tokens) => steps.reduce((now, step) => step(now), tokens);
  },
};

/** The function of a post-processor. */
export function readPostProcessor(fields: TokenizerFields): PostProcessor {
  return fields.make(makers);
}
