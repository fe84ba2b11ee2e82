/** What the simulated machine knows of a word of shared memory. */

/** The most threads of a machine. */
export const MAX_THREADS = 10;

const MAX_HISTORY = 4;

/** A thread with its vector clock: how far it knows each thread to be. */
interface Clocked {
  readonly id: number;
  readonly clock: Int32Array;
}

/** A value that was written, by whom and when. */
export interface Written {
  readonly value: number;
  readonly thread: number;
  readonly time: number;
}

/** What is known about a word: who accessed it last, and what its atomic value orders. */
export interface Cell {
  writer: number;
  writeTime: number;
  writeIsAtomic: boolean;
  writeSite: number;
  readonly reads: Int32Array;
  readonly atomicReads: Int32Array;
  readonly readSites: Int32Array;
  /** The clock of the thread that stored the value atomically. */
  released: Int32Array | undefined;
  /** The last values, where races are intended. */
  history: Written[] | undefined;
}

/** A word that nobody has accessed. */
export function newCell(): Cell {
  return {
    writer: -1,
    writeTime: 0,
    writeIsAtomic: false,
    writeSite: 0,
    reads: new Int32Array(MAX_THREADS),
    atomicReads: new Int32Array(MAX_THREADS),
    readSites: new Int32Array(MAX_THREADS),
    released: undefined,
    history: undefined,
  };
}

/** Makes the later of two clocks. */
export function join(into: Int32Array, from: Int32Array): void {
  for (let i = 0; i < MAX_THREADS; i++) into[i] = Math.max(into[i] ?? 0, from[i] ?? 0);
}

/** Orders what follows after what the stored value tells of. */
export function acquire({ clock }: Clocked, { released }: Cell): void {
  if (released) join(clock, released);
}

/** Orders what a reader of the stored value does next after what came before. */
export function release({ clock }: Clocked, cell: Cell): void {
  if (cell.released) join(cell.released, clock);
  else cell.released = clock.slice();
}

/** Keeps a value for readers that may see old ones. */
export function remember({ history }: Cell, { id, clock }: Clocked, value: number): void {
  if (history === undefined) return;
  history.push({ value, thread: id, time: clock[id] ?? 0 });
  if (history.length > MAX_HISTORY) history.shift();
}

/** Adds the values that a read of 64 bits returns if it comes between the halves of a write. */
export function addTorn(values: number[]): void {
  const [newest, oldest] = [values[0] ?? 0, values.at(-1) ?? 0];
  if (values.length === 1) return;
  for (const [high, low] of [
    [newest, oldest],
    [oldest, newest],
  ] as const) {
    const words = new Uint32Array(new Float64Array([low, high]).buffer);
    const torn = new Float64Array(new Uint32Array([words[0] ?? 0, words[3] ?? 0]).buffer)[0] ?? 0;
    if (!values.includes(torn)) values.push(torn);
  }
}
