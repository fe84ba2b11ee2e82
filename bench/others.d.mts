/** Another library: its best time for a line of the table in milliseconds, or `null` if it does not support it. */
export interface OtherLibrary {
  readonly name: string;
  time(work: string): Promise<number | null>;
}

/** The libraries that are installed for the benchmarks (`npm install --prefix bench`). */
export function otherLibraries(rows: number, columns: number): Promise<OtherLibrary[]>;
