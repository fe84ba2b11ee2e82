/**
 * What the code of attention is written in: integers, vectors of float32 and tiles of products, which each instruction set
 * has in its own way.
 */
import { float32Bits } from "../wasm/vectorProgram.js";
import type { AttentionArgument } from "./attentionKernel.js";

/** A variable integer, such as an address or a counter. Pointers are those that vectors are loaded from and stored to. */
export interface IntVariable {
  readonly kind: "word" | "pointer";
  readonly id: number;
}

/** An integer: a number, the value of a variable, or computed from others. */
export type Int = number | IntVariable | Sum;

/** The operations on integers; products and bits are those with a number. */
export type IntOp = "add" | "sub" | "mul" | "and" | "min" | "max";

interface Sum {
  readonly kind: "sum";
  readonly op: IntOp;
  readonly a: Int;
  readonly b: Int;
}

/** An operation on two integers. */
const binary =
  (op: IntOp) =>
  (a: Int, b: Int): Int => ({ kind: "sum", op, a, b });

export const [sub, min, max, and] = [binary("sub"), binary("min"), binary("max"), binary("and")];

/** a · factor. */
export function mul(a: Int, factor: number): Int {
  if (typeof a === "number") return a * factor;
  return factor === 1 ? a : { kind: "sum", op: "mul", a, b: factor };
}

/** The sum of some integers. */
export function add(first: Int, ...others: readonly Int[]): Int {
  return others.reduce((a, b) => (b === 0 ? a : { kind: "sum", op: "add", a, b }), first);
}

/** A vector register. */
export type LaneVector = number & { readonly __vector: never };

/** A place in memory: some bytes behind a pointer. */
export interface Place {
  readonly pointer: IntVariable;
  readonly bytes: number;
}

/** The place of a pointer, or some bytes behind it. */
export const at = (pointer: IntVariable, bytes = 0): Place => ({ pointer, bytes });

/** A vector: of a register, of memory, or a number in every lane. */
export type LaneOperand = LaneVector | Place | SameLanes;

/** The same 32 bits in every lane. */
export interface SameLanes {
  readonly bits: number;
}

/** These bits, and those of a float32, in every lane. */
export const bitsOf = (bits: number): SameLanes => ({ bits });
export const lanesOf = (number: number): SameLanes => ({ bits: float32Bits(number) });

/** Operations lane by lane: of float32, and of their bits. */
export type LaneOperation = "add" | "sub" | "mul" | "div" | "max" | "and" | "or";

/** A tile of products: rows of `a` times vectors of `b`, added up along `steps`. Distances are in bytes. */
export interface TileProduct {
  readonly height: number;
  readonly vectors: number;
  readonly a: { readonly from: Int; readonly row: number; readonly step: number };
  readonly b: { readonly from: Int; readonly step: number };
  readonly steps: Int;
}

/** Writes the code of a kernel for one instruction set. */
export interface AttentionMachine {
  /** Where the arguments and the scratch memory of the thread begin, and the unit of work. */
  argument(name: AttentionArgument): IntVariable;
  readonly scratch: IntVariable;
  readonly unit: IntVariable;

  /** A new variable that is not a pointer. */
  word(): IntVariable;
  /** One of six pointers, which `packColumns` changes. */
  pointer(index: number): IntVariable;
  set(to: IntVariable, value: Int): void;
  /** quotient = ⌊value / by⌋, rest = what remains. */
  divide(value: Int, by: number, quotient: IntVariable, rest: IntVariable): void;
  /** Repeats the body while the counter is less than the end; the counter is set before. */
  loop(counter: IntVariable, end: Int, step: number, body: () => void): void;
  /** Runs the body if a is less than b. */
  when(a: Int, b: Int, body: () => void): void;

  /** A vector register that no tile uses: one of three while a tile is in use, one of ten otherwise. */
  free(index: number): LaneVector;
  /** The sums of a tile. */
  sum(row: number, vector: number): LaneVector;
  copy(to: LaneVector, from: LaneOperand): void;
  store(to: Place, from: LaneVector): void;
  /** The same for the first `count` lanes; the others become 0, or memory after them stays as it is. */
  loadPart(to: LaneVector, from: Place, count: number): void;
  storePart(to: Place, from: LaneVector, count: number): void;
  storeFirst(to: Place, from: LaneVector): void;
  /** The float32 at a place, and an integer as float32, in every lane. */
  broadcast(to: LaneVector, from: Place): void;
  splat(to: LaneVector, value: Int): void;
  /** 0, 1, 2, … as float32. */
  iota(to: LaneVector): void;
  op(op: LaneOperation, to: LaneVector, a: LaneVector, b: LaneOperand): void;
  /** to = to · a + b, and to += a · b. */
  multiplyAdd(to: LaneVector, a: LaneVector, b: LaneOperand): void;
  addProduct(to: LaneVector, a: LaneVector, b: LaneOperand): void;
  /** Shifts the bits of every lane, to the right unsigned. */
  shift(direction: "left" | "right", to: LaneVector, a: LaneVector, bits: number): void;
  /** Lanes in which a comparison holds become another number. */
  replace(to: LaneVector, a: LaneVector, is: "<" | ">", b: LaneOperand, by: SameLanes): void;
  /** Combines all lanes, in each of them. */
  fold(op: "add" | "max", to: LaneVector, other: LaneVector): void;

  /** Computes a tile; its sums may be used, and changed, by the body. */
  tile(product: TileProduct, body: () => void): void;
  /** Stores the features of as many rows as a panel has columns as columns: `to[feature][row]`. Changes all pointers. */
  packColumns(from: Int, rowBytes: number, to: Int, features: number): void;
}
