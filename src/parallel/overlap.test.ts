import { expect, test } from "vitest";
import { compileProgram } from "../compiler/compile.js";
import { Mesh, makeProgram, np, P, random, shardMap, simplify, type Tensor } from "../index.js";
import { Dense } from "../nn/index.js";
import { partition } from "../spmd/partition.js";
import { TPAsyncDense } from "./tensorParallel.js";

const mesh = Mesh.create({ model: 4 });

/** The kinds of the steps that one device runs for an asynchronous layer, in order. */
function stepKinds(tpMode: "gather" | "scatter", options: object): string[] {
  const layer = TPAsyncDense({
    modelAxisName: "model",
    tpMode,
    denseFn: (config) => Dense({ features: tpMode === "gather" ? 128 : 512, ...config }),
    ...options,
  });
  const run = (x: Tensor) => layer.apply(layer.init(random.key(0), x), x);
  const mapped = shardMap(run, {
    mesh,
    inSpecs: P(null, "model"),
    outSpecs: P(null, "model"),
    checkReplication: false,
  });
  const program = simplify(makeProgram(mapped)(np.ones([512, 512])));
  const { program: own } = partition(program, mesh);
  const compiled = compileProgram(simplify(own), { mesh, features: { fma: false } });
  return compiled.steps.map((step) => step.op);
}

test.each([
  ["gather", { useBidirectionalGather: false }],
  ["gather", { useBidirectionalGather: true }],
  ["scatter", { useBidirectionalScatter: false }],
  ["scatter", { useBidirectionalScatter: true }],
] as const)("the ring of an asynchronous %s layer (%j) runs under its matrix products", (mode, options) => {
  const kinds = stepKinds(mode, options).filter((kind) => ["start", "done", "gemm"].includes(kind));
  let open = 0;
  let covered = 0;
  for (const kind of kinds) {
    if (kind === "start") open++;
    if (kind === "done") open--;
    if (kind === "gemm" && open > 0) covered++;
  }
  expect(kinds.filter((kind) => kind === "start").length).toBeGreaterThanOrEqual(3);
  expect(covered, kinds.join(" ")).toBeGreaterThanOrEqual(2);
});
