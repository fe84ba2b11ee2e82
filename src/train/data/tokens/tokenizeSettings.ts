/** How examples are turned into tokens, and in what pieces. */

import type { Example } from "../sources/examples.js";
import type { MarkedTokens } from "./encodeExample.js";

/** How examples become tokens, as plain data. */
export interface TokenizeSettings {
  /** `bytes`, or the text of a `tokenizer.json`. */
  readonly tokenizer: string;
  readonly template?: string | undefined;
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
}

/** What a worker is given. */
export interface TokenizeJob {
  readonly examples: readonly Example[];
}

/** What it answers. */
export type TokenizeAnswer =
  | (MarkedTokens & { readonly numDocuments: number })
  | { readonly problem: string };

/** The tokens of some examples. */
export interface TokenizedExamples extends MarkedTokens {
  readonly numExamples: number;
  readonly numDocuments: number;
}

/** Characters that are worth sending to another thread. */
const jobChars = 2 ** 18;

/** Examples in pieces that are worth sending to another thread. */
export async function* jobsOf(batches: AsyncIterable<readonly Example[]>): AsyncGenerator<Example[], void> {
  let job: Example[] = [];
  let size = 0;
  for await (const batch of batches) {
    for (const example of batch) {
      job.push(example);
      size += sizeOf(example);
      if (size < jobChars) continue;
      yield job;
      [job, size] = [[], 0];
    }
  }
  if (job.length > 0) yield job;
}

/** About how many characters an example has. */
function sizeOf(example: Example): number {
  const sizes = Object.values(example).map((part) =>
    typeof part === "string" ? part.length : 200 * part.length,
  );
  return sizes.reduce((sum, size) => sum + size, 20);
}
