/** Another library: its best time for a line of the table in milliseconds, or `null` where it has no such work. */
export interface OtherLibrary {
  readonly name: string;
  time(work: string): Promise<number | null>;
}

/** The libraries that are installed beside the benchmarks (`npm install --prefix bench`). */
export function otherLibraries(rows: number, columns: number): Promise<OtherLibrary[]>;
