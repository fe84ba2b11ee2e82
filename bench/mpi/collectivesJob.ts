/** Collectives between processes of one device each, beside MPI's own: process 0 says what both took, in µs. */
import { createMpiEngine, type MpiEngine } from "../../src/engines/mpi/engine.js";
import { collectiveKinds, collectiveLoop, collectiveSizes } from "../collectives.js";
import { bindStraight } from "./straight.js";

/** One collective of one size. */
export interface Measured {
  readonly name: string;
  readonly bytes: number;
  readonly microseconds: number;
  /** The library's own collective. */
  readonly own: number;
  /** The same messages, straight. */
  readonly messages: number;
}

/** Every process runs as many rounds; other programs may be busy, so the best of them counts. */
const NUM_RUNS = 12;

const engine = createMpiEngine();
const { index, count } = engine.process;
const straight = bindStraight(index, count);

async function timeEngine(run: () => Promise<void>, rounds: number): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < NUM_RUNS; i++) {
    const begin = performance.now();
    await run();
    best = Math.min(best, performance.now() - begin);
  }
  return (1000 * best) / rounds;
}

function timeStraight(call: () => void, rounds: number): number {
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < NUM_RUNS; i++) {
    const begin = performance.now();
    for (let round = 0; round < rounds; round++) call();
    best = Math.min(best, performance.now() - begin);
  }
  return (1000 * best) / rounds;
}

async function measureAll(engine: MpiEngine, sizes: readonly number[]): Promise<Measured[]> {
  const found: Measured[] = [];
  for (const [name, kind] of collectiveKinds) {
    for (const bytes of sizes) {
      const loop = collectiveLoop(engine, kind, bytes);
      const microseconds = await timeEngine(loop.run, loop.rounds);
      const own = timeStraight(straight.own(kind, bytes), loop.rounds);
      const messages = timeStraight(straight.messages(kind, bytes), loop.rounds);
      found.push({ name, bytes, microseconds, own, messages });
      loop.release();
    }
  }
  return found;
}

// The workers' code is still being optimised while it first runs.
await measureAll(engine, collectiveSizes.slice(0, 1));
const measured = await measureAll(engine, collectiveSizes);
await engine.close();
if (index === 0) console.log(JSON.stringify(measured));
