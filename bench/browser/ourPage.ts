/** Our engines in the benchmark's page: the works of `otherWorks.mjs`, over all devices of a mesh. */
import { devicePut, grad, jit, Mesh, NamedSharding, np, P, random, type Tensor } from "shardwise";
import { createThreadsEngine } from "shardwise/engines";
import { createInlineEngine } from "../../src/engines/inline/engine.js";
import type { Engine } from "../../src/ir/engine.js";
import { best, stepShapes } from "../otherWorks.mjs";
import { adamw, gelu, layerNorm, softmax } from "../works.js";

type Shape = readonly number[];

/** A work: the shapes of its inputs, and which of them are split over devices by rows; all of them by default. */
interface Work {
  readonly shapes: readonly Shape[];
  readonly run: (...inputs: Tensor[]) => Tensor | readonly Tensor[];
  readonly isSplit?: (input: number) => boolean;
}

function trainingStep(x: Tensor, y: Tensor, a: Tensor, b: Tensor, ...moments: Tensor[]): Tensor[] {
  const loss = ([a, b]: [Tensor, Tensor]) => np.mean(np.square(np.matmul(gelu(np.matmul(x, a)), b).sub(y)));
  const [da, db] = grad(loss)([a, b]);
  const [ma, mb, va, vb] = moments as [Tensor, Tensor, Tensor, Tensor];
  return [...adamw(a, ma, va, da), ...adamw(b, mb, vb, db)];
}

function workOf(name: string, rows: number, columns: number): Work {
  const square = [rows, columns];
  const side = Number(/^matmul (\d+)$/.exec(name)?.[1] ?? 0);
  if (side > 0) {
    const shape = [side, side];
    return { shapes: [shape, shape], run: (a, b) => np.matmul(a, b), isSplit: (input) => input === 0 };
  }
  const works: Readonly<Record<string, Work>> = {
    "tanh-gelu": { shapes: [square], run: gelu },
    softmax: { shapes: [square], run: softmax },
    "layer norm": { shapes: [square], run: layerNorm },
    "AdamW update": { shapes: [square, square, square, square], run: adamw },
    "training step": { shapes: stepShapes, run: trainingStep, isSplit: (input) => input < 2 },
  };
  const found = works[name];
  if (found === undefined) throw new Error(`there is no work ${name}`);
  return found;
}

/** The shortest time of a work on one of our engines, in milliseconds; Node computes it, too. */
export async function timeOurs(
  engineName: "threads" | "one thread",
  name: string,
  rows: number,
  columns: number,
  milliseconds: number,
  numCores = navigator.hardwareConcurrency,
): Promise<number> {
  const devices = engineName === "threads" ? numCores : 1;
  const engine: Engine =
    engineName === "threads"
      ? createThreadsEngine({ numDevices: devices, threadsPerDevice: 1 })
      : createInlineEngine();
  try {
    const mesh = Mesh.create({ x: devices }, { engine });
    const { shapes, run, isSplit = () => true } = workOf(name, rows, columns);
    const inputs = await Promise.all(
      shapes.map((shape, i) =>
        devicePut(random.uniform(random.key(i), shape), new NamedSharding(mesh, isSplit(i) ? P("x") : P())),
      ),
    );
    const compiled = jit(run as (...inputs: Tensor[]) => Tensor[], { mesh });
    return await best(async () => {
      for (const result of [compiled(...inputs)].flat()) {
        await result.ready();
        result.dispose();
      }
    }, milliseconds);
  } finally {
    await engine.close();
  }
}

Object.assign(globalThis, { timeOurs });
