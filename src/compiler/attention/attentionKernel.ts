/** Attention as one kernel of a processor or of a GPU: what it is, and how it is divided. */
import { at, range } from "../../ir/shape.js";
import type { WasmFeatures } from "../wasm/features.js";
import type { FunctionBody } from "../wasm/functionBody.js";

/** The distances in bytes between batch elements, positions and heads; features are adjacent. */
export interface HeadStrides {
  readonly batch: number;
  readonly row: number;
  readonly head: number;
}

/** The operands and results of a kernel that have heads. */
export type HeadsName =
  | "query"
  | "key"
  | "value"
  | "mixed"
  | "mixedCotangent"
  | "queryCotangent"
  | "keyCotangent"
  | "valueCotangent";

/** The operands and results of a kernel: those with heads, and log-sums `[batch, N, T]`, which are dense. */
export type AttentionArgument = HeadsName | "logSums" | "logSumsCotangent";

/** Whether an argument has heads. */
export function isWithHeads(name: AttentionArgument): name is HeadsName {
  return name !== "logSums" && name !== "logSumsCotangent";
}

/** How a processor computes scores: lanes of its vectors, and the rows and columns of a tile that stays in registers. */
export interface AttentionTile {
  readonly lanes: number;
  readonly rows: number;
  /** A power of two, at least as many as there are rows. */
  readonly columns: number;
}

/**
 * The attention of float32 heads, or the cotangents of its operands. A query t sees the keys from t − before to
 * t + ahead, where −1 stands for all.
 */
export interface AttentionKernel {
  readonly kind: "attention";
  readonly batch: number;
  readonly length: number;
  readonly heads: number;
  readonly keyLength: number;
  readonly keyHeads: number;
  readonly headSize: number;
  readonly scale: number;
  readonly before: number;
  readonly ahead: number;
  /** The arguments in order; scratch memory follows. */
  readonly args: readonly AttentionArgument[];
  readonly strides: { readonly [N in HeadsName]?: HeadStrides };
  readonly tile: AttentionTile;
}

/** How attention is one kernel somewhere. */
export interface AttentionCode {
  /** Units of work that threads share. */
  readonly units: (kernel: AttentionKernel) => number;
  /** The bytes of scratch memory that a thread needs. */
  readonly scratchBytes: (kernel: AttentionKernel) => number;
  /** Writes it as WebAssembly, with the parameters of a kernel that threads share, where it is that. */
  readonly emit?: (code: FunctionBody, kernel: AttentionKernel, features: WasmFeatures) => void;
}

/** Whether a kernel computes cotangents. */
export function isBackward({ args }: AttentionKernel): boolean {
  return args.includes("queryCotangent");
}

/** Features of a packed row, whole vectors. */
export function packedFeatures({ headSize, tile: { lanes } }: AttentionKernel): number {
  return Math.ceil(headSize / lanes) * lanes;
}

/** Keys whose scores are computed together: whole strips and whole panels. */
export function keysOf({ tile: { rows, columns } }: AttentionKernel): number {
  const both = range(columns).reduce(
    (most, i) => (((i + 1) * rows) % columns === 0 && most === 0 ? (i + 1) * rows : most),
    0,
  );
  return Math.floor(240 / both) * both;
}

/** Queries that are computed together: whole strips. */
export function queriesOf(kernel: AttentionKernel): number {
  const { rows } = kernel.tile;
  // Of the cotangents, more values than of the attention itself have to stay in the cache.
  return Math.floor((isBackward(kernel) ? 112 : 224) / rows) * rows;
}

/** Units of work that threads share: blocks of queries of all heads, or all heads of keys. */
export function attentionUnits(kernel: AttentionKernel): number {
  const { batch, length, heads, keyHeads } = kernel;
  return isBackward(kernel) ? batch * keyHeads : batch * heads * Math.ceil(length / queriesOf(kernel));
}

/** Bytes from a row of scores to the next: an empty panel may follow the last. */
export function scorePitch(kernel: AttentionKernel): number {
  return 4 * (keysOf(kernel) + kernel.tile.columns);
}

/** Where each part of the scratch memory of a thread begins. */
export interface ScratchPlaces<Name extends string> {
  readonly at: { readonly [N in Name]: number };
  readonly bytes: number;
}

function places<Name extends string>(sizes: { readonly [N in Name]: number }): ScratchPlaces<Name> {
  const names = Object.keys(sizes) as Name[];
  let bytes = 0;
  const starts = names.map((name) => {
    const start = bytes;
    bytes += Math.ceil(sizes[name] / 64) * 64;
    return [name, start] as const;
  });
  return { at: Object.fromEntries(starts) as { [N in Name]: number }, bytes };
}

/** Packed rows of a block of queries: as many as it has, and those that fill up a last strip of a single row. */
const packedQueries = (kernel: AttentionKernel): number => queriesOf(kernel) + kernel.tile.rows - 1;

/** The scratch memory of a thread that computes attention. */
export function forwardScratch(kernel: AttentionKernel) {
  const { lanes, rows, columns } = kernel.tile;
  const row = 4 * packedFeatures(kernel);
  const [queries, keys] = [queriesOf(kernel), keysOf(kernel)];
  return places({
    query: packedQueries(kernel) * row,
    mixed: queries * row,
    key: keys * 4 * kernel.headSize,
    value: keys * row,
    scores: rows * scorePitch(kernel),
    lastKeys: columns * row,
    /** The largest score of every row, and the lanes of the sum of its weights. */
    peaks: queries * 4,
    sums: queries * 4 * lanes,
  });
}

/** The scratch memory of a thread that computes cotangents. */
export function backwardScratch(kernel: AttentionKernel) {
  const { length, heads, keyHeads, headSize } = kernel;
  const { rows, columns } = kernel.tile;
  const row = 4 * packedFeatures(kernel);
  const [queries, keys] = [queriesOf(kernel), keysOf(kernel)];
  // Strips read the values of as many rows as they have, whether these exist or not.
  const rowValues = 4 * ((heads / keyHeads) * length + rows);
  return places({
    query: packedQueries(kernel) * row,
    mixedCotangent: packedQueries(kernel) * row,
    key: keys * 4 * headSize,
    value: keys * 4 * headSize,
    keyRows: keys * row,
    weights: queries * scorePitch(kernel),
    scoreCotangents: queries * scorePitch(kernel),
    lastKeys: columns * row,
    keyCotangent: keys * row,
    valueCotangent: keys * row,
    logSums: rowValues,
    shared: rowValues,
  });
}

/** The bytes of scratch memory that a thread needs. */
export function attentionScratchBytes(kernel: AttentionKernel): number {
  return (isBackward(kernel) ? backwardScratch(kernel) : forwardScratch(kernel)).bytes;
}

/** Attention in machine code. */
export const nativeAttention: AttentionCode = { units: attentionUnits, scratchBytes: attentionScratchBytes };

/** Attention on a GPU, where the cotangents need a value for every query of every head. */
export const gpuAttention: AttentionCode = {
  units: attentionUnits,
  scratchBytes: (kernel) => (isBackward(kernel) ? 4 * kernel.batch * kernel.heads * kernel.length : 4),
};

/** The bytes of an argument that a kernel touches. */
export function argumentBytes(kernel: AttentionKernel, index: number): number {
  const { batch, length, heads, keyLength, keyHeads, headSize } = kernel;
  const name = at(kernel.args, index);
  if (!isWithHeads(name)) return 4 * batch * heads * length;
  const strides = kernel.strides[name];
  if (strides === undefined) return 0;
  const isOfKeys = name === "key" || name === "value" || name === "keyCotangent" || name === "valueCotangent";
  const [rows, all] = isOfKeys ? [keyLength, keyHeads] : [length, heads];
  return (batch - 1) * strides.batch + (rows - 1) * strides.row + (all - 1) * strides.head + 4 * headSize;
}
