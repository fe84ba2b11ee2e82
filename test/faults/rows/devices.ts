import { readdirSync } from "node:fs";
import { createThreadsEngine, findBlame } from "../../../src/engines/index.js";
import { ThreadsEngine } from "../../../src/engines/threads/engine.js";
import { jit, lax, Mesh, np, P, shardMap, type Tensor } from "../../../src/index.js";
import { range, tensorType } from "../../../src/ir/shape.js";
import { collectiveSpec, handProgram, place } from "../../support/threadsPrograms.js";
import type { FaultArea } from "../row.js";

const shape = { axes: [{ name: "x", size: 3 }] };
const type = tensorType("float32", [5000]);
const infos = [{ ops: ["psum"], source: { text: "model.ts:4:9" }, flops: 0, bytes: 0 }];
const program = handProgram("train", [tensorType("int32", [1])], [type], {
  arenaBytes: 80_000,
  slots: [
    { kind: "arena", offset: 0 },
    { kind: "arena", offset: 20_032 },
  ],
  collectives: [
    collectiveSpec(shape, { kind: "allReduce", dtype: "float32", axes: ["x"], outer: 1, inner: 5000 }, 2, 1),
    collectiveSpec(shape, { kind: "allGather", dtype: "float32", axes: ["x"], outer: 1, inner: 1250 }, 2, 3),
  ],
  infos,
  steps: [
    {
      op: "cond",
      index: place(0),
      branches: [
        [],
        [
          { op: "start", collective: 0, info: 0 },
          { op: "done", collective: 0, info: 0 },
        ],
        [
          { op: "start", collective: 1, info: 0 },
          { op: "done", collective: 1, info: 0 },
        ],
      ],
      info: 0,
    },
  ],
});

type Test = ConstructorParameters<typeof ThreadsEngine>[1];

/** Runs the program with these branches on each device, run after run. */
async function branches(
  runs: readonly (readonly number[])[],
  test: Test = {},
  deadlineMs = 20_000,
): Promise<string> {
  const engine = new ThreadsEngine({ numDevices: 3, deadlineMs }, test);
  try {
    const run = engine.load(program, { mesh: shape, devices: range(3) });
    const outputs = runs.map((choices) =>
      run.execute([
        choices.map((choice, d) => engine.upload(tensorType("int32", [1]), new Int32Array([choice]), d)),
      ]),
    );
    await Promise.all((outputs.at(-1)?.[0] ?? []).map((buffer) => engine.download(buffer)));
    return "no failure";
  } finally {
    const blamed = findBlame([engine.flightRecording("a fault")]).devices;
    await engine.close();
    if (blamed.length > 2) console.error(`blamed ${blamed}`);
  }
}

const line = () =>
  Mesh.create({ i: 2 }, { engine: createThreadsEngine({ numDevices: 2, memoryBytes: 2 ** 24 }) });
const decided = (decide: (v: Tensor) => Tensor) => () => {
  const mesh = line();
  const inside = (v: Tensor) =>
    lax.cond(
      decide(v),
      (u: Tensor) => lax.psum(u, "i"),
      (u: Tensor) => u,
      v,
    );
  try {
    return shardMap(inside, { mesh, inSpecs: P("i"), outSpecs: P("i") })(np.ones([4]));
  } finally {
    void mesh.engine.close();
  }
};

/** Devices that fail, part or wait. */
export const devices: FaultArea = {
  title: "Devices",
  rows: [
    {
      fault: "a device throws in a step",
      sees: /device 1, program "train", step \d.*threw RangeError/,
      act: () => branches([[1, 1, 1]], { faults: [{ device: 1, kind: "throw", program: "train", step: 0 }] }),
    },
    {
      fault: "a device's thread exits",
      sees: /device 1.*exited with code 0/,
      act: () => branches([[1, 1, 1]], { faults: [{ device: 1, kind: "exit", program: "train", step: 0 }] }),
    },
    {
      fault: "a device hangs (deadline 1.5 s)",
      sees: /device 1.*no progress for 1500 ms/,
      act: () =>
        branches([[1, 1, 1]], { faults: [{ device: 1, kind: "hang", program: "train", step: 0 }] }, 1500),
    },
    {
      fault: "a device leaves a sum out",
      sees: /came to different collectives[\s\S]*device 1 +run 2/,
      act: () =>
        branches([
          [1, 1, 1],
          [1, 0, 1],
        ]),
    },
    {
      fault: "a device sums in the next run what others sum now",
      sees: /came to different collectives/,
      act: () =>
        branches([
          [1, 0, 1],
          [1, 1, 1],
          [1, 1, 1],
        ]),
    },
    {
      fault: "a device gathers what others sum",
      sees: /came to different collectives[\s\S]*allGather/,
      act: () => branches([[1, 1, 2]]),
    },
    {
      fault: "devices that decide alike, for comparison",
      sees: /no failure/,
      act: () =>
        branches([
          [1, 1, 1],
          [0, 0, 0],
          [2, 2, 2],
        ]),
    },
    {
      fault: "a `cond` on `axisIndex` around a `psum`",
      sees: /predicate differs along axis "i", over which psum at/,
      act: decided(() => lax.axisIndex("i").eq(0)),
    },
    {
      fault: "a `cond` on each device's own data around a `psum`",
      sees: /predicate differs along axis "i"/,
      act: decided((v) => np.sum(v).gt(1)),
    },
    {
      fault: "a program on an engine that is closed",
      sees: /closed/,
      act: async () => {
        const engine = createThreadsEngine({ numDevices: 1, memoryBytes: 2 ** 24 });
        await engine.close();
        return engine.upload(type, new Float32Array(5000), 0);
      },
    },
    {
      fault: "more memory than a device has",
      sees: /memory/i,
      act: async () => {
        const engine = createThreadsEngine({ numDevices: 1, memoryBytes: 2 ** 20 });
        try {
          return engine.upload(tensorType("float32", [2 ** 20]), new Float32Array(2 ** 20), 0);
        } finally {
          await engine.close();
        }
      },
    },
    { fault: "`numDevices: 0`", sees: /numDevices/, act: () => createThreadsEngine({ numDevices: 0 }) },
    {
      fault: "a mesh larger than its engine",
      sees: /needs 9 different devices/,
      act: async () => {
        const engine = createThreadsEngine({ numDevices: 1, memoryBytes: 2 ** 24 });
        try {
          return Mesh.create({ i: 9 }, { engine });
        } finally {
          await engine.close();
        }
      },
    },
    {
      fault: "a device number that is not there",
      sees: /no device 7/,
      act: async () => {
        const engine = createThreadsEngine({ numDevices: 1, memoryBytes: 2 ** 24 });
        try {
          return engine.upload(type, new Float32Array(5000), 7);
        } finally {
          await engine.close();
        }
      },
    },
    {
      fault: "twelve engines opened and closed",
      sees: /threads and files as before/,
      act: async () => {
        const count = () =>
          [readdirSync("/proc/self/task").length, readdirSync("/proc/self/fd").length] as const;
        const cycle = async () => {
          const engine = createThreadsEngine({ numDevices: 2, memoryBytes: 2 ** 24 });
          await engine.ready(engine.upload(type, new Float32Array(5000), 1));
          await engine.close();
        };
        await cycle();
        const before = count();
        for (let i = 0; i < 12; i++) await cycle();
        await new Promise((resolve) => setTimeout(resolve, 300));
        const after = count();
        return after[0] <= before[0] + 2 && after[1] <= before[1] + 4
          ? "threads and files as before"
          : `${before} → ${after}`;
      },
    },
    {
      fault: "a `whileLoop` without end (deadline 2 s)",
      sees: /whileLoop has not ended for 2000 ms/,
      act: async () => {
        const engine = createThreadsEngine({ numDevices: 1, memoryBytes: 2 ** 24, deadlineMs: 2000 });
        const mesh = Mesh.create({ i: 1 }, { engine });
        try {
          return await jit(
            (v: Tensor) =>
              lax.whileLoop(
                (u: Tensor) => u.lt(2),
                (u: Tensor) => u.mul(1),
                v,
              ),
            { mesh },
          )(np.array(1)).item();
        } finally {
          await engine.close();
        }
      },
    },
  ],
};
