/** Sizes: programs that are long, patterns and files that never end, limits of containers, what is dropped. */
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createThreadsEngine } from "../../../src/engines/index.js";
import { availableMemory } from "../../../src/engines/system/machineMemory.js";
import { grad, jit, Mesh, np, type Tensor } from "../../../src/index.js";
import { parseTokenizer } from "../../../src/train/index.js";
import { ended } from "../../support/cliProcess.js";
import { userEnvironment } from "../../support/environment.js";
import type { FaultArea, FaultRow } from "../row.js";

/** Runs something with a mesh of one device. */
async function onDevice<T>(work: (mesh: Mesh) => Promise<T>): Promise<T> {
  const engine = createThreadsEngine({ numDevices: 1, memoryBytes: 2 ** 26 });
  try {
    return await work(Mesh.create({ i: 1 }, { engine }));
  } finally {
    await engine.close();
  }
}

/** Compiles and runs a long program; fails unless that takes few seconds of this process. */
const long = (fault: string, seconds: number, run: (mesh: Mesh) => Tensor): FaultRow => ({
  fault,
  sees: /^compiled and run in time: -?[\d.e+]+/,
  act: () =>
    onDevice(async (mesh) => {
      const begin = process.cpuUsage();
      const value = await run(mesh).item();
      const { user } = process.cpuUsage(begin);
      return user < seconds * 1e6 ? `compiled and run in time: ${value}` : `it took ${user / 1e6} s`;
    }),
});

const repeat = (x: Tensor, times: number, step: (y: Tensor) => Tensor): Tensor => {
  let y = x;
  for (let i = 0; i < times; i++) y = step(y);
  return y;
};

const programs: readonly FaultRow[] = [
  long("1,600 chained `tanh`", 10, (mesh) =>
    jit((x: Tensor) => np.sum(repeat(x, 1600, np.tanh)), { mesh })(np.ones([4])),
  ),
  long("the gradient of 1,600 chained `tanh`", 10, (mesh) =>
    jit((x: Tensor) => np.sum(grad((y: Tensor) => np.sum(repeat(y, 1600, np.tanh)))(x)), { mesh })(
      np.ones([4]),
    ),
  ),
  long("the sum of 1,000 inputs", 10, (mesh) =>
    jit((...all: Tensor[]) => np.sum(all.reduce((a, b) => a.add(b))), { mesh })(
      ...Array.from({ length: 1000 }, () => np.ones([8])),
    ),
  ),
  long("20,000 equations", 10, (mesh) =>
    jit((x: Tensor) => np.sum(repeat(x, 10_000, (y) => np.sin(y).add(1))), { mesh })(np.ones([4])),
  ),
  {
    fault: "the mean of 33,554,432 ones",
    sees: /^1$/,
    act: () =>
      onDevice((mesh) =>
        jit((x: Tensor) => np.mean(np.broadcastTo(x, [2 ** 25, 2]), 0), { mesh })(np.ones([2]))
          .get(0)
          .item(),
      ),
  },
  {
    fault: "300 compiled functions that are dropped",
    sees: /^what they held is freed/,
    act: () =>
      onDevice(async (mesh) => {
        setFlagsFromString("--expose-gc");
        const collect: () => void = runInNewContext("gc");
        const held: WeakRef<object>[] = [];
        for (let i = 0; i < 300; i++) {
          const closed = { big: new Float64Array(1000) };
          held.push(new WeakRef(closed));
          const fn = jit((x: Tensor) => x.mul(i + (closed.big[0] ?? 0)), { mesh });
          await fn(np.ones([2])).js();
        }
        for (let i = 0; i < 5; i++) {
          await new Promise((resolve) => setTimeout(resolve, 20));
          collect();
        }
        const alive = held.filter((one) => one.deref() !== undefined).length;
        return alive <= 64 ? "what they held is freed" : `${alive} of 300 are alive`;
      }),
  },
];

/** A tokenizer.json that splits by a pattern, several times. */
const splitBy = (pattern: string, times = 1) =>
  JSON.stringify({
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        ...Array.from({ length: times }, () => ({
          type: "Split",
          pattern: { Regex: pattern },
          behavior: "Isolated",
          invert: false,
        })),
        { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { type: "BPE", dropout: null, unk_token: null, vocab: { a: 0, b: 1 }, merges: [] },
  });

const tokenizers: readonly FaultRow[] = [
  {
    fault: "a `tokenizer.json` whose pattern backtracks without end",
    sees: /did not cut a text of 64 characters within 15\d\d ms/,
    act: () => parseTokenizer(splitBy("(a+)+b")).encode("a".repeat(64)),
  },
  {
    fault: "a `tokenizer.json` of 5,000 splits",
    sees: /has 5001 steps, more than 64/,
    act: () => parseTokenizer(splitBy("x", 5000)),
  },
];

/** A container, as its files tell a process of it. */
function container(folder: string, files: Readonly<Record<string, string>>): string {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(folder, name, ".."), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  const { bytes, limit } = availableMemory(folder);
  return `${bytes} bytes by ${limit}`;
}

const limits: readonly FaultRow[] = [
  {
    fault: "a container of 512 MiB (control groups, version 2)",
    sees: /^402653184 bytes by the container's limit of 512 MiB/,
    act: ({ folder }) =>
      container(folder, {
        "proc/self/cgroup": "0::/job\n",
        "sys/fs/cgroup/job/memory.max": `${2 ** 29}\n`,
        "sys/fs/cgroup/job/memory.current": `${2 ** 27}\n`,
      }),
  },
  {
    fault: "a container of 512 MiB (control groups, version 1)",
    sees: /^402653184 bytes by the container's limit of 512 MiB/,
    act: ({ folder }) =>
      container(folder, {
        "proc/self/cgroup": "4:memory:/job\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": `${2 ** 29}\n`,
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": `${2 ** 27}\n`,
      }),
  },
];

/** A program that loads one entry point and computes with it. */
const alone: Readonly<Record<string, string>> = {
  "shardwise/train": `const { tokensInMemory, openBatches } = entry;
const batches = openBatches(tokensInMemory(Int32Array.from({ length: 99 }, (_, i) => i % 9), 9), { sequenceLength: 4, batchSize: 2 });
console.log((await batches.next()).length);`,
  "shardwise/nn": "console.log(await entry.relu(3).item());",
  "shardwise/optim": "console.log(await entry.constant(3)(0));",
  "shardwise/random": "console.log((await entry.normal(entry.key(0), [3]).js()).length);",
  "shardwise/parallel": "console.log(entry.initializeMesh({}).size);",
};

const entries: readonly FaultRow[] = Object.entries(alone).map(([name, program]) => ({
  fault: `\`${name}\` as the only import`,
  sees: /^exit 0: /,
  act: async ({ folder }) => {
    const file = join(folder, "alone.mjs");
    writeFileSync(file, `const entry = await import("${name}");\n${program}\n`);
    const loader = new URL("../../../scripts/typescript.mjs", import.meta.url).href;
    const child = spawn(process.execPath, ["--import", loader, file], { cwd: folder, env: userEnvironment });
    const { code, signal, out, err } = await ended(child);
    return `exit ${code ?? signal}: ${err}${out}`;
  },
}));

/** What is large or without end. */
export const sizes: FaultArea = {
  title: "Sizes and limits",
  rows: [...programs, ...tokenizers, ...limits, ...entries],
};
