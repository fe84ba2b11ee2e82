import { signalKind } from "../../engines/abortSignal.js";
import { need } from "../../ir/arguments.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { at } from "../../ir/shape.js";
import { Tensor } from "../../trace/tensor.js";
import type { Tokenizer } from "../data/tokenizers/tokenizer.js";
import { Drawer } from "./drawing.js";
import { checkedSampling, checkLargest, samplingOptions } from "./sampling.js";
import { TextStream } from "./textStream.js";

const continueOptions = schema({
  /** The text to continue. */
  prompt: required("string"),
  /** How many tokens to add. */
  length: required("number"),
  ...samplingOptions.fields,
  /** Divides the logits: below 1 keeps to likely tokens, 0 always takes the likeliest token; 0.8 by default. */
  temperature: 0.8,
  /** Strings that end the text; they are not part of it. */
  stop: optional<readonly string[]>("strings", []),
  /** Seed of the draws; 0 by default. */
  seed: optional("integer", 0),
  /** Stops the generation when it is aborted. */
  signal: optional(signalKind),
  /** Called with every new piece of text. */
  onText: optional<(text: string) => void>("function"),
});

/** Options of {@link continueText}. */
export interface ContinueOptions extends OptionsOf<typeof continueOptions> {}

const drawer = new Drawer();

/**
 * A model's logits of the token after a text, possibly more than the tokeniser has tokens. Most calls pass the tokens
 * of the previous call and one more.
 *
 * @param tokens at least one, and at most the window
 */
export type NextLogits = (tokens: readonly number[]) => Promise<ArrayLike<number>>;

/**
 * Continues a text token by token. When the window is full, the model continues from its last half.
 *
 * @param window the maximum number of tokens that the model sees
 *
 * @example
 * ```ts
 * const tokenizer = train.byteTokenizer();
 * // A model that counts.
 * const next = async (tokens) => Array.from({ length: 257 }, (_, i) => (i === tokens.at(-1) + 1 ? 100 : 0));
 * await train.continueText(next, tokenizer, 16, { prompt: "abc", length: 3, temperature: 0 }); // abcdef
 * ```
 */
export async function continueText(
  logits: NextLogits,
  tokenizer: Tokenizer,
  window: number,
  options: ContinueOptions,
): Promise<string> {
  need("function", logits, "logits", "continueText");
  need("object", tokenizer, "tokenizer", "continueText");
  need("function", tokenizer.encode, "encode of the tokenizer", "continueText");
  need("function", tokenizer.decode, "decode of the tokenizer", "continueText");
  need("number", window, "window", "continueText");
  const read = continueOptions.read(options, "continueText");
  const { prompt, length, seed, signal, onText, stop } = read;
  const sampling = checkedSampling(read, "continueText");
  // A model needs at least one token to continue from; every text has line breaks.
  const start = tokenizer.encode(prompt === "" ? "\n" : prompt);
  const tokens = start.length > 0 ? [...start] : [tokenizer.endOfText ?? 0];
  const numPrompt = tokens.length;
  const stream = new TextStream(tokenizer, stop);
  const added: string[] = [];
  const tell = (piece: string) => {
    added.push(piece);
    if (piece !== "") onText?.(piece);
  };
  let first = Math.max(0, tokens.length - window);
  for (let i = 0; i < length && !stream.isStopped && signal?.aborted !== true; i++) {
    if (tokens.length - first > window) first = tokens.length - Math.ceil(window / 2);
    const all = await logits(tokens.slice(first));
    const row = Tensor.fromHost({ dtype: "float32", shape: [1, all.length] }, Float32Array.from(all));
    const draws = [{ sampling, seed, index: i, seen: tokens }];
    const { token, logit } = at(await drawer.draw(row, tokenizer.vocabSize, draws).read(), 0);
    checkLargest(logit);
    tokens.push(token);
    tell(stream.add(token));
  }
  if (!stream.isStopped) tell(stream.end());
  return `${tokenizer.decode(tokens.slice(0, numPrompt))}${added.join("")}`;
}
