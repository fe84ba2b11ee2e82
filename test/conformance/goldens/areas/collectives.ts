import type { Engine } from "../../../../src/ir/engine.js";
import * as lax from "../../../../src/lax/index.js";
import * as np from "../../../../src/numpy/index.js";
import type { Tensor } from "../../../../src/trace/tensor.js";
import { valueAndGrad } from "../../../../src/transforms/derivatives/grad.js";
import type { GoldenCase } from "../cases.js";
import { type AreaRunner, expectAll } from "../check.js";
import { agreement, expectClose, expectTreeClose, Mismatch } from "../compare.js";
import { meshOf, onMesh } from "../onMesh.js";

type Collective = (x: Tensor, axes: readonly string[]) => Tensor;

/** A name of a collective with what the parts of its name mean. */
type Reader = readonly [pattern: RegExp, read: (...parts: readonly string[]) => Collective];

const readers: readonly Reader[] = [
  [/^psum$/, () => (x, axes) => lax.psum(x, axes)],
  [/^pmean$/, () => (x, axes) => lax.pmean(x, axes)],
  [/^pmax$/, () => (x, axes) => lax.pmax(x, axes)],
  [/^pmin$/, () => (x, axes) => lax.pmin(x, axes)],
  [
    /^all_gather_axis(\d+)_(tiled|stacked)$/,
    (dim, kind) => (x, axes) => lax.allGather(x, axes, { dim: Number(dim), tiled: kind === "tiled" }),
  ],
  [
    /^psum_scatter_axis(\d+)_(tiled|stacked)$/,
    (dim, kind) => (x, axes) => lax.psumScatter(x, axes, { dim: Number(dim), tiled: kind === "tiled" }),
  ],
  [/^ppermute_up$/, () => (x, axes) => lax.pshift(x, axes)],
  [/^ppermute_down$/, () => (x, axes) => lax.pshift(x, axes, -1)],
  [/^ppermute_partial$/, () => (x, axes) => lax.ppermute(x, axes, [[0, lax.axisSize(axes) - 1]])],
  [
    /^all_to_all_(\d+)_(\d+)$/,
    (from, to) => (x, axes) => lax.allToAll(x, axes, Number(from), Number(to), { tiled: true }),
  ],
  [/^axis_index$/, () => (x, axes) => np.multiply(x, lax.convertElementType(lax.axisIndex(axes), x.dtype))],
];

/** The collective of a name such as `psum`, `all_gather_axis1_tiled`. */
function collectiveOf(name: string): Collective {
  for (const [pattern, read] of readers) {
    const found = pattern.exec(name);
    if (found) return read(...found.slice(1));
  }
  throw new Mismatch(`unknown collective ${name}`);
}

const gather = collectiveOf("all_gather_axis0_tiled");
const scatter = collectiveOf("psum_scatter_axis0_tiled");

/** What a case computes on each device; its name may end with the number of devices or with axes. */
function functionOf(golden: GoldenCase): (x: Tensor) => Tensor {
  const axes = golden.mesh.map(([axis]) => axis);
  const two = /^gather_(\w)_then_scatter_(\w)$/.exec(golden.name);
  if (two) return (x) => scatter(gather(x, [two[1] ?? ""]), [two[2] ?? ""]);
  if (axes.length === 1) {
    const collective = collectiveOf(golden.name.replace(/_\d+$/, ""));
    return (x) => collective(x, axes);
  }
  const [, kind = golden.name, over = ""] = /^(.*?)_(\w+?)(?:_of_\w+)?$/.exec(golden.name) ?? [];
  const collective = collectiveOf(kind);
  return (x) => collective(x, [...over]);
}

/** Collectives with their gradients, and those that have none. */
export const runCollectives: AreaRunner = async (golden, engine) => {
  if (!golden.has("grad_x")) return runPair(golden, engine);
  const fn = functionOf(golden);
  const { values } = onMesh(
    meshOf(golden, engine),
    (x: Tensor, w: Tensor) => {
      const loss = (input: Tensor): [Tensor, Tensor] => {
        const y = fn(input);
        return [np.sum(np.multiply(y, w)), y];
      };
      const [[, y], gradient] = valueAndGrad(loss, { hasAux: true })(x);
      return { y, gradient };
    },
    golden.tensor("x"),
    golden.tensor("w"),
  );
  await expectAll(
    () => expectClose(values.y, golden.host("y"), undefined, "y"),
    () => expectClose(values.gradient, golden.host("grad_x"), agreement.gradient, "grad_x"),
  );
};

/** Two collectives over one axis each, such as `pmax_b_pmin_a`. */
async function runPair(golden: GoldenCase, engine: Engine): Promise<void> {
  const calls = [...golden.name.matchAll(/([a-z]+)_(\w)(?:_|$)/g)].map(([, kind = "", axis = ""]) => {
    const collective = collectiveOf(kind);
    return (x: Tensor) => collective(x, [axis]);
  });
  const { values } = onMesh(
    meshOf(golden, engine),
    (x: Tensor) => calls.map((call) => call(x)),
    golden.tensor("x"),
  );
  await expectTreeClose(values, golden.value("y"));
}
