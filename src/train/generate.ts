import { ValueError } from "../ir/errors.js";
import * as np from "../numpy/index.js";
import * as random from "../random/index.js";
import * as ops from "../trace/ops.js";
import type { Tensor } from "../trace/tensor.js";
import type { Tokenizer } from "./tokenizer.js";

/** Options of {@link generate}. */
export interface GenerateOptions {
  readonly prompt: string;
  /** How many tokens to add. */
  readonly length: number;
  /** Divides the logits: below 1 is bolder, 0 always takes the likeliest token. */
  readonly temperature?: number;
  /** Only the `topK` likeliest tokens are drawn from; 0 for all. */
  readonly topK?: number;
  readonly seed?: number;
  /** Called with every new piece of text. */
  readonly onText?: (text: string) => void;
}

/**
 * Continues a text token by token.
 *
 * @param logits gives float logits [1, window, vocabulary] for int32 tokens [1, window]
 * @param window how many tokens the model sees
 */
export async function generate(
  logits: (tokens: Tensor) => Tensor,
  tokenizer: Tokenizer,
  window: number,
  options: GenerateOptions,
): Promise<string> {
  const { prompt, length, temperature = 0.8, topK = 0, seed = 0, onText } = options;
  if (!(temperature >= 0))
    throw new ValueError(`[generate] temperature is ${temperature}: use a number of at least 0`);
  const start = tokenizer.encode(prompt === "" ? "\n" : prompt);
  const tokens = [...start];
  let shown = tokenizer.decode(tokens);
  for (let i = 0; i < length; i++) {
    const recent = tokens.slice(-window);
    // Positions after the last token are filled; the model is causal, so they do not matter.
    const padded = Int32Array.from({ length: window }, (_, p) => recent[p] ?? 0);
    const all = logits(np.array(padded).reshape([1, window]));
    const last = np.index(all, 0, recent.length - 1).astype("float32");
    tokens.push(await draw(last, random.foldIn(random.key(seed), i), temperature, topK));
    const next = tokenizer.decode(tokens);
    // A token may end in the middle of a character, which shows as a replacement until the next one comes.
    if (onText && !next.endsWith("\uFFFD")) {
      onText(next.slice(shown.length));
      shown = next;
    }
  }
  return tokenizer.decode(tokens);
}

async function draw(logits: Tensor, key: Tensor, temperature: number, topK: number): Promise<number> {
  if (temperature === 0) return np.argmax(logits).item();
  const [sorted] = ops.sort([logits], 0);
  const size = logits.size;
  const scaled = logits.div(temperature);
  if (topK <= 0 || topK >= size || !sorted) return random.categorical(key, scaled).item();
  const least = ops.sliceDim(sorted, 0, size - topK, size - topK + 1);
  return random.categorical(key, np.where(np.greaterEqual(logits, least), scaled, -1e30)).item();
}
