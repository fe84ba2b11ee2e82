import { ValueError } from "../ir/errors.js";
import * as random from "../random/index.js";
import type { Tokenizer } from "./tokenizer.js";

/** Options of {@link generate}. */
export interface GenerateOptions {
  readonly prompt: string;
  /** How many tokens to add. */
  readonly length: number;
  /** Divides the logits: below 1 is bolder, 0 always takes the likeliest token; 0.8 by default. */
  readonly temperature?: number;
  /** Only the `topK` likeliest tokens are drawn from; 0, the default, for all. */
  readonly topK?: number;
  readonly seed?: number;
  /** Called with every new piece of text. */
  readonly onText?: (text: string) => void;
}

/**
 * What a model says about the token after `tokens[last]`.
 *
 * @param tokens a full window; what stands after `last` does not matter
 * @returns a logit for every token, possibly more than the tokeniser has
 */
export type NextLogits = (tokens: Int32Array, last: number) => Promise<ArrayLike<number>>;

/**
 * Continues a text token by token.
 *
 * @param window how many tokens the model sees
 */
export async function generate(
  logits: NextLogits,
  tokenizer: Tokenizer,
  window: number,
  options: GenerateOptions,
): Promise<string> {
  const { prompt, length, temperature = 0.8, topK = 0, seed = 0, onText } = options;
  if (!(temperature >= 0))
    throw new ValueError(`[generate] temperature is ${temperature}: use a number of at least 0`);
  if (!(Number.isInteger(topK) && topK >= 0))
    throw new ValueError(`[generate] topK is ${topK}: use a whole number, 0 for all tokens`);
  // A model has to go on from something; a new line is what every text has.
  const start = tokenizer.encode(prompt === "" ? "\n" : prompt);
  const tokens = start.length > 0 ? [...start] : [tokenizer.endOfText ?? 0];
  let shown = tokenizer.decode(tokens);
  for (let i = 0; i < length; i++) {
    const recent = tokens.slice(-window);
    const padded = Int32Array.from({ length: window }, (_, p) => recent[p] ?? 0);
    const all = await logits(padded, recent.length - 1);
    const known = Array.from({ length: tokenizer.vocabSize }, (_, token) => all[token] ?? 0);
    const chance = await random.uniform(random.foldIn(random.key(seed), i), []).item();
    tokens.push(draw(known, temperature, topK, chance));
    const next = tokenizer.decode(tokens);
    // A token may end in the middle of a character, which shows as a replacement until the next one comes.
    if (onText && !next.endsWith("\uFFFD")) {
      onText(next.slice(shown.length));
      shown = next;
    }
  }
  const text = tokenizer.decode(tokens);
  onText?.(text.slice(shown.length));
  return text;
}

/** The token at a share of the distribution. @param chance from 0 to 1 */
export function draw(logits: readonly number[], temperature: number, topK: number, chance: number): number {
  const ranked = logits.map((logit, token) => ({ logit, token })).sort((a, b) => b.logit - a.logit);
  const [best] = ranked;
  if (!best || temperature === 0) return best?.token ?? 0;
  const kept = topK > 0 ? ranked.slice(0, topK) : ranked;
  const weights = kept.map(({ logit }) => Math.exp((logit - best.logit) / temperature));
  let left = chance * weights.reduce((sum, weight) => sum + weight, 0);
  for (const [i, weight] of weights.entries()) {
    left -= weight;
    if (left < 0) return kept[i]?.token ?? best.token;
  }
  return best.token;
}
