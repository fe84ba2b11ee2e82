/**
 * Collectives between processes of one device each, beside MPI's own: process 0 says what both took, in µs. The three
 * ways take turns, so that whatever else the machine does meets all of them.
 */
import { createMpiEngine, type MpiEngine } from "../../src/engines/mpi/engine.js";
import { at } from "../../src/ir/shape.js";
import { collectiveKinds, collectiveLoop } from "../collectives.js";
import { median, sorted } from "../measure.js";
import { bindStraight } from "./straight.js";

/** What is measured. */
export interface Wanted {
  /** The sizes of tensors in bytes. */
  readonly sizes: readonly number[];
}

/** One collective of one size; times are medians. */
export interface Measured {
  readonly name: string;
  readonly bytes: number;
  readonly microseconds: number;
  /** The library's own collective. */
  readonly own: number;
  /** The same messages, straight. */
  readonly messages: number;
  /** How much more the engine takes than the messages alone, in per cent: the median of all turns. */
  readonly more: number;
  /** Half of the interval in which that median lies nineteen times of twenty. */
  readonly uncertainty: number;
}

/** Every process takes as many turns, however long they are. */
const NUM_TURNS = 60;

/** So much longer are runs than those of worker threads: beginning and ending one costs more here. */
const LONGER = 4;

const { sizes }: Wanted = JSON.parse(process.argv[2] ?? "{}");
const engine = createMpiEngine();
const { index, count } = engine.process;
const straight = bindStraight(index, count);

function timeStraight(call: () => void, rounds: number): number {
  const begin = performance.now();
  for (let round = 0; round < rounds; round++) call();
  return (1000 * (performance.now() - begin)) / rounds;
}

async function timeEngine({ run, rounds }: ReturnType<typeof collectiveLoop>): Promise<number> {
  const begin = performance.now();
  await run();
  return (1000 * (performance.now() - begin)) / rounds;
}

/** Half of the interval between those order statistics that hold a median with 95 %. */
function uncertaintyOf(values: readonly number[]): number {
  const list = sorted(values);
  const reach = Math.min(list.length / 2 - 1, 0.98 * Math.sqrt(list.length));
  const middle = (list.length - 1) / 2;
  return (at(list, Math.round(middle + reach)) - at(list, Math.round(middle - reach))) / 2;
}

async function measureAll(engine: MpiEngine, sizes: readonly number[], turns: number): Promise<Measured[]> {
  const found: Measured[] = [];
  for (const [name, kind] of collectiveKinds) {
    for (const bytes of sizes) {
      const loop = collectiveLoop(engine, kind, bytes, LONGER);
      const [own, messages] = [straight.own(kind, bytes), straight.messages(kind, bytes)];
      const times: { engine: number; own: number; messages: number }[] = [];
      for (let turn = 0; turn <= turns; turn++) {
        const engine = await timeEngine(loop);
        const straight = timeStraight(messages, loop.rounds);
        // The first turn touches memory and is not counted.
        const next = { engine, messages: straight, own: timeStraight(own, loop.rounds) };
        if (turn > 0) times.push(next);
      }
      const more = times.map(({ engine, messages }) => 100 * (engine / messages - 1));
      found.push({
        name,
        bytes,
        microseconds: median(times.map(({ engine }) => engine)),
        own: median(times.map(({ own }) => own)),
        messages: median(times.map(({ messages }) => messages)),
        more: median(more),
        uncertainty: uncertaintyOf(more),
      });
      loop.release();
    }
  }
  return found;
}

// The workers' code is still being optimised while it first runs.
await measureAll(engine, sizes.slice(0, 1), 4);
const measured = await measureAll(engine, sizes, NUM_TURNS);
await engine.close();
if (index === 0) console.log(JSON.stringify(measured));
