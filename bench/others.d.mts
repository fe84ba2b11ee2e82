/** Another library: its best time for a line of the table in milliseconds, or `null` if it does not support it. */
export interface OtherLibrary {
  readonly name: string;
  time(work: string, milliseconds?: number): Promise<number | null>;
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
