import { byteSize, type DType, isDType } from "../../../../src/ir/dtype.js";
import type { Engine } from "../../../../src/ir/engine.js";
import * as lax from "../../../../src/lax/index.js";
import type { Variables } from "../../../../src/nn/index.js";
import * as np from "../../../../src/numpy/index.js";
import {
  gatherArrayWithMeanGrads,
  shardModuleParams,
  shardParams,
  syncGradients,
} from "../../../../src/parallel/dataParallel.js";
import * as random from "../../../../src/random/index.js";
import type { Tensor } from "../../../../src/trace/tensor.js";
import { valueAndGrad } from "../../../../src/transforms/derivatives/grad.js";
import { unitOfLastPlace } from "../../../support/floatBits.js";
import type { GoldenCase } from "../cases.js";
import { type AreaRunner, byName, expectAll } from "../check.js";
import { agreement, expectClose, expectTreeClose, type Tolerance } from "../compare.js";
import { MLP, numbersIn } from "../models.js";
import { expectNames, firstAxis, meshOf, onMesh, withBoxes } from "../onMesh.js";

/** Fully sharded data parallelism: the splitting and gathering of parameters, and of whole modules. */
export const runDataParallel: AreaRunner = byName({
  shard_params: runShardParams,
  gather_array: runGatherArray,
  shard_module: runShardModule,
  sync_gradients: runSyncGradients,
});

async function runShardParams(golden: GoldenCase, engine: Engine): Promise<void> {
  const mesh = meshOf(golden, engine);
  const params = golden.tree("params");
  const minWeightSize = golden.number("min_weight_size");
  const { values, names } = onMesh(mesh, () => shardParams(params, firstAxis(golden), minWeightSize));
  await expectAll(
    () => expectTreeClose(values, golden.tree("per_device"), agreement.exact),
    () => expectNames(names, golden),
  );
}

function dtypeAt(golden: GoldenCase, key: string): DType | undefined {
  const dtype = golden.value(key);
  return isDType(dtype) ? dtype : undefined;
}

async function runGatherArray(golden: GoldenCase, engine: Engine): Promise<void> {
  const [gatherDtype, gradScatterDtype] = [
    dtypeAt(golden, "gather_dtype"),
    dtypeAt(golden, "grad_scatter_dtype"),
  ];
  const { values } = onMesh(
    meshOf(golden, engine),
    (x: Tensor, t: Tensor) => {
      const gather = (part: Tensor) =>
        gatherArrayWithMeanGrads(part, golden.number("axis"), firstAxis(golden), {
          gatherDtype,
          gradScatterDtype,
        });
      const loss = (part: Tensor): [Tensor, Tensor] => {
        const gathered = gather(part);
        return [np.sum(np.square(np.subtract(lax.convertElementType(gathered, "float32"), t))), gathered];
      };
      const [[, gathered], gradient] = valueAndGrad(loss, { hasAux: true })(x);
      return { gathered, gradient };
    },
    golden.tensor("x"),
    golden.tensor("t"),
  );
  const short = [gatherDtype, gradScatterDtype].find((dtype) => dtype && byteSize(dtype) < 4);
  const tolerance = short ? shortTolerance(golden, short) : agreement.gradient;
  await expectAll(
    () => expectClose(values.gathered, golden.host("gathered"), undefined, "gathered"),
    () => expectClose(values.gradient, golden.host("grad_x"), tolerance, "grad_x"),
  );
}

/**
 * Gradients that travel in a short type are means of rounded terms, so what counts is a unit of the last place
 * of the largest term: where terms cancel, the mean is much smaller than they are.
 */
function shortTolerance(golden: GoldenCase, dtype: DType): Tolerance {
  const [gathered, targets] = [golden.host("gathered").values, golden.host("t").values];
  const terms = Array.from(targets, (t, i) => Math.abs(2 * ((gathered[i] ?? 0) - t)));
  const largest = terms.reduce((a, b) => Math.max(a, b), 0);
  const numTerms = golden.mesh.reduce((size, [, n]) => size * n, 1);
  return { ...agreement.half, ulpType: dtype, atol: unitOfLastPlace(largest, dtype) / numTerms };
}

async function runShardModule(golden: GoldenCase, engine: Engine): Promise<void> {
  const mesh = meshOf(golden, engine);
  const text = golden.string("module");
  const axis = /over (\w+)/.exec(text)?.[1] ?? firstAxis(golden);
  const [hidden = 16, out = 4] = numbersIn(text, "MLP");
  const Sharded = shardModuleParams(MLP, axis, { minWeightSize: golden.number("min_weight_size") });
  const model = Sharded({ hidden, out });
  const run = (variables: Variables, x: Tensor, t: Tensor) => {
    const loss = (given: Variables): [Tensor, Tensor] => {
      const y = model.apply(given, x);
      return [np.mean(np.square(np.subtract(y, t))), y];
    };
    const [[value, y], grads] = valueAndGrad(loss, { hasAux: true })(variables);
    return { y, loss: value, grads, synced: syncGradients(grads, mesh.axisNames) };
  };
  const made = onMesh(
    mesh,
    (x: Tensor) => ({ variables: model.init(random.key(golden.number("seed")), x) }),
    golden.tensor("x"),
  );
  const { values, names } = onMesh(
    mesh,
    (values: unknown, x: Tensor, t: Tensor) => run(withBoxes(values, golden, "variables") as Variables, x, t),
    golden.tree("variables"),
    golden.tensor("x"),
    golden.tensor("t"),
  );
  await expectAll(
    () => expectNames({ ...made.names, ...names }, golden),
    () => expectTreeClose(made.values.variables, golden.tree("variables")),
    () => expectClose(values.y, golden.host("y"), undefined, "y"),
    () => expectClose(values.loss, golden.host("loss"), undefined, "loss"),
    () => expectTreeClose(values.grads, golden.tree("grads"), agreement.gradient),
    () => expectTreeClose(values.synced, golden.tree("synced"), agreement.gradient),
  );
}

async function runSyncGradients(golden: GoldenCase, engine: Engine): Promise<void> {
  const list = golden.value("axis_names");
  const axes = (Array.isArray(list) ? list : [list]).map(String);
  const { values, names } = onMesh(
    meshOf(golden, engine),
    (grads: unknown) => syncGradients(withBoxes(grads, golden, ""), axes),
    golden.tree("grads"),
  );
  await expectAll(
    () => expectNames(names, golden),
    () => expectTreeClose(values, golden.tree("synced")),
  );
}
