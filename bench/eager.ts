/**
 * Code outside of `jit` on tensors made in JavaScript: our kernels on the calling thread, the interpreter, and NumPy
 * (`NUMPY_PYTHON`, or `python3`) on one thread. Ours and NumPy's take turns, so that other load on the machine affects
 * both. Then the parameters of a model, made eagerly and in `jit`.
 */
import { spawn } from "node:child_process";
import { performance } from "node:perf_hooks";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { jit, np, random, type Tensor, tree } from "shardwise";
import { createReferenceEngine } from "shardwise/engines";
import * as nn from "shardwise/nn";
import { createRuntime } from "../src/spmd/run/execute.js";
import { currentRuntime, installRuntime } from "../src/trace/runtime.js";
import type { Report, Row } from "./measure.js";

/** An op by the name that it has in `bench/eager.py` too. */
interface Work {
  readonly name: string;
  readonly make: () => () => Tensor;
}

const sizes = [64, 4096, 65_536, 1 << 20];

function elementwise(name: string, run: (x: Tensor, square: Tensor, key: Tensor) => Tensor): Work[] {
  return sizes.map((n) => ({
    name: `${name} ${n}`,
    make: () => {
      const x = random.normal(random.key(0), [n]);
      const square = x.reshape([2 ** Math.floor((Math.log2(n) + 1) / 2), -1]);
      const key = random.key(1);
      return () => run(x, square, key);
    },
  }));
}

const works: readonly Work[] = [
  ...elementwise("add", (x) => x.add(x)),
  ...elementwise("mul", (x) => x.mul(x)),
  ...elementwise("exp", (x) => np.exp(x)),
  ...elementwise("tanh", (x) => np.tanh(x)),
  ...elementwise("sum", (x) => np.sum(x)),
  ...elementwise("transpose", (_, square) => np.transpose(square)),
  ...elementwise("random.normal", (x, _, key) => random.normal(key, x.shape)),
  ...[256, 512].map((n) => ({
    name: `matmul ${n}`,
    make: () => {
      const a = random.normal(random.key(0), [n, n]);
      return () => np.matmul(a, a);
    },
  })),
];

/** Shortest duration of a call in milliseconds, after a warm-up. */
function fastest(run: () => void, seconds: number): number {
  const warm = performance.now() + 500 * seconds;
  do run();
  while (performance.now() < warm);
  let least = Number.POSITIVE_INFINITY;
  const end = performance.now() + 1000 * seconds;
  do {
    const start = performance.now();
    run();
    least = Math.min(least, performance.now() - start);
  } while (performance.now() < end);
  return least;
}

/** Mean CPU time of a call in milliseconds, in a loop that drops its results; includes garbage collection. */
function inLoop(run: () => void, seconds: number): number {
  let calls = 0;
  const loop = (until: number) => {
    for (; performance.now() < until; calls += 16) for (let i = 0; i < 16; i++) run();
  };
  // The first round touches new memory of the process.
  loop(performance.now() + 500 * seconds);
  calls = 0;
  const before = process.cpuUsage();
  loop(performance.now() + 1000 * seconds);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000 / calls;
}

/** NumPy in a separate process: the shortest time of an op in milliseconds, if there is a Python with NumPy. */
interface Numpy {
  readonly time: (name: string) => Promise<number | null>;
  readonly close: () => void;
}

function openNumpy(): Numpy {
  const python = process.env.NUMPY_PYTHON ?? "python3";
  const script = fileURLToPath(new URL("./eager.py", import.meta.url));
  const env = { ...process.env, OPENBLAS_NUM_THREADS: "1", MKL_NUM_THREADS: "1", OMP_NUM_THREADS: "1" };
  const child = spawn(python, [script], { env, stdio: ["pipe", "pipe", "ignore"] });
  // Without Python, writing to the process fails.
  child.on("error", () => {});
  child.stdin.on("error", () => {});
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    time: async (name) => {
      child.stdin.write(`${name}\n`);
      const { done, value } = await lines.next();
      return done ? null : Number(value);
    },
    close: () => child.stdin.end(),
  };
}

const rounds = 4;

function interpreted(make: Work["make"]): number {
  const before = currentRuntime();
  installRuntime(createRuntime(createReferenceEngine()));
  try {
    return fastest(make(), 0.2);
  } finally {
    installRuntime(before);
  }
}

async function measure({ name, make }: Work, numpy: Numpy): Promise<Row> {
  const run = make();
  const first = performance.now();
  run().dispose();
  const start = performance.now() - first;
  let milliseconds = Number.POSITIVE_INFINITY;
  let theirs: number | null = null;
  for (let round = 0; round < rounds; round++) {
    milliseconds = Math.min(
      milliseconds,
      fastest(() => run().dispose(), 0.15),
    );
    const other = await numpy.time(name);
    if (other !== null) theirs = Math.min(theirs ?? other, other);
  }
  return {
    op: name,
    "first ms": start,
    ms: milliseconds,
    "CPU ms in a loop without dispose": inLoop(run, 0.5),
    "interpreter ms": interpreted(make),
    "NumPy ms": theirs,
    "times NumPy's": theirs === null ? null : milliseconds / theirs,
  };
}

const Mlp = nn.module("Mlp", ({ width }: { readonly width: number }) => (x: Tensor) => {
  let y = x;
  for (let i = 0; i < 8; i++) y = np.tanh(nn.Dense({ features: width })(y));
  return y;
});

/** Makes the parameters of eight layers of 1024 in three ways. */
async function initialisation(): Promise<Row[]> {
  const model = Mlp({ width: 1024 });
  const x = np.ones([8, 1024]);
  const init = (seed: number) => model.init(random.key(seed), x);
  const time = async (run: () => unknown) => {
    const start = performance.now();
    await Promise.all(tree.leaves(run()).map((leaf) => (leaf as Tensor).ready()));
    return performance.now() - start;
  };
  const row = async (how: string, run: (seed: number) => unknown): Promise<Row> => ({
    how,
    "parameters (millions)": (8 * (1024 * 1024 + 1024)) / 1e6,
    "first ms": await time(() => run(0)),
    "second ms": await time(() => run(1)),
  });
  const jitted = jit((rng: Tensor) => model.init(rng, x));
  return [await row("eager", init), await row("jit", (seed) => jitted(random.key(seed)))];
}

/** Runs the benchmark. */
export async function eager(): Promise<Report> {
  const numpy = openNumpy();
  const rows: Row[] = [];
  for (const work of works) rows.push(await measure(work, numpy));
  numpy.close();
  return { "eager ops, one thread": rows, "parameters of a model": await initialisation() };
}
