import assert from "node:assert";
import { inspect } from "node:util";
import { MessageChannel } from "node:worker_threads";
import { chai, describe, expect, onTestFinished, test, vi } from "vitest";
import { createThreadsEngine } from "../src/engines/index.js";
import {
  complex,
  jit,
  Mesh,
  NamedSharding,
  np,
  P,
  ShapeDtypeStruct,
  shardMap,
  type Tensor,
} from "../src/index.js";
import { createEngine as createTurnsEngine } from "./fixtures/turnsEngine.js";

/** How test libraries compare; each throws when two values differ. */
const comparisons: readonly (readonly [string, (a: unknown, b: unknown) => unknown])[] = [
  ["toEqual", (a, b) => expect(a).toEqual(b)],
  ["toStrictEqual", (a, b) => expect(a).toStrictEqual(b)],
  ["chai's deep.equal", (a, b) => chai.expect(a).to.deep.equal(b)],
  ["chai's assert.deepEqual", (a, b) => chai.assert.deepEqual(a, b)],
  ["assert.deepEqual", (a, b) => assert.deepEqual(a, b)],
  ["assert.deepStrictEqual", (a, b) => assert.deepStrictEqual(a, b)],
];

const triple = jit((x: Tensor | number) => np.multiply(x, 3));

function messageOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  throw new Error("nothing was thrown");
}

describe.each(comparisons)("%s", (_, compare) => {
  test("finds tensors of equal type, shape and values equal, wherever they were computed", () => {
    compare(np.array([1, 2]).mul(3), np.array([3, 6]));
    compare(triple(np.array([1, 2])), triple(np.array([1, 2])));
    compare({ a: [triple(np.array([1, 2]))] }, { a: [np.array([3, 6])] });
    compare(np.array(3), triple(np.array(1)));
    // Whether a value came from numbers alone decides about promotion, not about equality.
    compare(np.sum(np.array([1, 2])), np.array(3));
    compare(triple(np.array([1, 2])).get(1), np.array(6));
    compare(triple(2), np.array(6).astype("float32"));
    compare(np.array([complex(1, 2)]), np.array([complex(1, 2)]));
    compare(np.zeros([0, 3]), np.zeros([0, 3]));
    compare(np.array([1, 2], "bfloat16"), np.array([1, 2], "bfloat16"));
    compare(ShapeDtypeStruct([2], "float32"), ShapeDtypeStruct([2], "float32"));
  });

  test("finds others different, by one value, the type, the shape or having no values", () => {
    const x = triple(np.array([1, 2]));
    const others = [
      np.array([3, 7]),
      np.array([3, 6], "int32"),
      np.array([[3, 6]]),
      np.array([complex(3, 0), complex(6, 0)]),
      ShapeDtypeStruct([2], "float32"),
    ];
    for (const other of others) {
      expect(() => compare(x, other)).toThrow(/equal/i);
      expect(() => compare({ tree: [x] }, { tree: [other] })).toThrow(/equal/i);
    }
    expect(() => compare(np.array([complex(1, 2)]), np.array([complex(1, 3)]))).toThrow(/equal/i);
    expect(() => compare(np.array(1), np.array(2))).toThrow(/equal/i);
  });

  test("takes many elements as one", () => {
    const x = np.arange(100_000);
    compare(x, np.arange(100_000));
    compare(np.where(x.eq(7), Number.NaN, 1), np.where(x.eq(7), Number.NaN, 1));
    for (const i of [0, 77_777, 99_999]) {
      const text = messageOf(() => compare(x, x.at(i).set(-1)));
      expect(text.length).toBeLessThan(3000);
    }
  });
});

test("many elements are compared without looking globals up for each, which is slow in Jest", () => {
  const [multiply, isNan] = [vi.spyOn(Math, "imul"), vi.spyOn(Number, "isNaN")];
  onTestFinished(() => {
    multiply.mockRestore();
    isNan.mockRestore();
  });
  const x = np.arange(5000, "float32");
  expect(x).toEqual(np.arange(5000, "float32"));
  expect(multiply.mock.calls.length + isNan.mock.calls.length).toBeLessThan(5000);
});

test("NaN equals NaN, except for the loose assert.deepEqual of typed arrays", () => {
  for (const [name, compare] of comparisons) {
    if (name === "assert.deepEqual") continue;
    compare(np.array([Number.NaN, -0]), np.array([Number.NaN, -0]));
    expect(() => compare(np.array([-0]), np.array([0]))).toThrow(/equal/i);
  }
});

test("a comparison shows both tensors with their values", () => {
  const x = triple(np.array([1, 2]));
  expect(messageOf(() => expect(x).toEqual(np.array([3, 7])))).toBe(
    "expected Tensor f32[2] [3, 6] to deeply equal Tensor f32[2] [3, 7]",
  );
  expect(messageOf(() => assert.deepStrictEqual(x, np.array([3, 7])))).toContain("+     6\n-     7");
});

test("Jest is told what to copy for its report", () => {
  expect(Reflect.get(np.array(1), Symbol.for("@jest/serializableProperties"))).toEqual([
    "dtype",
    "shape",
    "values",
  ]);
  expect(Object.keys(np.array(1))).toEqual(["dtype", "shape", "values"]);
});

describe.each(comparisons)("%s of shardings", (_, compare) => {
  test("compares axes, devices and specs, and shows nothing of the engine", () => {
    const [a, b] = [Mesh.create({ data: 1 }), Mesh.create({ data: 1 })];
    compare(new NamedSharding(a, P("data")), new NamedSharding(b, P("data")));
    for (const [x, y] of [
      [a, Mesh.create({ model: 1 })],
      [new NamedSharding(a, P("data")), new NamedSharding(a, P())],
    ]) {
      const text = messageOf(() => compare(x, y));
      expect(text).toMatch(/equal/i);
      expect(text).not.toContain("numDevices");
    }
  });
});

test("a clone of a mesh is its axes and devices", () => {
  const mesh = Mesh.create({ data: 1 });
  const axes = [{ name: "data", size: 1 }];
  expect(structuredClone(mesh)).toEqual({ axes, deviceIds: [0], addressablePositions: [0] });
});

describe("while the values are computed on threads", () => {
  const mesh = Mesh.create({ data: 2 }, { engine: createThreadsEngine({ numDevices: 2 }) });
  const slowly = jit(
    shardMap((x: Tensor) => [...Array(20)].reduce((y: Tensor) => np.sin(y.matmul(x)).div(9), x), {
      mesh,
      inSpecs: [P("data")],
      outSpecs: P("data"),
    }),
  );

  test("comparisons, JSON and clones wait for them", () => {
    onTestFinished(() => mesh.engine.close());
    const x = np.ones([2, 300, 300]);
    const [a, b] = [slowly(x), slowly(x)];
    expect(inspect(a)).toContain("being computed");
    expect(a).toEqual(b);
    expect(slowly(x)).not.toEqual(slowly(x.mul(2)));
    expect(JSON.stringify(slowly(x))).toBe(JSON.stringify(a));
    expect(structuredClone(np.sum(slowly(x)))).toEqual({ ...np.sum(a) });
  });
});

test("where an engine cannot be read synchronously, comparing is an error that says what to do", async () => {
  const engine = createTurnsEngine({ numDevices: 1 });
  onTestFinished(() => engine.close());
  const mesh = Mesh.create({ data: 1 }, { engine });
  const f = jit((x: Tensor) => x.add(1), { mesh, outShardings: P() });
  const y = f(np.array([1, 2]));
  for (const [, compare] of comparisons) {
    expect(() => compare(y, np.array([2, 3]))).toThrow(
      "[Tensor] the values of Tensor f32[2] are on a device that cannot be read synchronously: use what `await x.js()`",
    );
  }
  expect(() => JSON.stringify({ y })).toThrow("[Tensor.toJSON] the values of Tensor f32[2]");
  await y.ready();
  expect(y).toEqual(np.array([2, 3]));
});

test("JSON has the values as nested arrays", () => {
  const tree = { w: np.array([[1, 2.5]]), on: np.array([true, false]), z: np.array([complex(1, 2)]) };
  expect(JSON.stringify(tree)).toBe('{"w":[[1,2.5]],"on":[true,false],"z":[{"re":1,"im":2}]}');
  expect(JSON.stringify(triple(np.array(2)))).toBe("6");
});

test("a clone of up to 1000 elements is the dtype, the shape and the values, and larger ones are refused", async () => {
  const clone = { dtype: "float32", shape: [2], values: new Float32Array([3, 6]) };
  expect(structuredClone(triple(np.array([1, 2])))).toEqual(clone);
  const { port1, port2 } = new MessageChannel();
  const received = new Promise((resolve) => port2.once("message", resolve));
  port1.postMessage(np.array([3, 6]));
  expect(await received).toEqual(clone);
  port1.close();
  expect(() => structuredClone(np.zeros([1001]))).toThrow(
    /1001 elements, digest [0-9a-f]{32}, read by `await x\.data\(\)`.* could not be cloned/,
  );
});

test("nothing of a tensor is read or cloned while it is traced or after it is gone", () => {
  jit((x: Tensor) => {
    for (const read of [() => JSON.stringify(x), () => structuredClone(x), () => expect(x).toEqual(x.mul(1))])
      expect(read).toThrow("is a placeholder while its function is being traced");
    return x;
  })(np.array([1, 2]));
  const gone = np.array([1, 2]);
  gone.dispose();
  for (const read of [() => JSON.stringify(gone), () => structuredClone(gone)])
    expect(read).toThrow("this tensor's memory was released");
  expect(inspect(gone)).toBe("Tensor f32[2] (released)");
});

test("a scalar in a template string is its value, and a tensor of a closed engine says why it has none", async () => {
  expect(`loss ${np.array(0.5).mul(3)}`).toBe("loss Tensor f32[] 1.5");
  expect(`${np.zeros([2])}`).toBe("Tensor f32[2]");
  const engine = createThreadsEngine({ numDevices: 1 });
  const mesh = Mesh.create({ data: 1 }, { engine });
  const y = jit((x: Tensor) => x.add(1), { mesh, outShardings: P() })(np.array([1, 2]));
  await y.ready();
  await engine.close();
  expect(inspect(y)).toContain("Tensor f32[2] ([engine] the threads engine is closed");
});
