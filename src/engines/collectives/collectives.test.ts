import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type CollectiveCase,
  collectiveProgram,
  collectiveSpec,
  handProgram,
  place,
} from "../../../test/support/threadsPrograms.js";
import {
  allocateHost,
  type DType,
  fromBfloat16Bits,
  fromFloat16Bits,
  type HostData,
  roundTo,
  toBfloat16Bits,
  toFloat16Bits,
} from "../../ir/dtype.js";
import { deviceGroups, type MeshShape } from "../../ir/mesh.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { ThreadsEngine } from "../threads/engine.js";
import { planStaging } from "./collectives.js";

const encode = (dtype: DType, value: number): number =>
  dtype === "bfloat16" ? toBfloat16Bits(value) : dtype === "float16" ? toFloat16Bits(value) : value;
const decode = (dtype: DType, stored: number): number =>
  dtype === "bfloat16" ? fromBfloat16Bits(stored) : dtype === "float16" ? fromFloat16Bits(stored) : stored;

/** So many values of one element after the other hold all that {@link elements} has. */
const PERIOD = 211;

/** Values that round differently when they are added in another order. */
function elements(dtype: DType, n: number, device: number): number[] {
  const value = (i: number): number => {
    const integer = ((i * 37 + device * 101) % PERIOD) - 100;
    if (dtype === "bool") return integer & 1;
    if (dtype === "uint32") return (integer * 50_000_000) >>> 0;
    if (dtype === "int32") return integer * 10_000_000;
    return roundTo(dtype, integer * 0.37 * (dtype === "float16" ? 1 : 10 ** (device % 4)));
  };
  const values = range(Math.min(n, PERIOD)).map(value);
  const all: number[] = [];
  for (let i = 0; i < n; i++) all.push(at(values, i % PERIOD));
  return all;
}

const combineTwo = {
  sum: (a: number, b: number) => a + b,
  max: (a: number, b: number) => Math.max(a, b),
  min: (a: number, b: number) => Math.min(a, b),
};

/** Element `i` of all blocks, combined in their order. */
function combined({ dtype, combine = "sum" }: CollectiveCase, xs: readonly number[][], i: number): number {
  const wide: DType = dtype === "bfloat16" || dtype === "float16" ? "float32" : dtype;
  let total = at(at(xs, 0), i);
  for (let k = 1; k < xs.length; k++) {
    const both = combineTwo[combine](total, at(at(xs, k), i));
    total = dtype === "bool" ? both : roundTo(wide, both);
  }
  return roundTo(dtype, total);
}

function expected(mesh: MeshShape, given: CollectiveCase, sources: readonly number[][]): number[][] {
  const results: number[][] = [];
  const { outer, inner } = given;
  for (const group of deviceGroups(mesh, given.axes)) {
    const size = group.length;
    const xs = group.map((position) => at(sources, position));
    const sum = given.kind === "allReduce" ? range(outer * inner).map((i) => combined(given, xs, i)) : [];
    group.forEach((position, me) => {
      results[position] = {
        allReduce: () => sum,
        allGather: () => range(outer).flatMap((o) => xs.flatMap((x) => x.slice(o * inner, (o + 1) * inner))),
        reduceScatter: () =>
          range(outer).flatMap((o) =>
            range(inner).map((i) => combined(given, xs, (o * size + me) * inner + i)),
          ),
        permute: () => {
          const pair = given.permutation?.find(([, to]) => to === me);
          return pair ? at(xs, pair[0]) : range(outer * inner).map(() => 0);
        },
        allToAll: () => xs.flatMap((x) => x.slice(me * inner, (me + 1) * inner)),
      }[given.kind]();
    });
  }
  return results;
}

/** The first difference in words; a full comparison of long lists takes minutes to print. */
function difference(dtype: DType, got: HostData, wanted: readonly number[]): string {
  if (got.length !== wanted.length) return `${got.length} elements instead of ${wanted.length}`;
  for (let i = 0; i < wanted.length; i++) {
    const value = decode(dtype, got[i] ?? Number.NaN);
    if (value !== wanted[i] && !Object.is(value, wanted[i]))
      return `element ${i} of ${got.length} is ${value} instead of ${wanted[i]}`;
  }
  return "";
}

const meshes: readonly (readonly [MeshShape, readonly string[]])[] = [
  [{ axes: [{ name: "a", size: 2 }] }, ["a"]],
  [{ axes: [{ name: "a", size: 3 }] }, ["a"]],
  [
    {
      axes: [
        { name: "a", size: 2 },
        { name: "b", size: 2 },
      ],
    },
    ["a"],
  ],
  [
    {
      axes: [
        { name: "a", size: 2 },
        { name: "b", size: 2 },
      ],
    },
    ["b", "a"],
  ],
  [{ axes: [{ name: "a", size: 1 }] }, ["a"]],
];

const cases: Omit<CollectiveCase, "axes">[] = [
  { kind: "allReduce", dtype: "float32", outer: 1, inner: 7 },
  { kind: "allReduce", dtype: "float32", outer: 1, inner: 30_001 },
  { kind: "allReduce", dtype: "float32", combine: "max", outer: 1, inner: 5000 },
  { kind: "allReduce", dtype: "float64", outer: 3, inner: 1001 },
  { kind: "allReduce", dtype: "bfloat16", outer: 1, inner: 33 },
  { kind: "allReduce", dtype: "bfloat16", outer: 1, inner: 30_001 },
  { kind: "allReduce", dtype: "float16", combine: "sum", outer: 1, inner: 9003 },
  { kind: "allReduce", dtype: "float16", combine: "min", outer: 1, inner: 3 },
  { kind: "allReduce", dtype: "int32", outer: 1, inner: 4097 },
  { kind: "allReduce", dtype: "uint32", combine: "max", outer: 1, inner: 4097 },
  { kind: "allReduce", dtype: "bool", combine: "min", outer: 1, inner: 5003 },
  { kind: "allReduce", dtype: "bool", combine: "max", outer: 1, inner: 1 },
  { kind: "allGather", dtype: "float32", outer: 1, inner: 9 },
  { kind: "allGather", dtype: "float32", outer: 5, inner: 1 },
  { kind: "allGather", dtype: "float32", outer: 7, inner: 2001 },
  { kind: "allGather", dtype: "bool", outer: 3, inner: 5 },
  { kind: "reduceScatter", dtype: "float32", outer: 1, inner: 5 },
  { kind: "reduceScatter", dtype: "float32", outer: 4, inner: 3003 },
  { kind: "reduceScatter", dtype: "bfloat16", outer: 3, inner: 1111 },
  { kind: "reduceScatter", dtype: "int32", outer: 2, inner: 3 },
  { kind: "permute", dtype: "float32", outer: 1, inner: 3, permutation: [[0, 1]] },
  {
    kind: "permute",
    dtype: "float32",
    outer: 1,
    inner: 20_000,
    permutation: [
      [0, 1],
      [1, 0],
    ],
  },
  { kind: "permute", dtype: "float64", outer: 1, inner: 5000, permutation: [[1, 1]] },
  { kind: "allToAll", dtype: "float32", outer: 1, inner: 11 },
  { kind: "allToAll", dtype: "float16", outer: 1, inner: 7777 },
];

describe.each(["shared", "separate"] as const)("collectives in %s memory", (layout) => {
  let engine: ThreadsEngine;
  beforeAll(() => {
    engine = new ThreadsEngine({ numDevices: 4, memoryBytes: 64 * 2 ** 20, deadlineMs: 60_000 }, { layout });
  });
  afterAll(() => engine.close());

  const sizeOfMesh = (mesh: MeshShape) => mesh.axes.reduce((n, { size }) => n * size, 1);

  const upload = (dtype: DType, values: readonly number[], device: number) => {
    const data: HostData = allocateHost(dtype, values.length);
    values.forEach((value, i) => {
      data[i] = encode(dtype, value);
    });
    return engine.upload(tensorType(dtype, [values.length]), data, device);
  };

  test.each(meshes)("give every member of %j over %j its result", async (mesh, axes) => {
    const positions = range(sizeOfMesh(mesh));
    const devices = [...positions].reverse();
    const groupSize = at(deviceGroups(mesh, axes), 0).length;
    for (const chosen of cases) {
      const permutation = chosen.permutation?.filter((pair) => pair.every((i) => i < groupSize));
      const given: CollectiveCase = { ...chosen, axes, ...(permutation && { permutation }) };
      const program = collectiveProgram(mesh, given);
      const length = at(program.inputs, 0).type.shape[0] ?? 0;
      const sources = positions.map((p) => elements(given.dtype, length, p));
      const run = engine.load(program, { mesh, devices });
      const inputs = positions.map((p) => upload(given.dtype, at(sources, p), at(devices, p)));
      const [outputs] = run.execute([inputs]);
      const results = await Promise.all((outputs ?? []).map((buffer) => engine.download(buffer)));
      const wanted = expected(mesh, given, sources);
      results.forEach((result, p) => {
        expect(
          difference(given.dtype, result, at(wanted, p)),
          `${JSON.stringify(given)} at position ${p}`,
        ).toBe("");
      });
      for (const buffer of [...inputs, ...(outputs ?? [])]) engine.release(buffer);
    }
  });

  test.each([16, 40_000])("may repeat in loops, overlap and work in place (%d elements)", async (n) => {
    const mesh = { axes: [{ name: "a", size: 4 }] };
    const type = tensorType("float32", [n]);
    const bytes = 4 * n;
    const reduce = { kind: "allReduce", dtype: "float32", axes: ["a"], outer: 1, inner: n } as const;
    const rotate = {
      kind: "permute",
      dtype: "float32",
      axes: ["a"],
      outer: 1,
      inner: n,
      permutation: range(4).map((i) => [i, (i + 1) % 4] as const),
    } as const;
    // x is input and result (slots 0, 1); y is the other result (slot 2), z an arena value (slot 3). Each round
    // takes the maximum of all x in place while x was sent on before: y = rotated y, x = max(x).
    const program = handProgram("ring", [type, type], [type, type], {
      arenaBytes: bytes,
      slots: [{ kind: "arena", offset: 0 }],
      collectives: [
        collectiveSpec(mesh, { ...reduce, combine: "max" }, 2, 2),
        collectiveSpec(mesh, rotate, 3, 4),
      ],
      steps: [
        { op: "copy", source: place(0), target: place(2), bytes, info: 0 },
        { op: "copy", source: place(1), target: place(3), bytes, info: 0 },
        {
          op: "loop",
          count: 101,
          sets: [],
          body: [
            { op: "start", collective: 1, info: 0 },
            { op: "start", collective: 0, info: 0 },
            { op: "done", collective: 0, info: 0 },
            { op: "done", collective: 1, info: 0 },
            { op: "copy", source: place(4), target: place(3), bytes, info: 0 },
          ],
          advances: [],
          swaps: [],
          info: 0,
        },
      ],
    });
    const run = engine.load(program, { mesh, devices: range(4) });
    const x = range(4).map((d) => upload("float32", elements("float32", n, d), d));
    const y = range(4).map((d) => upload("float32", elements("float32", n, d + 4), d));
    let outputs = run.execute([x, y]);
    for (let i = 0; i < 5; i++) {
      const next = run.execute(outputs);
      for (const buffer of outputs.flat()) engine.release(buffer);
      outputs = next;
    }
    const [xs = [], ys = []] = outputs;
    const turns = (101 * 6) % 4;
    const given = range(4).map((d) => elements("float32", n, d));
    const largest = range(n).map((i) => Math.max(...given.map((values) => at(values, i))));
    for (const d of range(4)) {
      expect(difference("float32", await engine.download(at(xs, d)), largest)).toBe("");
      const from = (d - turns + 4) % 4;
      const rotated = elements("float32", n, from + 4);
      expect(difference("float32", await engine.download(at(ys, d)), rotated)).toBe("");
    }
  });
});

describe("copies of messages", () => {
  const mesh = { axes: [{ name: "pipe", size: 4 }] };
  const message = (inner: number, ...permutation: (readonly [number, number])[]) =>
    collectiveSpec(
      mesh,
      { kind: "permute", dtype: "float32", axes: ["pipe"], outer: 1, inner, permutation },
      0,
      1,
    );
  const [inner, bytes] = [16_384, 65_536];

  test("lie at the same place where nobody sends two of them", () => {
    const right = range(3).map((i) => message(inner, [i, i + 1]));
    const left = range(3).map((i) => message(inner, [i + 1, i]));
    const { offsets, bytes: all } = planStaging([...right, ...left], false);
    expect(offsets).toEqual([0, 0, 0, 2 * bytes, 2 * bytes, 0]);
    expect(all).toBe(4 * bytes);
    const other = planStaging([message(inner, [0, 1]), message(inner / 2, [1, 2])], false);
    expect(other.offsets, "of another size").toEqual([0, 2 * bytes]);
  });

  test("are made where somebody only sends or only reads, or both ways between some, and not around a ring", () => {
    const ring = message(inner, ...range(4).map((i) => [i, (i + 1) % 4] as const));
    const both = { ...message(inner, [0, 1], [1, 0]), unset: true as const };
    const line = message(inner, [0, 1], [1, 2]);
    expect(planStaging([ring, both, line], false).offsets).toEqual([undefined, 0, 2 * bytes]);
  });
});
