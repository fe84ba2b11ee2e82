/**
 * Collectives between processes of one device each, compared with MPI's own: process 0 prints the times in µs. The
 * three ways take turns, so that other load on the machine affects all of them.
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
  /** The same messages, sent directly. */
  readonly messages: number;
  /** How much more the engine takes than the messages alone, in per cent: the median of all turns. */
  readonly more: number;
  /** Half of the 95 % confidence interval of that median. */
  readonly uncertainty: number;
}

/** Number of turns, the same in every process. */
const NUM_TURNS = 60;

/** Factor by which runs are longer than those of worker threads, because starting and ending one costs more here. */
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

/** Half of the interval between the order statistics that contain the median with 95 % confidence. */
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
