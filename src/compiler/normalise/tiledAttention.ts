/**
 * Attention for caches: a loop over the batch and the key heads, in which scores are computed for a few queries at a
 * time. What one tile needs stays in the cache of a core between its products and its softmax, and keys that no query
 * of a tile sees are left out, which halves the work of causal attention.
 */
import { attentionBackwardProgram, attentionProgram } from "../../ir/expansions/attention.js";
import type { AttentionBlocks } from "../../ir/expansions/attentionLoops.js";
import { overBlocks, type ProgramBuilder, writeProgram } from "../../ir/expansions/programBuilder.js";
import type { Attention, AttentionExtra, OpParams } from "../../ir/ops.js";
import type { Program, Var } from "../../ir/program.js";
import { at, type TensorType, typesOf } from "../../ir/shape.js";

/** Below this many scores of a head, all heads are computed together. */
const FEWEST = 96 * 96;

/** Up to this many queries, tiles are written one after the other instead of as a loop. */
const UNROLLED = 1024;

/** The tiles of one head. */
function tilesOf(length: number, keyLength: number): AttentionBlocks {
  if (length > UNROLLED || keyLength > 2 * UNROLLED) return { rows: 256, columns: 256 };
  return { rows: length > 256 ? 128 : 64, columns: keyLength, unrolled: true };
}

/** The dims that hold heads. */
const headDims: { readonly [N in AttentionExtra]?: number } = {
  bias: 1,
  mask: 1,
  sinks: 1,
  dropoutKeys: 1,
  logSumsCotangent: 1,
};

type ProgramOf = (types: readonly TensorType[], tiles: AttentionBlocks) => Program;

/** One head after the other; undefined where heads are too small. */
function byHeads(
  types: readonly TensorType[],
  { extras = [] }: Attention,
  heads: { readonly operands: readonly number[]; readonly results: readonly number[] },
  programOf: ProgramOf,
): Program | undefined {
  const [batch = 0, length = 0, numHeads = 0] = at(types, 0).shape;
  const [, keyLength = 0, keyHeads = 0] = at(types, 1).shape;
  if (length * keyLength < FEWEST || batch === 0 || numHeads === 0) return undefined;
  const dims = [...heads.operands, ...extras.map((name) => headDims[name])];
  const tiles = tilesOf(length, keyLength);
  const cutAlong = (values: readonly Var[], dim: (i: number) => number | undefined, count: number) =>
    values.map(({ type }, i) => {
      const d = dim(i);
      return d !== undefined && (type.shape[d] !== 1 || count === 1) ? d : undefined;
    });
  const oneHead = (b: ProgramBuilder, values: readonly Var[]) => {
    const program = programOf(typesOf(values), tiles);
    return { carry: [], made: b.inline(program, values).flatMap((x) => (x.kind === "var" ? [x] : [])) };
  };
  const allHeads = (b: ProgramBuilder, inputs: readonly Var[]) =>
    overBlocks(
      b,
      {
        ...{ length: keyHeads, block: 1, inputs, carry: [], joins: heads.results },
        cuts: cutAlong(inputs, (i) => dims[i], keyHeads),
      },
      (inner, _start, values) => oneHead(inner, values),
    );
  return writeProgram(
    types,
    (b, inputs) =>
      overBlocks(
        b,
        {
          ...{ length: batch, block: 1, inputs, carry: [], joins: heads.results.map(() => 0) },
          cuts: cutAlong(inputs, () => 0, batch),
        },
        (inner, _start, values) => allHeads(inner, values),
      ).made,
  );
}

/** What `attention` computes, head by head. */
export function tiledAttention(params: Attention, types: readonly TensorType[]): Program {
  const heads = { operands: [2, 2, 2], results: [2, 1] };
  const tiled = byHeads(types, params, heads, (own, tiles) => attentionProgram(params, own, tiles));
  return tiled ?? attentionProgram(params, types);
}

/** What `attentionBackward` computes, head by head. */
export function tiledAttentionBackward(
  params: OpParams["attentionBackward"],
  types: readonly TensorType[],
): Program {
  const heads = { operands: [2, 2, 2, 1, 2, 2], results: [2, 2, 2, ...(params.wants ?? []).map(() => 1)] };
  const tiled = byHeads(types, params, heads, (own, tiles) => attentionBackwardProgram(params, own, tiles));
  return tiled ?? attentionBackwardProgram(params, types);
}
