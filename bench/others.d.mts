import type { DecoderSize } from "./decoder.js";

/** Another library: its best time for a line of the table in milliseconds, or `null` if it does not support it. */
export interface OtherLibrary {
  readonly name: string;
  time(work: string, milliseconds?: number): Promise<number | null>;
  /** The decoder of decoder.ts, ready to be trained; see otherDecoders.mjs. */
  decoder(size: DecoderSize, weights: readonly HostWeight[], tokens: Int32Array): OtherDecoder;
}

/** A weight of a decoder. */
export interface HostWeight {
  readonly shape: readonly number[];
  readonly data: Float32Array;
}

/** A decoder in another library. */
export interface OtherDecoder {
  /** Starts a training step. */
  step(): void;
  /** Waits for a value that the last step has computed. */
  read(): Promise<unknown>;
  loss(): Promise<number>;
  dispose(): void;
}

/** The libraries that are installed for the benchmarks (`npm install --prefix bench`). */
export function otherLibraries(rows: number, columns: number): Promise<OtherLibrary[]>;

/** Those of them that use WebGPU. @param repeats runs that follow each other before a value of the last one is read */
export function otherLibrariesOnGpu(
  gpu: object,
  globals: object,
  rows: number,
  columns: number,
  repeats: number,
): Promise<OtherLibrary[]>;
