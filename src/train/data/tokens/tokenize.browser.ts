/** In a page, examples are turned into tokens on the thread that asks for it. */
import { parseChatTemplate } from "../chat/chatTemplate.js";
import { byteTokenizer } from "../tokenizers/tokenizer.js";
import { parseTokenizer } from "../tokenizers/tokenizerJson.js";
import { encodeExample, joinDocuments } from "./encodeExample.js";
import type * as node from "./tokenize.js";
import { jobsOf } from "./tokenizeSettings.js";

export const tokenizeExamples: typeof node.tokenizeExamples = async function* (examples, settings) {
  const { tokenizer, template, variables } = settings;
  const own = {
    tokenizer: tokenizer === "bytes" ? byteTokenizer() : parseTokenizer(tokenizer),
    template: template === undefined ? undefined : parseChatTemplate(template),
    variables,
  };
  for await (const job of jobsOf(examples)) {
    const documents = job.flatMap((example) => encodeExample(example, own));
    yield { ...joinDocuments(documents), numExamples: job.length, numDocuments: documents.length };
  }
};
