import { describe, expect, expectTypeOf, test } from "vitest";
import type { Prefix, TensorType } from "../src/index.js";
import {
  AxisError,
  costAnalysis,
  devicePut,
  evalShape,
  hessian,
  jacfwd,
  jacrev,
  jit,
  Mesh,
  NamedSharding,
  np,
  P,
  type PartitionSpec,
  type Synchronous,
  shardMap,
  Tensor,
  vmap,
  withShardingConstraint,
} from "../src/index.js";
import * as nn from "../src/nn/index.js";
import * as optim from "../src/optim/index.js";
import {
  adamw,
  chain,
  clipByGlobalNorm,
  type EmptyState,
  type GradientTransformation,
  sgd,
} from "../src/optim/index.js";
import { initSharded } from "../src/parallel/index.js";

// What is refused here is refused by the type checker; the calls themselves do nothing before they get arguments.

interface Params {
  readonly w: Tensor;
  readonly layers: readonly [Tensor, { readonly bias: Tensor }];
}

const mesh = Mesh.create({ data: 1 });
const step = (params: Params, x: Tensor): [Params, Tensor] => [params, x];

describe("a prefix of a tree", () => {
  type Specs = Prefix<Params, PartitionSpec>;

  test("is a leaf for everything, or a tree that ends earlier", () => {
    expectTypeOf<PartitionSpec>().toExtend<Specs>();
    expectTypeOf<{ w: PartitionSpec; layers: PartitionSpec }>().toExtend<Specs>();
    expectTypeOf<{ w: PartitionSpec; layers: [PartitionSpec, PartitionSpec] }>().toExtend<Specs>();
    expectTypeOf<{ w: PartitionSpec; layers: [PartitionSpec, { bias: PartitionSpec }] }>().toExtend<Specs>();
  });

  test("has no other form, no missing part and no leaf of another kind", () => {
    expectTypeOf<{ w: PartitionSpec }>().not.toExtend<Specs>();
    expectTypeOf<{ w: PartitionSpec; layers: [PartitionSpec] }>().not.toExtend<Specs>();
    expectTypeOf<{ w: PartitionSpec; layers: { bias: PartitionSpec } }>().not.toExtend<Specs>();
    expectTypeOf<{ w: [PartitionSpec]; layers: PartitionSpec }>().not.toExtend<Specs>();
    expectTypeOf<string>().not.toExtend<Specs>();
    expectTypeOf<null>().not.toExtend<Specs>();
    expectTypeOf<null>().toExtend<Prefix<Params, PartitionSpec | null>>();
  });

  test("is anything where nothing is known about the tree", () => {
    expectTypeOf<Prefix<unknown, number>>().toBeUnknown();
    expectTypeOf<{ state: string }>().toExtend<Prefix<{ state: unknown }, number>>();
    expectTypeOf<{ params: { Dense_0: PartitionSpec } }>().toExtend<Prefix<nn.Variables, PartitionSpec>>();
  });

  test("can be passed on by code that does not know the tree", () => {
    const onMesh = <A extends readonly unknown[], R>(
      fn: (...args: A) => R,
      inSpecs: Prefix<A, PartitionSpec | null | undefined>,
    ) => shardMap(fn, { mesh, inSpecs, outSpecs: P() });
    onMesh(step, [P(), P("data")]);
    // @ts-expect-error the third argument does not exist
    onMesh(step, [P(), P("data"), P()]);
  });
});

describe("the arguments of a function decide what its options may say", () => {
  test("of jit", () => {
    jit(step, { inShardings: [{ w: P("data"), layers: P() }, null], outShardings: [P(), P("data")] });
    jit(step, { inShardings: P(), outShardings: new NamedSharding(mesh, P()) });
    // @ts-expect-error a name that the tree does not have
    jit(step, { inShardings: [{ w: P(), layer: P() }, P()] });
    // @ts-expect-error one entry for two arguments
    jit(step, { inShardings: [P()] });
    // @ts-expect-error an axis is not a spec
    jit(step, { outShardings: "data" });
    // @ts-expect-error the result is a pair
    costAnalysis(step, { outShardings: [P(), P(), P()] });
  });

  test("of jit, in which static arguments have no sharding", () => {
    const scaled = (x: Tensor, by: "one" | "two", y: Tensor) => x.add(y).mul(by === "one" ? 1 : 2);
    jit(scaled, { staticArgnums: 1, inShardings: [P("data"), P()] });
    jit(scaled, { staticArgnums: [1, 2], inShardings: [P("data")] });
    // @ts-expect-error only two arguments are tensors
    jit(scaled, { staticArgnums: 1, inShardings: [P("data"), null, P()] });
    const positions: number[] = [1];
    jit(scaled, { staticArgnums: positions, inShardings: [P("data"), P()] });
  });

  test("of shardMap and initSharded", () => {
    shardMap(step, {
      mesh,
      inSpecs: [P(), P("data")],
      outSpecs: [{ w: P(), layers: [P(), null] }, P("data")],
    });
    // @ts-expect-error a sharding is not a spec
    shardMap(step, { mesh, inSpecs: new NamedSharding(mesh, P()), outSpecs: P() });
    // @ts-expect-error the bias is deeper
    shardMap(step, { mesh, inSpecs: P(), outSpecs: [{ w: P(), layers: { bias: P() } }, P()] });
    initSharded(step, { mesh, inSpecs: [P(), P("data")] });
    // @ts-expect-error one entry for two arguments
    initSharded(step, { mesh, inSpecs: [P("data")] });
  });

  test("of vmap", () => {
    vmap(step, { inAxes: [{ w: 0, layers: null }, 1], outAxes: [null, 0] });
    // @ts-expect-error a dim is a number
    vmap(step, { inAxes: ["rows", 0] });
    // @ts-expect-error a tensor has no parts
    vmap(step, { inAxes: [0, [0]] });
  });

  test("of values that are placed", () => {
    const params: Params = { w: np.ones([2]), layers: [np.ones([2]), { bias: np.ones([2]) }] };
    const sharding = new NamedSharding(mesh, P());
    withShardingConstraint(params, { w: sharding, layers: null });
    void devicePut(params, { w: sharding, layers: [sharding, sharding] });
    // @ts-expect-error a part is missing
    const missing = () => withShardingConstraint(params, { w: sharding });
    // @ts-expect-error every tensor needs a place
    const nowhere = () => devicePut(params, { w: sharding, layers: null });
    expectTypeOf(missing).toBeFunction();
    expectTypeOf(nowhere).toBeFunction();
  });
});

describe("lifted transforms map what comes after modules and the carry", () => {
  const Layer = nn.module(
    "Layer",
    () =>
      (carry: Tensor, x: Tensor, mask: Tensor): [Tensor, { y: Tensor }] => [carry.add(mask), { y: x }],
  );
  const layer = Layer();

  test("of module classes", () => {
    nn.vmap(Layer, { inAxes: [0, 0, null], outAxes: [0, { y: 1 }] });
    nn.scan(Layer, { inAxes: [0, null], outAxes: { y: 1 } });
    // @ts-expect-error the carry is not scanned over
    nn.scan(Layer, { inAxes: [0, 0, null] });
    // @ts-expect-error the result has no part z
    nn.vmap(Layer, { outAxes: [0, { z: 1 }] });
  });

  test("of functions of modules", () => {
    const call = (module: typeof layer, carry: Tensor, x: Tensor) => module(carry, x, x);
    nn.vmap(call, { inAxes: [0, 0] });
    nn.scan(call, { inAxes: [0] });
    // @ts-expect-error a module is not mapped
    nn.vmap(call, { inAxes: [null, 0, 0] });
  });
});

describe("trees keep their form", () => {
  test("when tensors become types, specs or shardings", () => {
    const types = evalShape(step)(
      { w: np.ones([2]), layers: [np.ones([2]), { bias: np.ones([2]) }] },
      np.ones([1]),
    );
    expectTypeOf(types[0].layers[1].bias).toEqualTypeOf<TensorType>();
    const specs = nn.getPartitionSpec(types);
    expectTypeOf(specs[0].layers[1].bias).toEqualTypeOf<PartitionSpec>();
    expectTypeOf(nn.logicalToMeshSharding(specs, mesh)[1]).toEqualTypeOf<NamedSharding>();
    const boxed = { kernel: new nn.Partitioned(Tensor.scalar(1, "float32"), []) };
    expectTypeOf(nn.getSharding(boxed, mesh).kernel).toEqualTypeOf<NamedSharding>();
  });

  test("when every tensor becomes its derivatives", () => {
    const both = (x: Tensor, params: Params) => ({ y: x, loss: params.w });
    expectTypeOf(jacrev((x: Tensor) => x)).returns.toEqualTypeOf<Tensor>();
    expectTypeOf(jacfwd(both)).returns.toEqualTypeOf<{ y: Tensor; loss: Tensor }>();
    expectTypeOf(jacrev(both, { argnums: -1 })).returns.toEqualTypeOf<{ y: Params; loss: Params }>();
    expectTypeOf(jacfwd(both, { argnums: [1, 0] })).returns.toEqualTypeOf<{
      y: readonly [Params, Tensor];
      loss: readonly [Params, Tensor];
    }>();
    expectTypeOf(hessian((x: Tensor) => x)).returns.toEqualTypeOf<Tensor>();
    const second = hessian((params: Params) => params.w);
    expectTypeOf<ReturnType<typeof second>["w"]>().toEqualTypeOf<Params>();
    expectTypeOf<ReturnType<typeof second>["layers"][1]["bias"]["w"]>().toEqualTypeOf<Tensor>();
  });

  test("where a recurrent network is asked for its last carry", () => {
    const rnn = nn.RNN({ cell: nn.GRUCell({ features: 2 }) });
    const call = () => [rnn(np.ones([1, 2])), rnn(np.ones([1, 2]), { returnCarry: true })] as const;
    expectTypeOf(call).returns.toEqualTypeOf<readonly [Tensor, [carry: Tensor, outputs: Tensor]]>();
    const two = () => nn.Bidirectional({ forwardRnn: rnn, backwardRnn: rnn })(np.ones([1, 2]));
    expectTypeOf(two).returns.toEqualTypeOf<Tensor>();
    const both = nn.Bidirectional({ forwardRnn: rnn, backwardRnn: rnn });
    // @ts-expect-error both directions are taken in any case
    const turned = () => both(np.ones([1]), { reverse: true });
    expectTypeOf(turned).toBeFunction();
  });
});

describe("an async function", () => {
  test("is not one of tensors", () => {
    // @ts-expect-error its result is a promise
    jit(async (x: Tensor) => x);
    // @ts-expect-error its result is a promise
    initSharded(async (x: Tensor) => x, { mesh });
    const compiled = <A extends readonly unknown[], R>(fn: ((...args: A) => R) & Synchronous<R>) => jit(fn);
    expectTypeOf(compiled((x: Tensor) => ({ x }))).returns.toEqualTypeOf<{ x: Tensor }>();
    jit((x: Tensor): Tensor | undefined => x);
    jit((): void => {});
  });
});

describe("the state of an optimiser", () => {
  test("has the types of its parts, alone and chained", () => {
    const optimizer = chain(clipByGlobalNorm(1), adamw({ learningRate: 1e-3 }));
    const [clipping, [adam]] = optimizer.init({});
    expectTypeOf(clipping).toEqualTypeOf<EmptyState>();
    expectTypeOf(adam.count).toEqualTypeOf<Tensor>();
    // @ts-expect-error the state of Adam has no trace
    void adam.trace;
    expectTypeOf(optimizer).toExtend<GradientTransformation>();
    const [scaling] = sgd({ learningRate: 1, momentum: 0.9 }).init({});
    expectTypeOf(scaling).not.toBeUnknown();
  });

  test("has moments like the parameters", () => {
    type Params = { readonly w: Tensor; readonly layers: readonly { readonly b: Tensor }[] };
    const params: Params = { w: np.ones([2]), layers: [{ b: np.ones([3]) }] };
    const optimizer = chain(clipByGlobalNorm(1), adamw({ learningRate: 1e-3 }));
    const state = optimizer.init(params);
    expectTypeOf(state[1][0].mu).toEqualTypeOf<Params>();
    expectTypeOf(state[1][0].nu.layers).items.toEqualTypeOf<{ readonly b: Tensor }>();
    // @ts-expect-error the parameters have no v
    void state[1][0].mu.v;
    const [updates, next] = optimizer.update(params, state, params);
    expectTypeOf(updates).toEqualTypeOf<Params>();
    expectTypeOf(next).toEqualTypeOf(state);
    expectTypeOf(state).toExtend<ReturnType<typeof optimizer.init>>();
    // What is not typed stays as it is, alone and chained.
    const own: GradientTransformation<{ readonly kept: unknown }> = {
      init: (kept) => ({ kept }),
      update: (grads, kept) => [grads, kept],
    };
    expectTypeOf(chain(own, optimizer).init(params)[0].kept).toBeUnknown();
    const untyped: GradientTransformation = optimizer;
    expectTypeOf(chain(untyped).init(params)[0]).toBeUnknown();
  });

  test("has that of the optimiser inside, where one wraps another", () => {
    type Params = { readonly w: Tensor };
    const params: Params = { w: np.ones([2]) };
    const adam = optim.scaleByAdam();
    const collected = optim.multiSteps(adam, 2).init(params);
    expectTypeOf(collected.inner.mu).toEqualTypeOf<Params>();
    expectTypeOf(collected.grads).toEqualTypeOf<Params>();
    expectTypeOf(collected.skipState).toBeUnknown();
    expectTypeOf(optim.masterWeights(adam).init(params).master).toEqualTypeOf<Params>();
    expectTypeOf(optim.conditionallyMask(adam, (n) => n.ge(1)).init(params).inner.nu).toEqualTypeOf<Params>();
    const injected = optim.injectHyperparams({ learningRate: 0.1 }, adamw).init(params);
    expectTypeOf(injected.hyperparams.learningRate).toEqualTypeOf<Tensor>();
    expectTypeOf(injected.inner[0].mu).toEqualTypeOf<Params>();
    const some = optim.masked(adam, true).init(params);
    expectTypeOf(some.count).toEqualTypeOf<Tensor>();
    expectTypeOf(some.mu).toEqualTypeOf<{ readonly w: Tensor | null }>();
    const pair = optim.lookaheadParams(params);
    const ahead = optim.lookahead(adam, { syncPeriod: 2, slowStepSize: 0.5 }).init(pair);
    expectTypeOf(ahead.fast.mu).toEqualTypeOf<Params>();
    expectTypeOf(
      chain(optim.masked(chain(adam), true)).init(params)[0][0].nu.w,
    ).toEqualTypeOf<Tensor | null>();
    const outer = chain(clipByGlobalNorm(1), optim.multiSteps(optim.masterWeights(adam), 2));
    expectTypeOf(outer.init(params)[1].inner.inner.mu.w).toEqualTypeOf<Tensor>();
    expectTypeOf(outer).toExtend<GradientTransformation>();
  });
});

describe("the axes of a mesh", () => {
  const grid = Mesh.create({ data: 1, model: 1 });

  test("are those that specs may name where the mesh is known", () => {
    expectTypeOf(grid).toEqualTypeOf<Mesh<"data" | "model">>();
    expectTypeOf(grid.axisNames).toEqualTypeOf<readonly ("data" | "model")[]>();
    const twice = (x: Tensor) => x.mul(2);
    shardMap(twice, { mesh: grid, inSpecs: [P("data", ["model"])], outSpecs: P(["data", "model"]) });
    shardMap(twice, { mesh: grid, inSpecs: P(null, P.UNCONSTRAINED), outSpecs: null, axisNames: ["data"] });
    // @ts-expect-error a misspelt axis
    shardMap(twice, { mesh: grid, inSpecs: [P("dta")], outSpecs: P() });
    // @ts-expect-error a misspelt axis among others
    shardMap(twice, { mesh: grid, inSpecs: P(), outSpecs: P(null, ["data", "modle"]) });
    // @ts-expect-error a misspelt axis
    expect(() => shardMap(twice, { mesh: grid, inSpecs: P(), outSpecs: P(), axisNames: ["dta"] })).toThrow(
      AxisError,
    );
    // @ts-expect-error a misspelt axis
    new NamedSharding(grid, P("dta"));
    jit(twice, { mesh: grid, inShardings: [P("data")], outShardings: new NamedSharding(grid, P("model")) });
    // @ts-expect-error a misspelt axis
    jit(twice, { mesh: grid, inShardings: [P("dta")] });
    // @ts-expect-error a misspelt axis
    jit(twice, { mesh: grid, overlap: ["dta"] });
  });

  test("are any where mesh or names are not known", () => {
    const onMesh = (some: Mesh, spec: PartitionSpec, axis: string) => {
      const twice = (x: Tensor) => x.mul(2);
      shardMap(twice, { mesh: some, inSpecs: P("any"), outSpecs: spec });
      shardMap(twice, { mesh: grid, inSpecs: P(axis), outSpecs: spec });
      jit(twice, { inShardings: [P("any")], outShardings: spec });
      return new NamedSharding(Mesh.create({ [axis]: 1 }), P("any"));
    };
    expectTypeOf(onMesh).returns.toExtend<NamedSharding>();
    expectTypeOf(grid).toExtend<Mesh>();
    expectTypeOf(P("data")).toExtend<PartitionSpec>();
    void onMesh(grid, P("model"), "data");
  });
});
