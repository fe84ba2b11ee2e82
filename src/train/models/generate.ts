import { need } from "../../ir/arguments.js";
import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import * as random from "../../random/index.js";
import type { Tokenizer } from "../data/tokenizer.js";

const generateOptions = schema({
  /** The text to continue. */
  prompt: required("string"),
  /** How many tokens to add. */
  length: required("number"),
  /** Divides the logits: below 1 keeps to likely tokens, 0 always takes the likeliest token; 0.8 by default. */
  temperature: 0.8,
  /** Only the `topK` likeliest tokens are drawn from; 0, the default, for all. */
  topK: 0,
  /** Seed of the draws; 0 by default. */
  seed: 0,
  /** Stops the generation when it is aborted. */
  signal: optional<AbortSignal>("any"),
  /** Called with every new piece of text. */
  onText: optional<(text: string) => void>("function"),
});

/** Options of {@link generate}. */
export interface GenerateOptions extends OptionsOf<typeof generateOptions> {}

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
 */
export async function generate(
  logits: NextLogits,
  tokenizer: Tokenizer,
  window: number,
  options: GenerateOptions,
): Promise<string> {
  need("function", logits, "logits", "generate");
  need("object", tokenizer, "tokenizer", "generate");
  need("function", tokenizer.encode, "encode of the tokenizer", "generate");
  need("function", tokenizer.decode, "decode of the tokenizer", "generate");
  need("number", window, "window", "generate");
  const { prompt, length, temperature, topK, seed, signal, onText } = generateOptions.read(
    options,
    "generate",
  );
  if (!(temperature >= 0))
    throw new ValueError(`[generate] temperature is ${temperature}: use a number of at least 0`);
  if (!(Number.isInteger(topK) && topK >= 0))
    throw new ValueError(`[generate] topK is ${topK}: use an integer, 0 for all tokens`);
  // A model needs at least one token to continue from; every text has line breaks.
  const start = tokenizer.encode(prompt === "" ? "\n" : prompt);
  const tokens = start.length > 0 ? [...start] : [tokenizer.endOfText ?? 0];
  let shown = tokenizer.decode(tokens);
  let first = Math.max(0, tokens.length - window);
  for (let i = 0; i < length && signal?.aborted !== true; i++) {
    if (tokens.length - first > window) first = tokens.length - Math.ceil(window / 2);
    const all = await logits(tokens.slice(first));
    const known = Array.from({ length: tokenizer.vocabSize }, (_, token) => all[token] ?? 0);
    const chance = await random.uniform(random.foldIn(random.key(seed), i), []).item();
    tokens.push(draw(known, temperature, topK, chance));
    const next = tokenizer.decode(tokens);
    // A token may end in the middle of a character, which decodes to U+FFFD until the next token completes it.
    if (onText && !next.endsWith("\uFFFD")) {
      onText(next.slice(shown.length));
      shown = next;
    }
  }
  const text = tokenizer.decode(tokens);
  onText?.(text.slice(shown.length));
  return text;
}

/** Draws a token by the inverse of the cumulative distribution. @param chance from 0 to 1 */
export function draw(logits: readonly number[], temperature: number, topK: number, chance: number): number {
  const best = logits.reduce((top, logit, token) => (logit > (logits[top] ?? logit) ? token : top), 0);
  if (temperature === 0) return best;
  const isKept = topK > 0 && topK < logits.length ? amongLargest(logits, topK) : () => true;
  const weights = logits.map((logit, token) =>
    isKept(token) ? Math.exp((logit - (logits[best] ?? 0)) / temperature) : 0,
  );
  let left = chance * weights.reduce((sum, weight) => sum + weight, 0);
  for (const [token, weight] of weights.entries()) {
    left -= weight;
    if (left < 0) return token;
  }
  return best;
}

/** Whether a token is one of the `count` likeliest. */
function amongLargest(logits: readonly number[], count: number): (token: number) => boolean {
  const ranked = logits.map((_, token) => token).sort((a, b) => (logits[b] ?? 0) - (logits[a] ?? 0));
  const kept = new Set(ranked.slice(0, count));
  return (token) => kept.has(token);
}
