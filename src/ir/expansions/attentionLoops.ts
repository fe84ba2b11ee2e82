/** Loops over the blocks of queries and keys of an attention. */

import type { Attention, AttentionExtra } from "../ops.js";
import type { Atom, Var } from "../program.js";
import { at, type TensorType } from "../shape.js";
import { type AttentionBlock, isBlockSeen, type Starts } from "./attentionScores.js";
import { overBlocks, type ProgramBuilder, writeProgram } from "./programBuilder.js";

/** How many queries and keys have scores at a time. */
export interface AttentionBlocks {
  readonly rows: number;
  readonly columns: number;
  /** Whether blocks of queries are written one after the other, each with the keys that it sees as one block. */
  readonly unrolled?: boolean;
}

/** The largest number of scores of a head that exist at a time, unless a single query has more. */
const BLOCK = 512 * 512;

/** The blocks of an attention by its numbers of queries and keys. */
export function attentionBlocks(length: number, keyLength: number): AttentionBlocks {
  if (length * keyLength <= BLOCK) return { rows: Math.max(1, length), columns: keyLength };
  const rows = Math.min(length, 512);
  return { rows, columns: Math.floor(BLOCK / rows) };
}

/** What a block of an attention may contain. */
export type BlockValue =
  | keyof AttentionBlock
  | AttentionExtra
  | "logSums"
  | "mixedCotangent"
  | "mixed"
  | "shared";

/** The dims that are cut into blocks of queries (rows) and of keys (columns). */
export interface BlockDims {
  readonly rows?: number;
  readonly columns?: number;
}

const cuts: { readonly [N in BlockValue]: BlockDims } = {
  query: { rows: 1 },
  key: { columns: 1 },
  value: { columns: 1 },
  logSums: { rows: 2 },
  mixedCotangent: { rows: 1 },
  mixed: { rows: 1 },
  shared: { rows: 2 },
  bias: { rows: 2, columns: 3 },
  mask: { rows: 2, columns: 3 },
  querySegments: { rows: 1 },
  keySegments: { columns: 1 },
  queryPositions: { rows: 1 },
  keyPositions: { columns: 1 },
  sinks: {},
  dropoutKeys: {},
  logSumsCotangent: { rows: 2 },
};

/** How an operand is cut; a size of 1 stands for all positions and is not. */
export function cutOf(name: BlockValue, { shape }: TensorType): BlockDims {
  const { rows, columns } = cuts[name];
  return {
    ...(rows !== undefined && shape[rows] !== 1 && { rows }),
    ...(columns !== undefined && shape[columns] !== 1 && { columns }),
  };
}

/** The keys, from a first to before a last one, that a block of queries sees as far as indices say; at least one. */
export function keysSeen(
  { causal, window: [before, after] = [-1, -1], extras = [] }: Attention,
  start: number,
  rows: number,
  keyLength: number,
): readonly [first: number, end: number] {
  if (extras.includes("queryPositions")) return [0, keyLength];
  const ahead = causal ? 0 : after;
  const end = ahead < 0 ? keyLength : Math.min(keyLength, start + rows + ahead);
  const first = before < 0 ? 0 : Math.max(0, start - before);
  return [Math.min(first, end - 1), end];
}

/** The values of a block of queries and keys. */
export function cutBlock(
  b: ProgramBuilder,
  { names, values }: Named,
  rows: readonly [first: number, end: number],
  columns: readonly [first: number, end: number],
): Named {
  const cut = (x: Var, dim: number | undefined, [first, end]: readonly [number, number]) =>
    dim === undefined ? x : b.slice(x, dim, first, end - first);
  const own = values.map((x, i) => {
    const { rows: rowDim, columns: columnDim } = cutOf(at(names, i), x.type);
    return cut(cut(x, rowDim, rows), columnDim, columns);
  });
  return { names, values: own };
}

/** Values with their names. */
export interface Named {
  readonly names: readonly BlockValue[];
  readonly values: readonly Var[];
}

/** The values by name. */
export function byName<N extends BlockValue>({ names, values }: Named): { readonly [P in N]: Var } {
  // The names of an attention's operands contain those that its programs ask for.
  return Object.fromEntries(names.map((name, i) => [name, at(values, i)])) as { [P in N]: Var };
}

/** What a step over a block of keys passes on: sums of its own rows, sums of its columns, and pieces of results. */
export interface KeyResults {
  readonly carry: readonly Var[];
  readonly sums: readonly Var[];
  readonly made: readonly Var[];
}

/** What a loop over keys is given besides the operands. */
export interface KeyLoop {
  readonly start: Atom;
  readonly operands: Named;
  readonly carry: readonly Var[];
  /** Sums of columns so far, and the dims of their keys. */
  readonly sums: readonly Var[];
  readonly sumDims: readonly number[];
  /** The dims of the keys in pieces of results. */
  readonly madeDims: readonly number[];
}

type KeyStep = (
  b: ProgramBuilder,
  operands: Named,
  starts: Starts,
  carry: readonly Var[],
  sums: readonly Var[],
) => KeyResults;

/** Runs a step on blocks of keys; those that no query of the block sees are skipped. */
export function overKeys(
  b: ProgramBuilder,
  loop: KeyLoop,
  {
    keyLength,
    block,
    params,
  }: { readonly keyLength: number; readonly block: number; readonly params: Attention },
  step: KeyStep,
): KeyResults {
  const { names, values } = loop.operands;
  const [n, numSums, numCarry] = [names.length, loop.sums.length, loop.carry.length];
  const asVar = (inner: ProgramBuilder, x: Atom) => (x.kind === "var" ? x : inner.broadcast(x, [], []));
  const isLooped = keyLength > block;
  const inputs = [...values, ...loop.sums, ...(isLooped ? [asVar(b, loop.start)] : [])];
  const keyDims = names.map((name, i) => cutOf(name, at(values, i).type).columns);
  const blocks = {
    length: keyLength,
    block,
    inputs,
    cuts: [...keyDims, ...loop.sumDims, ...(isLooped ? [undefined] : [])],
    carry: loop.carry,
    joins: [...loop.sumDims, ...loop.madeDims],
  };
  const { carry, made } = overBlocks(b, blocks, (inner, keyStart, given, before) => {
    const start = given[n + numSums] ?? loop.start;
    const run = (c: ProgramBuilder, starts: Starts, all: readonly Var[]) => {
      const [own, sums, carried] = [all.slice(0, n), all.slice(n, n + numSums), all.slice(n + numSums)];
      const results = step(c, { names, values: own }, starts, carried, sums);
      return [...results.carry, ...results.sums, ...results.made];
    };
    const all = [...given.slice(0, n + numSums), ...before];
    const own = byName<keyof AttentionBlock>({ names, values: given.slice(0, n) });
    const isSeen = isBlockSeen(inner, own, [start, keyStart], params);
    const unchanged = (ins: readonly Var[]) => [...ins.slice(n + numSums), ...ins.slice(n, n + numSums)];
    const operands = () => [asVar(inner, start), asVar(inner, keyStart), ...all];
    const outs = isSeen
      ? skipUnless(inner, isSeen, operands(), { run, unchanged })
      : run(inner, [start, keyStart], all);
    return { carry: outs.slice(0, numCarry), made: outs.slice(numCarry) };
  });
  return { carry, sums: made.slice(0, numSums), made: made.slice(numSums) };
}

/** Runs a block if it is seen; otherwise carry and sums stay unchanged, and pieces of results are 0. */
function skipUnless(
  b: ProgramBuilder,
  isSeen: Var,
  operands: readonly Var[],
  block: {
    readonly run: (b: ProgramBuilder, starts: Starts, all: readonly Var[]) => readonly Var[];
    readonly unchanged: (all: readonly Var[]) => readonly Var[];
  },
): Var[] {
  const types = operands.map(({ type }) => type);
  const write = (fn: (inner: ProgramBuilder, starts: Starts, all: readonly Var[]) => readonly Var[]) =>
    writeProgram(types, (inner, ins) => fn(inner, [at(ins, 0), at(ins, 1)], ins.slice(2)), b.axes);
  const computed = write(block.run);
  const skipped = write((inner, _starts, all) => {
    const kept = block.unchanged(all);
    const pieces = computed.outputs.slice(kept.length);
    return [...kept, ...pieces.map(({ type }) => inner.full(0, type.dtype, type.shape))];
  });
  const index = b.add("convert", [isSeen], { dtype: "int32" });
  return b.all("cond", [index, ...operands], { branches: [skipped, computed] });
}
