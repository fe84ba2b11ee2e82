/** The training job of the simulated cluster: a small network whose weights are split over all devices. */
import { grad, Mesh, NamedSharding, np, P, type Tensor } from "shardwise";
import { hostEngine } from "../../../src/engines/host.js";
import type { MeshShape } from "../../../src/ir/mesh.js";
import type { Program } from "../../../src/ir/program.js";
import { range, type Shape, sizeOf, type TensorType } from "../../../src/ir/shape.js";
import { partitionCall } from "../../../src/spmd/run/call.js";
import { randomFrom } from "../search.js";
import { DEADLINE_MS } from "./faults.js";

/** What all processes of a job know. */
export interface Job {
  readonly numDevices: number;
  readonly deadlineMs: number;
  readonly memoryBytes: number;
  readonly numSteps: number;
  readonly saveEvery: number;
  /** Takes the blocks of the state and of a batch; gives the loss and the blocks of the next state. */
  readonly program: Program;
  /** What a process that has diverged runs instead. */
  readonly otherProgram: Program;
  readonly mesh: MeshShape;
  readonly state: readonly StateTensor[];
  readonly initial: Readonly<Record<string, readonly number[]>>;
  readonly batch: TensorType;
  batchOf(step: number, device: number): Float32Array;
  blockOf(values: readonly number[], device: number): Float32Array;
}

export interface StateTensor {
  readonly name: string;
  readonly whole: { readonly dtype: "float32"; readonly shape: Shape };
  readonly block: TensorType;
}

const WIDTH = 12;
const ROWS = 2;

/** A job of some devices. */
export function trainingJob(numDevices: number): Job {
  const mesh = Mesh.create({ d: numDevices }, { engine: hostEngine });
  const split = new NamedSharding(mesh, P("d"));
  const all = new NamedSharding(mesh, P());
  const lossOf = (scale: number) => (w: Tensor, v: Tensor, x: Tensor) =>
    np.mean(
      np.square(
        np
          .tanh(x.matmul(w))
          .matmul(v)
          .sub(np.sin(x.mul(scale))),
      ),
    );
  // Every device keeps all of `m`, so that its sum is formed for all.
  const step = (scale: number) => (w: Tensor, v: Tensor, m: Tensor, x: Tensor) => {
    const loss = lossOf(scale);
    const [gw, gv] = grad(loss, { argnums: [0, 1] })(w, v, x) as [Tensor, Tensor];
    const squares = np.tile(x.transpose().matmul(x), [numDevices, 1]);
    return [loss(w, v, x), w.sub(gw.mul(0.5)), v.sub(gv.mul(0.5)), m.mul(0.9).add(squares)];
  };
  const shapes = { w: [WIDTH, WIDTH], v: [WIDTH, WIDTH], m: [numDevices * WIDTH, WIDTH] };
  const args = [...Object.values(shapes), [ROWS * numDevices, WIDTH]].map((shape) => np.zeros(shape));
  const programAt = (scale: number) =>
    partitionCall(step(scale), args as [Tensor, Tensor, Tensor, Tensor], {
      mesh,
      inShardings: [split, split, split, split],
      outShardings: [all, split, split, split],
    }).program;
  const state = Object.entries(shapes).map(([name, shape]): StateTensor => {
    const [rows = 0, ...rest] = shape;
    const block = { dtype: "float32", shape: [rows / numDevices, ...rest] } as const;
    return { name, whole: { dtype: "float32", shape }, block };
  });
  const random = randomFrom(1);
  const initial = state.map(({ name, whole }) => [
    name,
    range(sizeOf(whole.shape)).map(() => Math.fround(random() - 0.5)),
  ]);
  return {
    numDevices,
    deadlineMs: DEADLINE_MS,
    memoryBytes: 3 << 20,
    numSteps: 30,
    saveEvery: 6,
    program: programAt(1),
    otherProgram: programAt(2),
    mesh: { axes: mesh.axes },
    state,
    initial: Object.fromEntries(initial),
    batch: { dtype: "float32", shape: [ROWS, WIDTH] },
    batchOf: (number, device) => {
      const values = randomFrom(1000 * number + device);
      return Float32Array.from(range(ROWS * WIDTH), () => values() * 2 - 1);
    },
    blockOf: (values, device) => {
      const size = values.length / numDevices;
      return Float32Array.from(values.slice(device * size, (device + 1) * size));
    },
  };
}
