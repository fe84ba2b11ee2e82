import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { agreement, expectClose, expectTreeClose } from "../../../test/support/goldens.js";
import {
  jit,
  lax,
  Mesh,
  np,
  P,
  random,
  shardMap,
  type Tensor,
  tree,
  valueAndGrad,
  withMesh,
} from "../../index.js";
import { at, range } from "../../ir/shape.js";
import * as nn from "../index.js";
import type { MoEConfig } from "./moe.js";

const [batch, length, width] = [8, 5, 6];
const x = random.normal(random.key(1), [batch, length, width]);

/** A Mixtral block by a plain loop over experts: all of them see every token, and those not chosen count 0. */
function loop(variables: nn.Variables, inputs: Tensor, count: number): Tensor {
  const params = variables.params as Readonly<Record<string, Tensor>>;
  const part = (name: string): Tensor => params[name] ?? np.zeros([]);
  const logits = np.matmul(inputs, part("router"));
  const [, chosen] = lax.topK(logits, count);
  const gates = nn.softmax(np.takeAlongAxis(logits, chosen, -1));
  return range(at(logits.shape, 2)).reduce((sum, e) => {
    const own = (name: string) => np.take(part(name), np.array(e, "int32"), 0);
    const hidden = nn.silu(np.matmul(inputs, own("gate"))).mul(np.matmul(inputs, own("up")));
    const gate = np.sum(np.where(np.equal(chosen, e), gates, 0), -1, { keepdims: true });
    return sum.add(np.matmul(hidden, own("down")).mul(gate));
  }, np.zeros(inputs.shape));
}

/** A loss of everything that a layer returns. */
function lossOf({ output, router }: nn.MoEResult): Tensor {
  const sums = tree.leaves(router).map((leaf) => np.sum(leaf as Tensor));
  return sums.reduce((a, b) => a.add(b), np.sum(np.sin(output)));
}

const gradients = (layer: ReturnType<typeof nn.MoE>) =>
  valueAndGrad((v: nn.Variables, a: Tensor) => lossOf(layer.apply(v, a)), { argnums: [0, 1] });

test("a mixture of experts equals a plain loop over them, with its gradients", async () => {
  const layer = nn.MoE({ numExperts: 4, features: 10 });
  const variables = layer.init(random.key(0), x);
  const of = (fn: (v: nn.Variables, a: Tensor) => Tensor) =>
    jit(valueAndGrad((v: nn.Variables, a: Tensor) => np.sum(np.sin(fn(v, a))), { argnums: [0, 1] }))(
      variables,
      x,
    );
  await expectTreeClose(
    of((v, a) => layer.apply(v, a).output),
    of((v, a) => loop(v, a, 2)),
    agreement.gradient,
  );
});

/** Values that `test/jax/moe.py` computed as MaxText does. */
interface Stored {
  readonly shape: readonly number[];
  readonly data: readonly number[];
}
interface StoredCase {
  readonly options: {
    readonly k: number;
    readonly gate: "softmax" | "sigmoid";
    readonly scale: number;
    readonly normalize: boolean;
    readonly capacity: number | null;
    readonly bias: boolean;
    readonly shared: boolean;
  };
  readonly output: Stored;
  readonly router: Readonly<Record<"loadBalance" | "z" | "dropped" | "load", Stored>>;
  readonly grads: Readonly<Record<string, Stored>>;
  readonly inputGrad: Stored;
}
const stored = JSON.parse(readFileSync(new URL("../../../test/jax/moe.json", import.meta.url), "utf8")) as {
  weights: Record<string, Stored>;
  x: Stored;
  cases: Record<string, StoredCase>;
};
const tensorOf = ({ shape, data }: Stored) => np.reshape(np.array([...data]), [...shape]);

describe("the values of JAX in the semantics of MaxText", () => {
  test.each(Object.entries(stored.cases))("%s", async (_, { options, output, router, grads, inputGrad }) => {
    const layer = nn.MoE({
      numExperts: 4,
      features: 8,
      numExpertsPerToken: options.k,
      gate: options.gate,
      gateScale: options.scale,
      normalizeGates: options.normalize,
      balanceBias: options.bias,
      numSharedExperts: options.shared ? 2 : 0,
      ...(options.capacity === null ? {} : { capacityFactor: options.capacity }),
    });
    const names = Object.keys((layer.init(random.key(0), tensorOf(stored.x)) as nn.Variables).params ?? {});
    const params = Object.fromEntries(
      names.map((name) => {
        const value = tensorOf(
          at(
            [stored.weights[name]].flatMap((one) => one ?? []),
            0,
          ),
        );
        return [name, name.startsWith("shared") ? { kernel: value } : value];
      }),
    ) as nn.Variables["params"];
    const loss = (v: nn.Variables, a: Tensor) => {
      const result = layer.apply(v, a);
      const { loadBalance, z } = result.router;
      return [
        np.sum(np.sin(result.output)).add(np.mean(loadBalance)).add(np.mean(z).mul(0.1)),
        result,
      ] as const;
    };
    const [[, result], [ofParams, ofInputs]] = jit(valueAndGrad(loss, { argnums: [0, 1], hasAux: true }))(
      { params },
      tensorOf(stored.x),
    );
    await expectClose(result.output, tensorOf(output));
    for (const name of ["loadBalance", "z", "dropped", "load"] as const) {
      await expectClose(result.router[name], tensorOf(router[name]));
    }
    await expectClose(ofInputs, tensorOf(inputGrad), agreement.gradient);
    for (const name of names) {
      const [leaf] = tree.leaves((ofParams.params as Record<string, unknown>)[name]) as [Tensor];
      await expectClose(
        leaf,
        tensorOf(
          at(
            [grads[name]].flatMap((one) => one ?? []),
            0,
          ),
        ),
        agreement.gradient,
      );
    }
  });
});

const kinds: Readonly<Record<string, MoEConfig>> = {
  dropless: { numExperts: 8, features: 8 },
  dropping: { numExperts: 8, features: 8, capacityFactor: 1, numSharedExperts: 2 },
  balanced: { numExperts: 8, features: 8, gate: "sigmoid", balanceBias: true, numExpertsPerToken: 3 },
};
const meshes: readonly Record<string, number>[] = [
  { expert: 2 },
  { expert: 4, model: 2 },
  { data: 2, expert: 2, model: 2 },
  { data: 2, fsdp: 2, expert: 2 },
  { expert: 8 },
];

describe("the same numbers as on one device", () => {
  test.each(
    Object.entries(kinds).flatMap(([kind, config]) => meshes.map((mesh) => [kind, mesh, config] as const)),
  )("%s in the global view on %j", async (_, sizes, config) => {
    const layer = nn.MoE(config);
    const variables = layer.init(random.key(0), x);
    const mesh = Mesh.create(sizes);
    const onMesh = withMesh(mesh, () => jit(gradients(layer), { mesh })(variables, x));
    await expectTreeClose(onMesh, jit(gradients(layer))(variables, x), agreement.gradient);
  });

  const shared: readonly Record<string, number>[] = [{ context: 8 }, { context: 2, expert: 2, model: 2 }];
  const drawn = Object.keys(kinds).flatMap((kind, i) =>
    [8, 5].map((tokens, j) => [kind, tokens, shared[(i + j) % 2] ?? {}] as const),
  );
  test.each(drawn)("%s of %i tokens that devices share on %j", async (kind, tokens, sizes) => {
    const layer = nn.MoE(kinds[kind] ?? { numExperts: 8, features: 8 });
    const inputs = random.normal(random.key(2), [batch, tokens, width]);
    const variables = layer.init(random.key(0), inputs);
    const mesh = Mesh.create(sizes);
    const onMesh = withMesh(mesh, () => jit(gradients(layer), { mesh })(variables, inputs));
    await expectTreeClose(onMesh, jit(gradients(layer))(variables, inputs), agreement.gradient);
  });

  test.each(meshes)("in shardMap on %j", async (sizes) => {
    const layer = nn.MoE({ numExperts: 8, features: 8, numSharedExperts: 1 });
    const mesh = Mesh.create(sizes);
    const axes = Object.keys(sizes);
    const rows = P(axes.filter((axis) => axis !== "model"));
    const has = (axis: string) => (sizes[axis] === undefined ? null : axis);
    const [experts, model] = [has("expert"), has("model")];
    const inner = P(experts, null, model);
    const specs = {
      router: P(),
      gate: inner,
      up: inner,
      down: P(experts, model),
      sharedGate: { kernel: P(null, model) },
      sharedUp: { kernel: P(null, model) },
      sharedDown: { kernel: P(model) },
    };
    const weights = { params: specs };
    const variables = layer.init(random.key(0), x);
    const local = shardMap((v: nn.Variables, a: Tensor) => layer.apply(v, a).output, {
      mesh,
      inSpecs: [weights as never, rows],
      outSpecs: rows,
    });
    const of = (fn: (v: nn.Variables, a: Tensor) => Tensor) =>
      valueAndGrad((v: nn.Variables, a: Tensor) => np.sum(np.sin(fn(v, a))), { argnums: [0, 1] });
    const wanted = jit(of((v, a) => layer.apply(v, a).output))(variables, x);
    await expectTreeClose(jit(of(local), { mesh })(variables, x), wanted, agreement.gradient);
  });

  test("initialised inside of shardMap as on one device", async () => {
    const layer = nn.MoE({ numExperts: 4, features: 8 });
    const mesh = Mesh.create({ expert: 2, model: 2 });
    const inner = P("expert", null, "model");
    const params = { router: P(), gate: inner, up: inner, down: P("expert", "model") };
    const init = shardMap((a: Tensor) => layer.init(random.key(0), a), {
      mesh,
      inSpecs: P("expert"),
      outSpecs: { params } as never,
      checkReplication: false,
    });
    await expectTreeClose(init(x), layer.init(random.key(0), x), agreement.value);
  });
});

describe("at the edges", () => {
  const layerOf = (config: Partial<MoEConfig> = {}) => nn.MoE({ numExperts: 4, features: 8, ...config });
  const onTwo = <R>(fn: (v: nn.Variables, a: Tensor) => R, v: nn.Variables, a: Tensor): R => {
    const mesh = Mesh.create({ expert: 2 });
    return withMesh(mesh, () => (jit(fn as never, { mesh }) as typeof fn)(v, a));
  };

  test.each([
    ["one token", [2, 1, 6]],
    ["an odd length", [2, 7, 6]],
  ])("%s", async (_, shape) => {
    const layer = layerOf();
    const a = random.normal(random.key(3), shape);
    const variables = layer.init(random.key(0), a);
    await expectTreeClose(
      onTwo(gradients(layer), variables, a),
      gradients(layer)(variables, a),
      agreement.gradient,
    );
  });

  test("all tokens to one expert, the others without any", async () => {
    const layer = layerOf({ numExpertsPerToken: 1 });
    const variables = layer.init(random.key(0), x);
    const params = variables.params as Record<string, Tensor>;
    const router = np.zeros([width, 4]).at(0, 1).set(1);
    const v = { params: { ...params, router } } as unknown as nn.Variables;
    const positive = np.abs(x).add(0.1);
    const result = onTwo((w, a) => layer.apply(w, a), v, positive);
    expect(await np.max(result.router.load, 0).js()).toEqual([0, 1, 0, 0]);
    await expectClose(result.output, loop(v, positive, 1));
    const [, [grads]] = onTwo(gradients(layer), v, positive);
    const gate = (grads.params as Record<string, Tensor>).gate ?? x;
    const size = np.max(np.abs(gate), [1, 2]);
    expect(await np.greater(size, 0).js()).toEqual([false, true, false, false]);
  });

  test("capacity 0 drops everything", async () => {
    const layer = layerOf({ capacityFactor: 0 });
    const { output, router } = onTwo((v, a) => layer.apply(v, a), layer.init(random.key(0), x), x);
    expect(await np.max(np.abs(output)).js()).toBe(0);
    expect(await np.min(router.dropped).js()).toBe(1);
  });

  test("capacity 0 drops everything on a mesh, where no row is sent", async () => {
    const layer = nn.MoE({ numExperts: 4, features: 8, capacityFactor: 0 });
    const variables = layer.init(random.key(0), x);
    const mesh = Mesh.create({ expert: 2, model: 2 });
    const onMesh = withMesh(mesh, () => jit(gradients(layer), { mesh })(variables, x));
    await expectTreeClose(onMesh, jit(gradients(layer))(variables, x), agreement.gradient);
  });

  test("NaN in one token stays in that token", async () => {
    const layer = layerOf();
    const variables = layer.init(random.key(0), x);
    const bad = x.at(1, 2, 0).set(Number.NaN);
    const { output } = onTwo((v, a) => layer.apply(v, a), variables, bad);
    const isBad = np.any(np.isnan(output), -1);
    expect(await np.sum(isBad.astype("int32")).js()).toBe(1);
    const clean = layer.apply(variables, x).output;
    const others = np.where(np.expandDims(isBad, -1), 0, output);
    await expectClose(others, np.where(np.expandDims(isBad, -1), 0, clean));
  });

  test("tokens that are NaN throughout choose different experts, the first ones", async () => {
    const layer = layerOf();
    const variables = layer.init(random.key(0), x);
    const { router } = onTwo((v, a) => layer.apply(v, a), variables, np.full(x.shape, Number.NaN));
    expect(await np.mean(router.load, 0).js()).toEqual([0.5, 0.5, 0, 0]);
  });

  test("jitter needs a key and changes the choice", async () => {
    const layer = layerOf({ jitter: 0.5 });
    const variables = layer.init(random.key(0), x);
    const plain = layer.apply(variables, x).output;
    await expectClose(plain, layerOf().apply(variables, x).output);
    const jittered = layer.with({ rngs: { jitter: random.key(5) } }).apply(variables, x).output;
    expect(await np.max(np.abs(jittered.sub(plain))).js()).toBeGreaterThan(0.01);
  });

  test("counts that do not divide are named", () => {
    const layer = nn.MoE({ numExperts: 3, features: 8 });
    const variables = layer.init(random.key(0), x);
    expect(() => onTwo((v, a) => layer.apply(v, a).output, variables, x)).toThrow(
      '[MoE] 3 experts do not split over axis "expert" (3 / 2 = 1.50): use a multiple of 2',
    );
    const four = layerOf();
    const odd = np.ones([3, 2, 6]);
    expect(() => onTwo((v, a) => four.apply(v, a).output, four.init(random.key(0), odd), odd)).toThrow(
      "[MoE] a batch of 3 rows does not split over the axes expert (3 / 2 = 1.50): use a multiple of 2",
    );
    expect(() =>
      nn.MoE({ numExperts: 2, features: 8, numExpertsPerToken: 3 }).init(random.key(0), x),
    ).toThrow("[MoE] numExpertsPerToken is 3: use an integer from 1 to the number of experts, 2");
  });

  test("the same bits in every run on the same mesh", async () => {
    const layer = layerOf({ numExpertsPerToken: 2 });
    const variables = layer.init(random.key(0), x);
    const run = async () =>
      tree.leaves(onTwo(gradients(layer), variables, x)).map((leaf) => (leaf as Tensor).data());
    const [first, second] = [await Promise.all(await run()), await Promise.all(await run())];
    expect(second).toEqual(first);
  });
});
