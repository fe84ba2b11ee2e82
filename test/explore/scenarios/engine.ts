/** A whole threads engine: its main thread and its devices, from uploads to results, failures and the end. */
import type { CompiledProgram } from "../../../src/compiler/steps.js";
import { blockOf, WORDS } from "../../../src/engines/collectives/collectiveWords.js";
import { deviceBase, WORD } from "../../../src/engines/protocol/control.js";
import type { Fault } from "../../../src/engines/protocol/faults.js";
import { ThreadsEngine } from "../../../src/engines/threads/engine.js";
import type { DeviceThreads } from "../../../src/engines/workers/deviceThreads.js";
import type { WorkerProgram } from "../../../src/engines/workers/programs.js";
import { HostFunction } from "../../../src/ir/callbacks.js";
import type { DeviceBuffer, Executable } from "../../../src/ir/engine.js";
import { range, tensorType } from "../../../src/ir/shape.js";
import { collectiveSpec, handProgram, place } from "../../support/threadsPrograms.js";
import { label, mayRace } from "../runtime.js";
import { type Scenario, type ScenarioRun, same } from "../scenario.js";
import { resetEventLoop } from "../simulated/eventLoop.js";
import "../../../src/engines/threads/worker.js";

const type = tensorType("int32", [1]);
const mesh = (size: number) => ({ axes: [{ name: "x", size }] });
const info = (op: string) => ({ ops: [op], flops: 0, bytes: 0 });

/** Sums the input over all devices. */
const sum = (size: number): CompiledProgram =>
  handProgram("sum", [type], [type], {
    arenaBytes: 64,
    slots: [{ kind: "arena", offset: 0 }],
    collectives: [
      collectiveSpec(
        mesh(size),
        { kind: "allReduce", dtype: "int32", axes: ["x"], outer: 1, inner: 1 },
        2,
        1,
      ),
    ],
    infos: [info("copy"), info("psum")],
    steps: [
      { op: "copy", source: place(0), target: place(2), bytes: 4, info: 0 },
      { op: "start", collective: 0, info: 1 },
      { op: "done", collective: 0, info: 1 },
    ],
  });

/** Copies the input. */
const copy: CompiledProgram = handProgram("copy", [type], [type], {
  infos: [info("copy")],
  steps: [{ op: "copy", source: place(0), target: place(1), bytes: 4, info: 0 }],
});

/** Has the main thread compute the result. */
function callback(call: (x: number) => number): CompiledProgram {
  const fn = new HostFunction("f", ([x]) => [Int32Array.of(call(Number(x?.data[0])))]);
  const places = [place(0), place(1)].map((one) => ({ ...one, bytes: 4 }));
  const step = { op: "callback", callback: 0, places, numOperands: 1, calls: [true, true], info: 0 } as const;
  const program = handProgram("callback", [type], [type], { infos: [info("callback")], steps: [step] });
  return { ...program, callbacks: [{ fn, ins: [type], outs: [type] }] };
}

/** An engine, with its words known to the machine. */
function open(numDevices: number, faults: readonly Fault[], deadlineMs: number): ThreadsEngine {
  const engine = new ThreadsEngine(
    { numDevices, memoryBytes: 64 * 24, gemm: "wasm", threadsPerDevice: 1, deadlineMs },
    { faults },
  );
  const pool: object = Reflect.get(engine, "pool");
  const control: Int32Array = Reflect.get(pool, "control");
  const threads: DeviceThreads = Reflect.get(pool, "threads");
  label(control, "control");
  for (const device of range(numDevices)) {
    // The main thread reads how far a device is for messages and for its watchdog, not to rely on it.
    for (const word of [WORD.step, WORD.progress, WORD.loops]) mayRace(control, deviceBase(device) + word);
    // Readers of a flight recorder may find the newest record half written.
    const flight = threads.flightOf(device);
    label(flight, "flight");
    for (let i = 0; i < flight.length; i++) mayRace(flight, i);
  }
  return engine;
}

function load(
  engine: ThreadsEngine,
  program: CompiledProgram,
  numDevices: number,
  donated = false,
): Executable {
  const devices = range(numDevices);
  const executable = engine.load(program, { mesh: mesh(numDevices), devices, donated: [donated] });
  const programs: ReadonlyMap<number, WorkerProgram> = Reflect.get(engine, "programs");
  for (const { words, compiled } of programs.values()) {
    for (const index of range(compiled.collectives.length)) {
      // Devices that wait compare stamps that their peers may be writing.
      for (const position of devices) {
        const block = blockOf(index, numDevices, position);
        for (let i = 0; i < 4; i++) mayRace(words, block + WORDS.stamps + i);
      }
    }
  }
  return executable;
}

const upload = (engine: ThreadsEngine, values: readonly number[]): DeviceBuffer[] =>
  values.map((value, device) => engine.upload(type, Int32Array.of(value), device));

async function firstOf(engine: ThreadsEngine, buffer: DeviceBuffer | undefined): Promise<number> {
  const data = await engine.download(buffer as DeviceBuffer);
  return (data as Int32Array)[0] ?? 0;
}

interface Setting {
  readonly numDevices: number;
  readonly faults?: readonly Fault[];
  readonly deadlineMs?: number;
  /** Whether the failure is found by waiting. */
  readonly waits?: boolean;
}

function withEngine(
  { numDevices, faults = [], deadlineMs = 1e9, waits = false }: Setting,
  main: (engine: ThreadsEngine) => Promise<void>,
) {
  return (): ScenarioRun => {
    resetEventLoop();
    return {
      threads: {
        main: async () => {
          const engine = open(numDevices, faults, deadlineMs);
          await main(engine);
          await engine.close();
        },
      },
      timeoutsAreExpected: waits,
    };
  };
}

/** Runs a sum twice, one on the result of the other, and reads both. */
async function sums(engine: ThreadsEngine): Promise<void> {
  const executable = load(engine, sum(2), 2);
  const [first = []] = executable.execute([upload(engine, [3, 4])]);
  const [second = []] = executable.execute([first]);
  same(await firstOf(engine, second[1]), 14, "the second sum on device 1");
  same(await firstOf(engine, first[0]), 7, "the first sum on device 0");
}

/** Sums only where the input is 0: the devices diverge. */
const maybeSum = (size: number): CompiledProgram => {
  const program = sum(size);
  const step = { op: "cond", index: place(0), branches: [program.steps, []], info: 0 } as const;
  return { ...program, name: "maybe", steps: [step] };
};

/** Frees and reuses memory while the runs that use it are still queued. */
async function reuse(engine: ThreadsEngine): Promise<void> {
  const executable = load(engine, copy, 1);
  const results: DeviceBuffer[] = [];
  for (let i = 1; i <= 4; i++) {
    const [input] = upload(engine, [i]);
    const [[output] = []] = executable.execute([[input as DeviceBuffer]]);
    engine.release(input as DeviceBuffer);
    results.push(output as DeviceBuffer);
  }
  for (const [i, result] of results.entries()) {
    same(await firstOf(engine, result), i + 1, `result ${i}`);
    engine.release(result);
  }
}

/** Joins free blocks that queued runs still use, and splits them. */
async function joined(engine: ThreadsEngine): Promise<void> {
  const large = tensorType("int32", [32]);
  const executable = load(engine, copy, 1);
  const run = (input: DeviceBuffer | undefined) => executable.execute([[input as DeviceBuffer]])[0]?.[0];
  const free = (...buffers: (DeviceBuffer | undefined)[]) => {
    for (const buffer of buffers) engine.release(buffer as DeviceBuffer);
  };
  const [unused, first, , second, third] = range(5).map((i) => upload(engine, [i])[0]);
  const one = run(first);
  free(unused, first);
  // It fits where the run may still read.
  const other = engine.upload(large, new Int32Array(32).fill(-1), 0);
  const [two, three] = [run(second), run(third)];
  free(second, third);
  const four = run(two);
  const [last] = upload(engine, [9]);
  const values: number[] = [];
  for (const buffer of [one, two, three, four, last, other]) values.push(await firstOf(engine, buffer));
  same(values, [1, 3, 4, 3, 9, -1], "results");
}

/** Hands a buffer on from run to run. */
async function donation(engine: ThreadsEngine): Promise<void> {
  const donated = handProgram("donated", [type], [type], {
    heirs: [0],
    infos: [info("copy")],
    steps: [{ op: "copy", source: place(0), target: place(1), bytes: 4, info: 0 }],
  });
  const executable = load(engine, donated, 1, true);
  let buffer = upload(engine, [5])[0] as DeviceBuffer;
  for (let i = 0; i < 3; i++) {
    const [[next] = []] = executable.execute([[buffer]]);
    buffer = next as DeviceBuffer;
  }
  same(await firstOf(engine, buffer), 5, "what was handed on");
}

/** Copies between devices, and releases the source before the copy is made. */
async function transfers(engine: ThreadsEngine): Promise<void> {
  const executable = load(engine, copy, 1);
  const [[there] = []] = executable.execute([[upload(engine, [8])[0] as DeviceBuffer]]);
  const here = engine.transfer(there as DeviceBuffer, 1);
  engine.release(there as DeviceBuffer);
  // This run could take the memory of the source.
  const [[other] = []] = executable.execute([[upload(engine, [9])[0] as DeviceBuffer]]);
  const back = engine.transfer(here, 0);
  same(await firstOf(engine, back), 8, "what was copied");
  same(await firstOf(engine, other), 9, "what was computed meanwhile");
}

/** Has devices call the host, and unloads the program while it runs. */
async function callbacks(engine: ThreadsEngine): Promise<void> {
  const executable = load(
    engine,
    callback((x) => x + 1),
    2,
  );
  const [first = []] = executable.execute([upload(engine, [1, 2])]);
  const [second = []] = executable.execute([first]);
  executable.release();
  same(await firstOf(engine, second[0]), 3, "device 0");
  same(await firstOf(engine, second[1]), 4, "device 1");
}

/** Blocks the main thread until a value is there. */
async function blocking(engine: ThreadsEngine): Promise<void> {
  const executable = load(
    engine,
    callback((x) => 2 * x),
    2,
  );
  let buffers = upload(engine, [1, 2]);
  for (let i = 0; i < 4; i++) [buffers = []] = executable.execute([buffers]);
  const data = engine.readNow?.(buffers[1] as DeviceBuffer) as Int32Array;
  same(data[0], 32, "device 1");
}

/**
 * Expects every pending and later use to fail with one error, which says what failed.
 *
 * @param blocks whether the main thread blocks meanwhile, so that it hears no events
 */
function failing(
  program: () => CompiledProgram,
  named: RegExp,
  { blocks = false, inputs = [3, 4] } = {},
): (engine: ThreadsEngine) => Promise<void> {
  return async (engine) => {
    const errors: unknown[] = [];
    const attempt = async (use: () => unknown) => {
      try {
        await use();
      } catch (error) {
        errors.push(error);
      }
    };
    await attempt(async () => {
      const executable = load(engine, program(), 2);
      const [first = []] = executable.execute([upload(engine, inputs)]);
      if (blocks) await attempt(() => engine.readNow?.(first[0] as DeviceBuffer));
      // What was started before the failure was found fails when it is read, the rest at once.
      await attempt(() => firstOf(engine, executable.execute([first])[0]?.[0]));
      await attempt(() => firstOf(engine, first[0]));
      await attempt(() => executable.execute([first]));
    });
    const [error] = errors;
    same(errors.length > 0, true, "something fails");
    same(new Set(errors).size, 1, `one error tells it: ${errors.map(String).join(" / ")}`);
    const text = error instanceof Error ? error.message : String(error);
    same(named.test(text), true, `it says what failed: ${text}`);
  };
}

const fault = (kind: Fault["kind"], program: string, step: number): Fault => ({
  device: 1,
  kind,
  program,
  step,
});

export const scenarios: readonly Scenario[] = [
  { name: "engine: sums on two devices", setUp: withEngine({ numDevices: 2 }, sums) },
  { name: "engine: memory is reused while runs are queued", setUp: withEngine({ numDevices: 1 }, reuse) },
  { name: "engine: free memory is joined and split", setUp: withEngine({ numDevices: 1 }, joined) },
  { name: "engine: donated buffers", setUp: withEngine({ numDevices: 1 }, donation) },
  { name: "engine: copies between devices", setUp: withEngine({ numDevices: 2 }, transfers) },
  { name: "engine: host callbacks", setUp: withEngine({ numDevices: 2 }, callbacks) },
  { name: "engine: a main thread that blocks", setUp: withEngine({ numDevices: 2 }, blocking) },
  {
    name: "engine: a device throws while its peer waits",
    setUp: withEngine(
      { numDevices: 2, faults: [fault("throw", "sum", 1)] },
      failing(() => sum(2), /device 1, program "sum", step 1 \(psum\).*injected fault/),
    ),
  },
  {
    name: "engine: a device exits",
    setUp: withEngine(
      { numDevices: 2, faults: [fault("exit", "sum", 0)] },
      failing(() => sum(2), /device 1, program "sum", step 0 \(copy\): its worker (exited|has ended)/),
    ),
  },
  {
    name: "engine: a device exits while the main thread blocks",
    setUp: withEngine(
      // The main thread looks every 20 ms whether a device has ended.
      { numDevices: 2, faults: [fault("exit", "sum", 1)], waits: true },
      failing(() => sum(2), /device 1, program "sum", step 1 \(psum\): its worker (exited|has ended)/, {
        blocks: true,
      }),
    ),
  },
  {
    name: "engine: devices diverge",
    setUp: withEngine(
      { numDevices: 2, waits: true },
      failing(() => maybeSum(2), /"maybe" came to different collectives.*device 0 .*device 1 /s, {
        inputs: [0, 1],
      }),
    ),
  },
  {
    name: "engine: a device hangs",
    setUp: withEngine(
      { numDevices: 2, faults: [fault("hang", "sum", 1)], deadlineMs: 1000, waits: true },
      failing(() => sum(2), /device 1, program "sum", step 1 \(psum\): it made no progress for 1000 ms/),
    ),
  },
  {
    name: "engine: a host callback throws",
    setUp: withEngine(
      { numDevices: 2 },
      failing(
        () =>
          callback(() => {
            throw new Error("of the host");
          }),
        /device [01], program "callback", step 0 \(callback\): the host callback that it called threw .*of the host/,
      ),
    ),
  },
];
