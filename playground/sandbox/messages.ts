/** What a program's worker tells the page. */

/** How a tensor is split over devices. */
export interface PlacementReport {
  readonly name: string;
  /** For example `f32[8,16] P("data")`. */
  readonly text: string;
  /** The devices that hold each block of the first two dims. */
  readonly blocks: readonly (readonly (readonly number[])[])[];
}

/** A collective of a compiled call. */
export interface CollectiveReport {
  readonly op: string;
  readonly axes: readonly string[];
  readonly count: number;
  /** The bytes that each device sends. */
  readonly bytes: number;
  /** The devices that take part together. */
  readonly groups: readonly (readonly number[])[];
}

/** A program as one pass left it. */
export interface PassReport {
  readonly pass: string;
  readonly stage: string;
  /** With the line of the source behind each equation. */
  readonly text: string;
}

/** What is known about a compiled call. */
export interface CallReport {
  readonly name: string;
  readonly devices: number;
  readonly placements: readonly PlacementReport[];
  readonly collectives: readonly CollectiveReport[];
  readonly passes: readonly PassReport[];
  /** Floating-point operations and peak bytes of each device. */
  readonly flops: number;
  readonly peakBytes: number;
}

/** A message of the worker. */
export type FromProgram =
  | { readonly kind: "log"; readonly level: "log" | "warn" | "error"; readonly text: string }
  | { readonly kind: "call"; readonly id: number; readonly report: CallReport }
  | { readonly kind: "compiled"; readonly id: number; readonly ms: number }
  | { readonly kind: "ran"; readonly id: number; readonly ms: number }
  | { readonly kind: "placement"; readonly placement: PlacementReport }
  | { readonly kind: "looping"; readonly line: number; readonly seconds: number }
  | { readonly kind: "ended"; readonly ms: number }
  | { readonly kind: "failed"; readonly message: string; readonly line?: number; readonly column?: number };

/** The file name of the user's program in stack traces. */
export const PROGRAM_FILE = "program.ts";

/** What a compiled program calls at the start of every round of the loop in a line. */
export const roundCall = (line: number): string => `roundOf(${line});`;

/** All such calls in a text. */
export const roundCalls = /\{?roundOf\(\d+\);/g;
