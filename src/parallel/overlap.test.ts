import { expect, test } from "vitest";
import { compileProgram } from "../compiler/compile.js";
import { createThreadsEngine } from "../engines/index.js";
import { jit, Mesh, makeProgram, np, P, random, shardMap, simplify, type Tensor } from "../index.js";
import { Dense, getPartitionSpec, type Variables } from "../nn/index.js";
import { partition } from "../spmd/partition/partition.js";
import { initSharded } from "./initSharded.js";
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
  const x = np.ones([512, 512]);
  const features = P(null, "model");
  // Weights are inputs: messages could also hide behind the kernels that draw them.
  const variables = initSharded(layer.init, { mesh, inSpecs: [P(), features] })(random.key(0), x);
  const mapped = shardMap((weights: Variables, part: Tensor) => layer.apply(weights, part), {
    mesh,
    inSpecs: [getPartitionSpec(variables), features],
    outSpecs: features,
    checkReplication: false,
  });
  const program = simplify(makeProgram(mapped)(variables, x));
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

test("a recorded run shows matrix products between the start and the end of a ring's hop", async () => {
  const engine = createThreadsEngine({ numDevices: 2 });
  try {
    const pair = Mesh.create({ model: 2 }, { engine });
    const layer = TPAsyncDense({
      modelAxisName: "model",
      tpMode: "gather",
      denseFn: (config) => Dense({ features: 128, ...config }),
    });
    const run = jit(
      shardMap((x: Tensor) => layer.apply(layer.init(random.key(0), x), x), {
        mesh: pair,
        inSpecs: P(null, "model"),
        outSpecs: P(null, "model"),
        checkReplication: false,
      }),
    );
    const x = np.ones([512, 256]);
    await run(x).ready();
    engine.tracer.start();
    await run(x).ready();
    const events = (await engine.tracer.stop()).filter(({ device }) => device === 0);
    const of = (kind: string) => events.filter((event) => event.kind === kind);
    const [start, done] = [of("start")[0], of("done")[0]];
    const under = of("gemm").filter(
      ({ begin, end }) => begin >= (start?.end ?? 0) && end <= (done?.begin ?? 0),
    );
    expect(under.length).toBeGreaterThanOrEqual(1);
  } finally {
    await engine.close();
  }
});
