import { createReferenceEngine, createThreadsEngine } from "../../../src/engines/index.js";
import {
  grad,
  jit,
  lax,
  Mesh,
  np,
  P,
  random,
  remat,
  shardMap,
  type Tensor,
  tree,
  vmap,
} from "../../../src/index.js";
import * as nn from "../../../src/nn/index.js";
import * as optim from "../../../src/optim/index.js";
import type { FaultArea } from "../row.js";

/** A value of the wrong type, as JavaScript callers may pass it. */
const wrong = (value: unknown) => value as never;
const x = np.ones([2, 3]);
const fn = (v: Tensor) => np.sum(v);

/** Operands and indices that would give wrong numbers. */
export const operands: FaultArea = {
  title: "Operands that would give wrong numbers",
  rows: [
    {
      fault: "an engine of 10^9 devices",
      sees: /numDevices must be an integer from 1 to 1024, not 1000000000/,
      act: () => createThreadsEngine({ numDevices: 1e9 }),
    },
    {
      fault: "a tree that holds itself",
      sees: /a tree has more than 1000 levels at self\/self.*it contains itself/,
      act: () => {
        const cyclic: Record<string, unknown> = { x };
        cyclic.self = cyclic;
        return tree.map((leaf: Tensor) => leaf, cyclic);
      },
    },
    {
      fault: "a `whileLoop` without end on the calling thread (deadline 300 ms)",
      sees: /\[whileLoop\] it has not ended for 300 ms on the calling thread/,
      act: async () => {
        const engine = createReferenceEngine({ deadlineMs: 300 });
        const mesh = Mesh.create({ i: 1 }, { engine });
        const endless = (v: Tensor) =>
          lax.whileLoop(
            (u: Tensor) => u.lt(2),
            (u: Tensor) => u.mul(1),
            v,
          );
        return await jit(endless, { mesh })(np.array(1)).item();
      },
    },
    {
      fault: "lists as operands of `lax.add`",
      sees: /lax\.add.*a list of 2/,
      act: () => lax.add(wrong([1, 2]), wrong([3, 4])),
    },
    { fault: "a text as operand of `lax.mul`", sees: /lax\.mul/, act: () => lax.mul(x, wrong("2")) },
    { fault: "index 2^32 in `np.take`", sees: /4294967296/, act: () => np.take(x, [2 ** 32]) },
    { fault: "index 0.5 in `np.take`", sees: /0\.5/, act: () => np.take(x, [0.5]) },
    {
      fault: "an index outside of the dim in `np.take`",
      sees: /NaN/,
      act: async () => (await np.take(x, [7], 1).js()).toString(),
    },
    {
      fault: "the sum of 2^35 broadcast elements",
      sees: /more than 2\^34/,
      act: () => np.sum(np.broadcastTo(1, [2 ** 35])),
    },
    { fault: "floats as indices", sees: /cannot be indices/, act: () => np.take(x, np.array([0.5])) },
    { fault: "shapes that do not broadcast", sees: /do not broadcast/, act: () => x.add(np.ones([4, 5])) },
    { fault: "a matrix product of sizes 3 and 4", sees: /matmul/, act: () => np.matmul(x, np.ones([4, 5])) },
    { fault: "a reshape that loses elements", sees: /reshape/, act: () => x.reshape([4, 2]) },
    { fault: "a negative size", sees: /-1/, act: () => np.zeros([-1]) },
    { fault: "half a size", sees: /1\.5/, act: () => np.zeros([1.5]) },
    { fault: "nested lists of different lengths", sees: /array/, act: () => np.array(wrong([[1, 2], [3]])) },
    { fault: "a dim that is not there", sees: /dim/, act: () => np.sum(x, { axis: 5 } as never) },
    {
      fault: "a traced tensor used as a number",
      sees: /JavaScript number/,
      act: () => jit((v: Tensor) => v.mul(Number(v)))(x),
    },
    {
      fault: "a tensor used after `dispose`",
      sees: /dispose|released/,
      act: () => {
        const y = np.ones([4]).add(1);
        y.dispose();
        return y.data();
      },
    },
    {
      fault: "a number out of range of int32",
      sees: /does not fit into int32/,
      act: () =>
        np
          .array([1, 2])
          .astype("int32")
          .add(2 ** 40),
    },
    {
      fault: "the gradient of integers",
      sees: /grad/,
      act: () => grad((v: Tensor) => np.sum(v))(np.array([1, 2]).astype("int32")),
    },
    { fault: "a norm of −1 to clip by", sees: /clipByGlobalNorm.*-1/, act: () => optim.clipByGlobalNorm(-1) },
    {
      fault: "a learning rate of NaN",
      sees: /finite number or a schedule/,
      act: () => optim.sgd({ learningRate: Number.NaN }),
    },
    {
      fault: "a module that is called with other parameters",
      sees: /Dense|param|kernel|shape/,
      act: () =>
        nn.Dense({ features: 4 }).apply({ params: { kernel: np.ones([7, 4]), bias: np.ones([4]) } }, x),
    },
    { fault: "a key that is no key", sees: /key/, act: () => random.normal(wrong(7), [2]) },
    {
      fault: "trees of different structure",
      sees: /tree/i,
      act: () => tree.map((a: Tensor, b: Tensor) => a.add(b), { a: x } as never, { b: x } as never),
    },
  ],
};

/** Unknown options. */
export const options: FaultArea = {
  title: "Unknown options",
  rows: (
    [
      ["sgd", () => optim.sgd(wrong({ learningRate: 1, Momentum: 1 }))],
      ["momentum", () => optim.momentum(wrong({ learningRate: 1, decay: 1 }))],
      ["adam", () => optim.adam(wrong({ learningRate: 1, beta1: 1 }))],
      ["adamw", () => optim.adamw(wrong({ learningRate: 1, weight_decay: 1 }))],
      ["lion", () => optim.lion(wrong({ learningRate: 1, b3: 1 }))],
      ["jit", () => jit(fn, wrong({ donateArgnums: 0 }))],
      ["grad", () => grad(fn, wrong({ argNums: 0 }))(x)],
      ["vmap", () => vmap(fn, wrong({ in_axes: 0 }))],
      ["remat", () => remat(fn, wrong({ policies: 0 }))],
      [
        "shardMap",
        () =>
          shardMap(fn, wrong({ mesh: Mesh.create({ i: 1 }), inSpecs: P(), outSpecs: P(), checkRep: false })),
      ],
      ["Mesh.create", () => Mesh.create({ i: 1 }, wrong({ device: [0] }))],
    ] as const
  ).map(([name, act]) => ({
    fault: `a misspelt option of \`${name}\``,
    sees: /unknown option ".*": the options are/,
    act,
  })),
};
