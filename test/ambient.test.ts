import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { createReferenceEngine } from "../src/engines/reference/engine.js";
import { disableJit, jit, Mesh, namedScope, np, P, random, type Tensor, withMesh } from "../src/index.js";
import { type AnyAmbient, ambientValues } from "../src/ir/ambient.js";
import * as nn from "../src/nn/index.js";
import "../src/parallel/index.js";
import { createRuntime } from "../src/spmd/run/execute.js";
import { isTracing } from "../src/trace/builder.js";

/** Two values for each that is part of the key; a new one has to be entered here. */
const samples: Readonly<Record<string, readonly [unknown, unknown]>> = {
  "bound axes": [[{ name: "a", size: 2 }], [{ name: "a", size: 2, checked: true }]],
  "order of derivatives": [1, 2],
  runtime: [createRuntime(createReferenceEngine()), createRuntime(createReferenceEngine())],
  "engine's name": ["reference", "threads"],
  mesh: [
    Mesh.create({ a: 2 }, { engine: createReferenceEngine() }),
    Mesh.create({ b: 2 }, { engine: createReferenceEngine() }),
  ],
  "logical axis rules": [[["batch", "data"]], [["batch", "model"]]],
  "disabled jit": [true, false],
};

const keyed = ambientValues().filter(({ declaration }) => "key" in declaration.dependence);
const named = (values: readonly AnyAmbient[]) =>
  values.map((value) => [value.declaration.name, value] as const);

/** Runs `fn` with a value of a type that only its table knows. */
const under = <R>(ambient: AnyAmbient, value: unknown, fn: () => R): R => ambient.within(value as never, fn);

describe("the registry of ambient state", () => {
  test("has every value that the sources declare", () => {
    const root = fileURLToPath(new URL("../src/", import.meta.url));
    const sources = readdirSync(root, { recursive: true, encoding: "utf8" }).filter(
      (path) => path.endsWith(".ts") && !path.endsWith(".test.ts"),
    );
    const texts = sources.map((path) => readFileSync(root + path, "utf8"));
    const numDeclared = texts.join("\n").match(/new Ambient[<(]/g)?.length;
    expect(ambientValues()).toHaveLength(numDeclared ?? 0);
  });

  test("has a sample of every value that is part of the key of traces", () => {
    expect(Object.keys(samples).sort()).toEqual(keyed.map(({ declaration }) => declaration.name).sort());
  });

  test.each(named(ambientValues()))("says how traces depend on %s", (_, { declaration }) => {
    const { dependence } = declaration;
    if ("key" in dependence) return;
    expect("once" in dependence ? dependence.once : dependence.unkeyed).toMatch(/\w+ \w+ \w+/);
  });
});

describe.each(named(keyed))("a compiled function under another %s", (name, ambient) => {
  const values = samples[name] ?? [];

  test("is traced once for each value, whether called or lowered", () => {
    let numTraced = 0;
    const f = jit((x: Tensor) => {
      if (isTracing()) numTraced++;
      return x.add(1);
    });
    const traces = [...values, ...values].map((value) =>
      under(ambient, value, () => {
        const before = numTraced;
        const x = np.array([1, 2]);
        f(x);
        f(x);
        f.lower(x);
        return numTraced - before;
      }),
    );
    expect(traces).toEqual([1, 1, 0, 0]);
  });

  test("has the value before again after an error", () => {
    const before = ambient.keyText();
    const fail = () => {
      throw new Error("on purpose");
    };
    expect(() => under(ambient, values[0], fail)).toThrow("on purpose");
    expect(ambient.keyText()).toBe(before);
  });
});

describe("a compiled function", () => {
  const mesh = Mesh.create({ data: 2, model: 2 }, { engine: createReferenceEngine() });

  test("follows the rules of logical names under which it is called", () => {
    const f = jit((x: Tensor) => nn.withLogicalConstraint(x.mul(2), ["batch"]));
    const x = np.ones([4]);
    const specUnder = (axis: string) =>
      withMesh(mesh, () => nn.logicalAxisRules([["batch", axis]], () => String(f(x).sharding?.spec)));
    expect(["data", "model", "data"].map(specUnder)).toEqual([P("data"), P("model"), P("data")].map(String));
  });

  test("is not kept with variables of the module that called it", async () => {
    const dense = (x: Tensor) => nn.Dense({ features: 1, useBias: false })(x);
    const compiled = jit(dense);
    const Model = nn.module(
      "Model",
      ({ call }: { call: typeof dense }) =>
        (x: Tensor) =>
          call(x),
    );
    const x = np.ones([1, 2]);
    const plain = Model({ call: dense });
    for (const seed of [0, 1]) {
      const variables = plain.init(random.key(seed), x);
      const expected = await plain.apply(variables, x).data();
      expect(await Model({ call: compiled }).apply(variables, x).data()).toEqual(expected);
    }
  });

  test("tells static arguments apart by every character and sign", () => {
    const seen: unknown[] = [];
    const f = jit(
      (x: Tensor, a: unknown, b: unknown) => {
        seen.push([a, b]);
        return x;
      },
      { staticArgnums: [1, 2] },
    );
    const calls = [
      [0, 1],
      [-0, 1],
      ["a | string b", "c"],
      ["a", "b | string c"],
    ];
    for (const [a, b] of [...calls, ...calls]) f(np.array(0), a, b);
    expect(seen).toEqual(calls);
  });
});

describe("a function that returns a promise", () => {
  const mesh = Mesh.create({ data: 2 }, { engine: createReferenceEngine() });
  const later = async () => np.ones([2]);

  test.each([
    ["withMesh", () => withMesh(mesh, later)],
    ["nn.logicalAxisRules", () => nn.logicalAxisRules([], later)],
    ["disableJit", () => disableJit(later)],
    ["namedScope", () => namedScope("a", later)],
  ])("is refused by %s, whose value would be gone when it goes on", (name, call) => {
    expect(call).toThrow(`[${name}] its function returned a promise`);
  });
});
