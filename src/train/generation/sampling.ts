import { ValueError } from "../../ir/errors.js";
import { schema, type Values } from "../../ir/schema.js";
import * as np from "../../numpy/index.js";
import * as random from "../../random/index.js";
import { jit } from "../../spmd/run/jit.js";
import type { Tensor } from "../../trace/tensor.js";
import { vmap } from "../../transforms/batching/vmap.js";

/** The options that say how tokens are drawn. */
export const samplingOptions = schema({
  /** Divides the logits: below 1 keeps to likely tokens, 0 always takes the likeliest; 1 by default. */
  temperature: 1,
  /** Draws from this many of the likeliest tokens; 0, the default, for all. */
  topK: 0,
  /** Draws from the likeliest tokens that have this share of the probability together; 1, the default, for all. */
  topP: 1,
  /** Draws from tokens with at least this multiple of the probability of the likeliest; 0, the default, for all. */
  minP: 0,
  /** Above 1, tokens that the text has already become less likely; 1, the default, for none. */
  repetitionPenalty: 1,
});

/** How tokens are drawn. */
export type Sampling = Values<typeof samplingOptions.fields>;

/** The sampling that options ask for; throws for values that have no meaning. */
export function checkedSampling(options: Sampling, caller: string): Sampling {
  const { temperature, topK, topP, minP, repetitionPenalty } = options;
  const rules: readonly (readonly [name: string, isRight: boolean, value: number, rule: string])[] = [
    ["temperature", temperature >= 0, temperature, "a number of at least 0"],
    ["topK", Number.isInteger(topK) && topK >= 0, topK, "an integer, 0 for all tokens"],
    ["topP", topP > 0 && topP <= 1, topP, "a number above 0 and up to 1"],
    ["minP", minP >= 0 && minP <= 1, minP, "a number from 0 to 1"],
    ["repetitionPenalty", repetitionPenalty > 0, repetitionPenalty, "a number above 0"],
  ];
  for (const [name, isRight, value, rule] of rules) {
    if (!isRight) throw new ValueError(`[${caller}] ${name} is ${value}: use ${rule}`);
  }
  return { temperature, topK, topP, minP, repetitionPenalty };
}

/**
 * Draws a token. Penalties come first, then the temperature, then the three limits in the order of {@link Sampling}.
 *
 * @param logits of at least `vocabSize` tokens; others are never drawn
 * @param seen the tokens that the text has
 * @param chance from 0 to 1: the place in the cumulative distribution, by token
 */
export function drawToken(
  logits: ArrayLike<number>,
  vocabSize: number,
  sampling: Sampling,
  seen: Iterable<number>,
  chance: number,
): number {
  const { temperature, topK, topP, minP, repetitionPenalty } = sampling;
  const values = repetitionPenalty === 1 ? logits : penalised(logits, seen, repetitionPenalty);
  const best = likeliest(values, vocabSize);
  const largest = values[best] ?? Number.NaN;
  checkLargest(largest, best);
  if (temperature === 0) return best;
  const weights = new Float64Array(vocabSize);
  for (let token = 0; token < vocabSize; token++)
    weights[token] = Math.exp(((values[token] ?? 0) - largest) / temperature);
  if (topK > 0 && topK < weights.length) keepLikeliest(weights, topK);
  if (topP < 1) keepShare(weights, topP);
  let total = 0;
  for (let token = 0; token < weights.length; token++) {
    const weight = weights[token] ?? 0;
    if (weight < minP) weights[token] = 0;
    else total += weight;
  }
  let left = chance * total;
  for (let token = 0; token < weights.length; token++) {
    left -= weights[token] ?? 0;
    if (left < 0) return token;
  }
  return best;
}

/** Whether the likeliest token of the logits is always taken. */
export function isGreedy({ temperature, repetitionPenalty }: Sampling): boolean {
  return temperature === 0 && repetitionPenalty === 1;
}

/** The likeliest token; throws if its logit is not finite. */
export function checkLargest(logit: number, token: number): number {
  if (Number.isFinite(logit)) return token;
  throw new ValueError("[generate] the model's logits are not finite: its parameters are damaged");
}

/** Logits where the tokens that a text has are less likely. */
function penalised(logits: ArrayLike<number>, seen: Iterable<number>, penalty: number): Float64Array {
  const values = new Float64Array(logits);
  for (const token of new Set(seen)) {
    const value = values[token];
    if (value !== undefined) values[token] = value > 0 ? value / penalty : value * penalty;
  }
  return values;
}

/** The first of the largest of `count` values, or the first NaN. */
function likeliest(values: ArrayLike<number>, count: number): number {
  let best = 0;
  let largest = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < count; i++) {
    const value = values[i] ?? Number.NaN;
    if (value > largest) {
      best = i;
      largest = value;
    } else if (Number.isNaN(value)) return i;
  }
  return best;
}

/** The given tokens, likeliest first; among equal ones, the first. */
function ranked(weights: Float64Array, tokens: Uint32Array): Uint32Array {
  return tokens.sort((a, b) => (weights[b] ?? 0) - (weights[a] ?? 0) || a - b);
}

/** Sets the weights of all but the first `count` of some ranked tokens to 0. */
function keepFirst(weights: Float64Array, order: Uint32Array, count: number): void {
  const kept = Array.from(order.subarray(0, count), (token) => [token, weights[token] ?? 0] as const);
  weights.fill(0);
  for (const [token, weight] of kept) weights[token] = weight;
}

function keepLikeliest(weights: Float64Array, count: number): void {
  // All tokens above the count-th largest weight are kept, so only those from it on need an order.
  const least = Float64Array.from(weights).sort()[weights.length - count] ?? 0;
  const tokens = Uint32Array.from(weights.keys()).filter((token) => (weights[token] ?? 0) >= least);
  keepFirst(weights, ranked(weights, tokens), count);
}

function keepShare(weights: Float64Array, share: number): void {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  // Together, tokens below this have less than what is left out, so that none of them is needed.
  const least = ((1 - share) * total) / weights.length;
  const tokens = Uint32Array.from(weights.keys()).filter((token) => (weights[token] ?? 0) >= least);
  const order = ranked(weights, tokens);
  let [sum, count] = [0, 0];
  while (count < order.length && (sum < share * total || count === 0))
    sum += weights[order[count++] ?? 0] ?? 0;
  keepFirst(weights, order, count);
}

/** How many chances are drawn at once. */
const block = 32;

const drawBlock = jit(
  (key: Tensor, start: Tensor) =>
    vmap((i: Tensor) => random.uniform(random.foldIn(key, i), []))(np.arange(block).add(start)),
  { name: "chances" },
);

/** Numbers from 0 to 1, the i-th of which depends on the seed and on i alone. */
export class SeededUniforms {
  private known: ArrayLike<number | boolean> = [];
  private start = 0;

  constructor(private readonly seed: number) {}

  async at(i: number): Promise<number> {
    if (this.known.length === 0 || i < this.start || i >= this.start + block) {
      this.start = i - (i % block);
      const drawn = drawBlock(random.key(this.seed), np.array(this.start, "int32"));
      this.known = await drawn.data();
      drawn.dispose();
    }
    return Number(this.known[i - this.start] ?? 0);
  }
}
