/**
 * Draws next tokens where their logits are. A draw adds noise to every logit that fits the text's seed, the number of
 * tokens drawn before and the token, and takes the largest sum (Gumbel's trick): what a text draws does not depend on the
 * texts beside it, and the likeliest of a few sums is the same however they are ordered.
 */
import { getOrInsert } from "../../ir/collections.js";
import { limits } from "../../ir/dtype.js";
import { range } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import * as np from "../../numpy/index.js";
import * as random from "../../random/index.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { PartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { NamedSharding } from "../../spmd/mesh/sharding.js";
import { type Jitted, jit } from "../../spmd/run/jit.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { vmap } from "../../transforms/batching/vmap.js";
import { scan } from "../../transforms/control/scan.js";
import type { Sampling } from "./sampling.js";

/** What decides on the next token of a text besides its logits. */
export interface Draw {
  readonly sampling: Sampling;
  readonly seed: number;
  /** The number of tokens that were drawn before. */
  readonly index: number;
  /** The tokens that the text has. */
  readonly seen: readonly number[];
}

/** A token that was drawn. */
export interface Drawn {
  readonly token: number;
  /** The largest logit, which is not finite if the parameters are damaged. */
  readonly logit: number;
}

/** The tokens that were drawn for rows of logits, which may still be computed. */
export class DrawnTokens {
  constructor(
    /** int32 [rows, 1] */
    readonly tokens: Tensor,
    private readonly largest: Tensor,
  ) {}

  /** Waits for the tokens, and releases what devices hold of them. */
  async read(): Promise<Drawn[]> {
    try {
      const [tokens, logits] = await Promise.all([this.tokens.data(), this.largest.data()]);
      return Array.from(tokens, (token, row) => ({ token: Number(token), logit: Number(logits[row]) }));
    } finally {
      this.dispose();
    }
  }

  dispose(): void {
    tree.dispose([this.tokens, this.largest]);
  }
}

/** Which steps of a draw any of the rows needs. */
type Steps = Readonly<Record<"noise" | "topK" | "topP" | "minP" | "penalty", boolean>>;

function stepsOf(draws: readonly (Draw | undefined)[]): Steps {
  const some = (needs: (sampling: Sampling) => boolean) => draws.some((draw) => draw && needs(draw.sampling));
  const isDrawn = ({ temperature }: Sampling) => temperature > 0;
  return {
    noise: some(isDrawn),
    topK: some((own) => isDrawn(own) && own.topK > 0),
    topP: some((own) => isDrawn(own) && own.topP < 1),
    minP: some((own) => isDrawn(own) && own.minP > 0),
    penalty: some((own) => own.repetitionPenalty !== 1),
  };
}

type DrawRows = (logits: Tensor, integers: Tensor, numbers: Tensor, seen: Tensor[]) => [Tensor, Tensor];

/** Draws tokens on a mesh, or where logits are by default. */
export class Drawer {
  private readonly compiled = new Map<string, Jitted<Parameters<DrawRows>, [Tensor, Tensor]>>();

  constructor(private readonly mesh?: Mesh) {}

  /**
   * Draws one token for each row.
   *
   * @param logits float32 [rows, tokens]
   * @param vocabSize the number of tokens that may be drawn; the others are padding
   * @param draws of each row; rows without one draw a token that means nothing
   * @param last more tokens that the texts have, int32 [rows, 1], which only devices may know yet
   */
  draw(logits: Tensor, vocabSize: number, draws: readonly (Draw | undefined)[], last?: Tensor): DrawnTokens {
    const steps = stepsOf(draws);
    const rows = draws.length;
    const integers = new Int32Array(4 * rows);
    const numbers = new Float32Array(4 * rows);
    for (const [row, draw] of draws.entries()) {
      const { sampling, seed = 0, index = 0 } = draw ?? {};
      const { topK = 0, temperature = 0, topP = 1, minP = 0, repetitionPenalty = 1 } = sampling ?? {};
      // Larger numbers mean the same, but have other bits.
      const [most, heat] = [Math.min(topK, vocabSize), Math.min(temperature, limits("float32").max)];
      integers.set([vocabSize, most, Number(BigInt.asIntN(32, BigInt(seed))), index], 4 * row);
      numbers.set([heat, topP, minP, repetitionPenalty], 4 * row);
    }
    const seen = steps.penalty ? [seenOf(draws, logits.shape[1] ?? 0), ...(last ? [last] : [])] : [];
    const drawn = this.function(steps)(
      logits,
      Tensor.fromHost({ dtype: "int32", shape: [rows, 4] }, integers),
      Tensor.fromHost({ dtype: "float32", shape: [rows, 4] }, numbers),
      seen,
    );
    return new DrawnTokens(...drawn);
  }

  private function(steps: Steps): Jitted<Parameters<DrawRows>, [Tensor, Tensor]> {
    const { mesh } = this;
    return getOrInsert(this.compiled, JSON.stringify(steps), () => {
      const placed = mesh && { mesh, outShardings: new NamedSharding(mesh, new PartitionSpec([])) };
      return jit(drawRows(steps), { ...placed, name: "drawTokens" });
    });
  }
}

/** The tokens of each row, int32 [rows, …], padded with one that does not exist: few different lengths are compiled. */
function seenOf(draws: readonly (Draw | undefined)[], padding: number): Tensor {
  const lists = draws.map((draw) => (draw && draw.sampling.repetitionPenalty !== 1 ? draw.seen : []));
  const longest = Math.max(...lists.map(({ length }) => length));
  const length = 2 ** Math.ceil(Math.log2(Math.max(64, longest)));
  const tokens = new Int32Array(draws.length * length).fill(padding);
  for (const [row, list] of lists.entries()) tokens.set(list, row * length);
  return Tensor.fromHost({ dtype: "int32", shape: [draws.length, length] }, tokens);
}

/** Column `i` of parameters of rows, [rows, 1]. */
const column = (x: Tensor, i: number): Tensor => x.get("...", np.s(i, i + 1));

/** Draws a token for each row: penalties come first, then the temperature, then the limits in their order. */
function drawRows(steps: Steps): DrawRows {
  return (given, integers, numbers, seen) => {
    const [count, temperature] = [column(integers, 0), column(numbers, 0)];
    const tokens = np.arange(given.shape[1] ?? 0);
    const penalised = steps.penalty ? withPenalty(given, seen, column(numbers, 3)) : given;
    const logits = np.where(np.less(tokens, count), penalised, Number.NEGATIVE_INFINITY);
    const largest = np.max(logits, 1, { keepdims: true });
    const first = (x: Tensor, most: Tensor) => {
      // Two reductions are kernels on every engine, and argmax is not.
      const token = np.min(np.where(np.equal(x, most), tokens, count), 1, { keepdims: true });
      return np.minimum(token, count.sub(1));
    };
    if (!steps.noise) return [first(logits, largest), largest];
    const isDrawn = np.greater(temperature, 0);
    const scores = logits.sub(largest).div(np.where(isDrawn, temperature, 1));
    const sums = scores.add(noise(column(integers, 2), column(integers, 3), tokens.size));
    const left = np.where(isWithinLimits(steps, scores, integers, numbers), sums, Number.NEGATIVE_INFINITY);
    const chosen = np.where(isDrawn, left, scores);
    return [first(chosen, np.max(chosen, 1, { keepdims: true })), largest];
  };
}

/** Logits where the tokens that a text has are less likely. */
function withPenalty(logits: Tensor, seen: readonly Tensor[], penalty: Tensor): Tensor {
  const all = np.concatenate(seen, 1);
  const into = { dim: 1, batchDims: 1, combine: "set" } as const;
  // Indices beyond the last token are left out.
  const isSeen = ops.scatter(np.zerosLike(logits), all, np.ones(all.shape), into);
  const less = np.where(np.greater(logits, 0), logits.div(penalty), logits.mul(penalty));
  return np.where(np.greater(isSeen, 0), less, logits);
}

/**
 * Noise of every token whose largest sum with the logarithms of weights is drawn as often as its weight says. Noise of few
 * bits ends at 16, which many unlikely tokens together would need to exceed more often than one of them.
 */
function noise(seed: Tensor, index: Tensor, count: number): Tensor {
  const ofRow = (own: Tensor, i: Tensor) =>
    random.gumbel(random.foldIn(random.key(own), i), [count], { mode: "high" });
  return vmap(ofRow)(np.squeeze(seed, 1), np.squeeze(index, 1));
}

/** Which tokens topK, topP and minP leave. @param scores the logarithm of weights, relative to that of the likeliest */
function isWithinLimits(steps: Steps, scores: Tensor, integers: Tensor, numbers: Tensor): Tensor {
  const [topK, topP, minP] = [column(integers, 1), column(numbers, 1), column(numbers, 2)];
  // Floats of one sign are ordered as their bits are.
  const distance = lax.bitcastConvertType(np.abs(scores), "int32");
  let limit = np.full(topK.shape, limits("int32").max, "int32");
  if (steps.topK) {
    const nearest = whereSumReaches(distance, np.onesLike(scores), topK.astype("float32"));
    limit = np.where(np.greater(topK, 0), nearest, limit);
  }
  if (steps.topP) {
    const weights = np.where(np.lessEqual(distance, limit), np.exp(scores), 0);
    const share = np.sum(weights, 1, { keepdims: true }).mul(topP);
    limit = np.where(np.less(topP, 1), np.minimum(limit, whereSumReaches(distance, weights, share)), limit);
  }
  const isNear = np.lessEqual(distance, limit);
  return steps.minP ? np.logicalAnd(isNear, np.greaterEqual(scores, np.log(minP))) : isNear;
}

/**
 * The least distance within which weights have a sum of at least `target`, found bit by bit, which is faster than sorting;
 * the largest integer if they never have. @param distance int32, not negative
 */
function whereSumReaches(distance: Tensor, weights: Tensor, target: Tensor): Tensor {
  const bits = np.array(Int32Array.from(range(31), (i) => 2 ** (30 - i)));
  const [found] = scan(
    (known: Tensor, bit: Tensor) => {
      const next = known.add(bit);
      const before = np.sum(np.where(np.less(distance, next), weights, 0), 1, { keepdims: true });
      return [np.where(np.less(before, target), next, known), []];
    },
    np.zeros(target.shape, "int32"),
    bits,
  );
  return found;
}
