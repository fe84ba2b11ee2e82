/**
 * Code outside of `jit` on tensors made in JavaScript: our kernels on the calling thread, the interpreter, and NumPy
 * (`NUMPY_PYTHON`, or `python3`) on one thread. Then the parameters of a model, made eagerly and in `jit`.
 */
import { spawnSync } from "node:child_process";
import { performance } from "node:perf_hooks";
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

/** The least milliseconds of one call, after calls to warm up. */
function fastest(run: () => void, seconds: number): number {
  const warm = performance.now() + 200 * seconds;
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

/** The mean milliseconds of the processor for one call in a loop that drops its results, the collector included. */
function inLoop(run: () => void, seconds: number): number {
  let calls = 0;
  const loop = (until: number) => {
    for (; performance.now() < until; calls += 16) for (let i = 0; i < 16; i++) run();
  };
  // The first time round touches memory that is new to the process.
  loop(performance.now() + 500 * seconds);
  calls = 0;
  const before = process.cpuUsage();
  loop(performance.now() + 1000 * seconds);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000 / calls;
}

/** Milliseconds by name, or nothing without a Python that has NumPy. */
function runNumpy(): Readonly<Record<string, number>> {
  const python = process.env.NUMPY_PYTHON ?? "python3";
  const script = fileURLToPath(new URL("./eager.py", import.meta.url));
  const env = { ...process.env, OPENBLAS_NUM_THREADS: "1", MKL_NUM_THREADS: "1", OMP_NUM_THREADS: "1" };
  const { status, stdout } = spawnSync(python, [script], { encoding: "utf8", env });
  return status === 0 ? (JSON.parse(stdout) as Record<string, number>) : {};
}

function interpreted(make: Work["make"]): number {
  const before = currentRuntime();
  installRuntime(createRuntime(createReferenceEngine()));
  try {
    return fastest(make(), 0.2);
  } finally {
    installRuntime(before);
  }
}

function measure({ name, make }: Work, numpy: Readonly<Record<string, number>>): Row {
  const run = make();
  const first = performance.now();
  run().dispose();
  const start = performance.now() - first;
  const milliseconds = fastest(() => run().dispose(), 0.5);
  const theirs = numpy[name] ?? null;
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
  const numpy = runNumpy();
  return {
    "eager ops, one thread": works.map((work) => measure(work, numpy)),
    "parameters of a model": await initialisation(),
  };
}
