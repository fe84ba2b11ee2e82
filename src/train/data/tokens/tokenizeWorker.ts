/** A worker thread that turns examples into tokens. */

import { parentPort, workerData } from "node:worker_threads";
import { reasonOf } from "../../files/disk/fileError.js";
import { parseChatTemplate } from "../chat/chatTemplate.js";
import { byteTokenizer } from "../tokenizers/tokenizer.js";
import { parseTokenizer } from "../tokenizers/tokenizerJson.js";
import { encodeExample, joinDocuments } from "./encodeExample.js";
import type { TokenizeAnswer, TokenizeJob, TokenizeSettings } from "./tokenizeSettings.js";

const { tokenizer, template, variables } = workerData as TokenizeSettings;
const settings = {
  tokenizer: tokenizer === "bytes" ? byteTokenizer() : parseTokenizer(tokenizer),
  template: template === undefined ? undefined : parseChatTemplate(template),
  variables,
};

parentPort?.on("message", ({ examples }: TokenizeJob) => {
  let answer: TokenizeAnswer;
  try {
    const documents = examples.flatMap((example) => encodeExample(example, settings));
    answer = { ...joinDocuments(documents), numDocuments: documents.length };
  } catch (error) {
    answer = { problem: reasonOf(error) };
  }
  parentPort?.postMessage(
    answer,
    "problem" in answer ? [] : [answer.tokens.buffer as ArrayBuffer, answer.marks.buffer as ArrayBuffer],
  );
});
