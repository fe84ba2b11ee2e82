import { grad, type Tensor } from "shardwise";
import { expect, test } from "vitest";
import { encode } from "../../src/ir/dtype.js";
import type { StoredArray } from "../../src/train/files/safetensors/safetensorsBytes.js";
import { differenceFromJax } from "./compare.js";
import { functionRecords } from "./functions.js";
import { type JaxProgram, lossOf, toTensor, weightOf } from "./programs.js";

const float32 = (values: ArrayLike<number>): StoredArray => ({
  dtype: "float32",
  shape: [values.length],
  data: encode("float32", Array.from(values)),
});

/** Functions one after the other. */
function chained(names: readonly string[], values: readonly number[]): JaxProgram {
  const steps = names.map((name, i) => {
    const record = functionRecords.find((known) => known.name === name);
    if (!record) throw new Error(`${name} is missing`);
    return { record, args: [i], params: {} };
  });
  const { dtype, shape, data } = float32(values);
  return { name: names.join(" → "), inputs: [{ type: { dtype, shape }, data }], steps };
}

/** The gradient of a program as it comes out here, and as it would without rounding. */
async function gradientsOf(program: JaxProgram) {
  const inputs = program.inputs.map(toTensor);
  const weight = toTensor(weightOf(0, { shape: [3] }));
  const gradient = (args: readonly Tensor[]) => grad(lossOf(program, weight))(...args);
  const wide = gradient(inputs.map((x) => x.astype("float64")));
  return { got: await gradient(inputs).data(), exact: Array.from(await wide.data()) };
}

const place = { number: 0, what: "grad/0", valueShape: [3] };

test("a gradient that loses its digits may lose others in JAX, and no more than that", async () => {
  const program = chained(["tanh", "rad2deg", "tanh", "tanh"], [0.05, 0.13, 0.14]);
  const { got, exact } = await gradientsOf(program);
  const off = Math.max(...exact.map((x, i) => Math.abs(Number(got[i]) / x - 1)));
  expect(off).toBeGreaterThan(0.01);
  const judge = (want: readonly number[]) =>
    differenceFromJax(program, place, float32(Array.from(got, Number)), float32(want));
  expect(await judge(exact)).toBeUndefined();
  expect(await judge(exact.map((x) => 1.5 * x))).toMatch(/differs at element/);
  expect(await judge(exact.map((x, i) => (i === 0 ? 1.001 * x : x)))).toMatch(/differs at element 0/);
});

test("a gradient that keeps its digits is refused when it is 1e-4 off", async () => {
  const program = chained(["tanh", "tanh"], [0.5, 1, -2]);
  const { got, exact } = await gradientsOf(program);
  const judge = (factor: number) =>
    differenceFromJax(program, place, float32(Array.from(got, (x) => factor * Number(x))), float32(exact));
  expect(await judge(1)).toBeUndefined();
  expect(await judge(1.0001)).toMatch(/differs at element .* of it, element/);
});

test("a 16-bit float may be what JAX computes in float32 rather than what it rounds at every step", async () => {
  const program = chained(["tanh", "tanh"], [0.5, 1, -2]);
  const bfloat16 = (values: readonly number[]): StoredArray => ({
    dtype: "bfloat16",
    shape: [values.length],
    data: encode("bfloat16", values),
  });
  const [right, off] = [bfloat16([0.431, 0.642, -0.746]), bfloat16([0.45, 0.642, -0.746])];
  for (const what of ["value", "vmap"]) {
    const judge = (got: StoredArray, want: StoredArray, wide?: StoredArray) =>
      differenceFromJax(program, { number: 0, what, valueShape: [3] }, got, want, wide);
    expect(await judge(right, off, right)).toBeUndefined();
    await expect(judge(right, off)).resolves.toMatch(/differs at element 0/);
    await expect(judge(off, right, right)).resolves.toMatch(/differs at element 0/);
  }
});
