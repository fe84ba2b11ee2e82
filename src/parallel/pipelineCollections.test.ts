import { expect, test } from "vitest";
import { agreement, expectClose, expectTreeClose } from "../../test/support/goldens.js";
import { hostEngine } from "../engines/host.js";
import { jit, Mesh, np, random, type Tensor, tree, valueAndGrad } from "../index.js";
import { range } from "../ir/shape.js";
import * as nn from "../nn/index.js";
import { CircularPipeline } from "./circularPipeline.js";

const embed = 4;

/** A layer with a scale that training overwrites with its gradient, and a constant that is never trained. */
const Scaled = nn.module("Scaled", () => (x: Tensor): Tensor => {
  const { shape } = x;
  const w = nn.param("w", nn.initializers.lecunNormal(), [embed, embed]);
  const scale = nn.variable("_overwrite_with_gradient", "scale", () => np.full([], 0.5));
  const offset = nn.variable("non_trainable", "offset", () => random.normal(nn.makeRng(), [embed]));
  return np.tanh(np.add(np.matmul(np.multiply(x, scale.value), w), offset.value)).reshape(shape);
});

const collections = ["_overwrite_with_gradient", "non_trainable", "params"];

test.each([
  [1, undefined],
  [2, undefined],
  [1, { stage: 2 }],
  [2, { stage: 2 }],
])(
  "every collection of the layers goes through init, apply and gradients: %i repeats, mesh %j",
  async (repeats, axes) => {
    const mesh = axes && Mesh.create(axes, { engine: hostEngine });
    const stages = 2;
    const pipeline = CircularPipeline({
      layers: Scaled({ parent: null }),
      numStages: stages,
      numPipelineMicrobatches: 4,
      numPipelineRepeats: repeats,
      ...(mesh ? { mesh } : {}),
    });
    const x = random.normal(random.key(3), [8, embed]);
    const variables = pipeline.init(random.key(0), x);
    const lead = repeats > 1 ? [repeats, stages] : [stages];
    const shapes = tree.map((leaf: Tensor): unknown => leaf.shape, variables);
    expect(shapes).toEqual({
      params: { layers: { w: [...lead, embed, embed] } },
      _overwrite_with_gradient: { layers: { scale: lead } },
      non_trainable: { layers: { offset: [...lead, embed] } },
    });
    expect(Object.keys(pipeline.getWeightSharding(x) as object).sort()).toEqual(collections);
    const [offset] = tree.leaves(variables.non_trainable) as [Tensor];
    const rows = (await np.reshape(offset, [-1, embed]).js()) as number[][];
    expect(new Set(rows.map(String)).size).toBe(stages * repeats);

    const sequential = (v: nn.Variables, a: Tensor) =>
      range(stages * repeats).reduce((h, i) => {
        const own = tree.map(
          (w: Tensor) => np.take(np.reshape(w, [stages * repeats, ...w.shape.slice(lead.length)]), i, 0),
          v,
        );
        const layer = Object.fromEntries(Object.entries(own).map(([name, values]) => [name, values.layers]));
        return Scaled().apply(layer as nn.Variables, h);
      }, a);
    const both = (fn: (v: nn.Variables, a: Tensor) => Tensor) =>
      valueAndGrad((v: nn.Variables, a: Tensor) => np.sum(np.sin(fn(v, a))));
    const [value, grads] = jit(
      both((v, a) => pipeline.apply(v, a)),
      mesh ? { mesh } : {},
    )(variables, x);
    const [wanted, wantedGrads] = jit(both(sequential))(variables, x);
    await expectClose(value, wanted);
    expect(Object.keys(grads).sort()).toEqual(collections);
    await expectTreeClose(grads, wantedGrads, agreement.gradient);
  },
);
