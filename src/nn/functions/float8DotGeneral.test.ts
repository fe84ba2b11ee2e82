import { grad, jit, jvp, Mesh, np, P, random, type Tensor, vmap } from "shardwise";
import { Dense, float8DotGeneral } from "shardwise/nn";
import { describe, expect, test } from "vitest";
import { roundToFloat8 } from "../../ir/expansions/float8.js";
import { type Float8, float8Types } from "../../ir/ops.js";
import * as ops from "../../trace/ops.js";

const dims = { lhsContract: [1], rhsContract: [0] };
const product = (x: Tensor, y: Tensor) => float8DotGeneral(x, y, dims);

/** Values rounded with the smallest power of two as scale by which the largest fits. */
function rounded(values: readonly number[], format: Float8): number[] {
  const max = format === "e5m2" ? 57_344 : 448;
  const scale = 2 ** Math.ceil(Math.log2(Math.max(...values.map(Math.abs)) / max));
  return values.map((x) => roundToFloat8(x / scale, format) * scale);
}

/** The tensor of the rounded values. */
async function roundedTensor(x: Tensor, format: Float8): Promise<Tensor> {
  return np.array(rounded(Array.from(await x.data(), Number), format), x.dtype).reshape(x.shape);
}

const numbers = async (x: Tensor) => Array.from(await x.data(), Number);

describe("a product of float8 factors", () => {
  const x = random.normal(random.key(0), [6, 16]).mul(300);
  const y = random.normal(random.key(1), [16, 4]).mul(2 ** -40);

  test("is the product of factors that are scaled and rounded to e4m3", async () => {
    const expected = np.matmul(await roundedTensor(x, "e4m3fn"), await roundedTensor(y, "e4m3fn"));
    expect(await numbers(product(x, y))).toEqual(await numbers(expected));
  });

  test("has gradients of the same factors, and of cotangents that are scaled and rounded to e5m2", async () => {
    const weights = random.normal(random.key(2), [6, 4]).mul(1e6);
    const loss = (x: Tensor, y: Tensor) => np.sum(product(x, y).mul(weights));
    const [dx, dy] = jit(grad(loss, { argnums: [0, 1] }))(x, y);
    const [a, b] = [await roundedTensor(x, "e4m3fn"), await roundedTensor(y, "e4m3fn")];
    const ct = await roundedTensor(weights, "e5m2");
    expect(await numbers(dx)).toEqual(await numbers(np.matmul(ct, np.transpose(b))));
    expect(await numbers(dy)).toEqual(await numbers(np.matmul(np.transpose(a), ct)));
  });

  test("is exact for numbers that float8 represents, with a scale at the end of its range", async () => {
    for (const largest of [448, 224, 480, 1.75, 2, 2 ** 100, 1.75 * 2 ** -60]) {
      const values = np.array([[largest, -largest / 8, 0]]);
      const results = await numbers(product(values, np.array([[1], [2], [4]])));
      expect(results).toEqual([rounded([largest], "e4m3fn").map((x) => x - largest / 4)[0]]);
    }
  });

  test("scales no more than needed, so that small values are kept", async () => {
    // The smallest value of e4m3 beside the largest, and beside one for which it is divided by 2.
    for (const [largest, kept] of [
      [448, 2 ** -9],
      [449, 0],
    ] as const) {
      const values = np.array([[largest, 2 ** -9]]);
      expect(await numbers(product(values, np.array([[0], [1]])))).toEqual([kept]);
    }
  });

  test("is 0 for zeros and NaN for what is not finite", async () => {
    expect(await numbers(product(np.zeros([1, 2]), np.ones([2, 1])))).toEqual([0]);
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      expect(await numbers(product(np.array([[value, 1]]), np.ones([2, 1])))).toEqual([Number.NaN]);
    }
  });

  test("has a scale for each product of a batch, and results in the type of its factors", async () => {
    const batch = np.stack([x, x.mul(2 ** 30)]).astype("bfloat16");
    const w = y.astype("bfloat16");
    const each = vmap((one: Tensor) => product(one, w))(batch);
    expect(each.dtype).toBe("bfloat16");
    const [first, second] = [product(batch.get(0), w), product(batch.get(1), w)];
    expect(await numbers(each)).toEqual([...(await numbers(first)), ...(await numbers(second))]);
    expect(await numbers(second)).toEqual((await numbers(first)).map((value) => value * 2 ** 30));
  });

  test("has one scale for a tensor, however it is split", async () => {
    const mesh = Mesh.create({ data: 2, model: 2 });
    const large = x.mul(np.array([1, 1, 1, 1, 1, 2 ** 20]).reshape([6, 1]));
    const split = { mesh, inShardings: [P("data"), P(null, "model")] } as const;
    expect(await numbers(jit(product, split)(large, y))).toEqual(await numbers(product(large, y)));
    expect(await numbers(product(large, y))).not.toEqual(
      await numbers(np.concatenate([product(large.get(np.s(0, 3)), y), product(large.get(np.s(3, 6)), y)])),
    );
  });

  test("rounds in a way that derivatives pass through unchanged", async () => {
    for (const format of float8Types) {
      const round = (x: Tensor) => ops.roundFloat8(x, format);
      const tangent = random.normal(random.key(4), [6, 16]);
      expect(await numbers(jvp(round, [x], [tangent])[1])).toEqual(await numbers(tangent));
      const weighted = grad((x: Tensor) => np.sum(round(x).mul(tangent)));
      expect(await numbers(weighted(x))).toEqual(await numbers(tangent));
    }
  });

  test("needs types with the exponents of float32", () => {
    const half = np.ones([2, 2], "float16");
    expect(() => product(half, half)).toThrow(/cannot scale f16\[2,2\]: use bfloat16 or float32/);
    expect(() => product(np.ones([2, 2], "int32"), half)).toThrow(/cannot scale i32\[2,2\]/);
  });

  test("is what linear layers compute with it", async () => {
    const layer = Dense({ features: 5, dotGeneral: float8DotGeneral });
    const variables = layer.init(random.key(3), x);
    const { kernel } = variables.params as { readonly kernel: Tensor };
    expect(await numbers(layer.apply(variables, x))).toEqual(await numbers(product(x, kernel)));
  });
});
