import { evalShape, grad, jit, jvp, lax, np, type Tensor, vmap } from "shardwise";
import { describe, expect, test } from "vitest";

type TensorLike = np.TensorLike;
const halves = () => np.ones([2], "bfloat16");

describe("a number that is an argument of a traced function", () => {
  const scale = (rate: TensorLike, x: Tensor): Tensor => np.multiply(rate, x);

  test("keeps the type of floats that it is combined with, under every transform", () => {
    expect(jit(scale)(2, halves()).dtype).toBe("bfloat16");
    expect(vmap(scale, { inAxes: [null, 0] })(2, halves()).dtype).toBe("bfloat16");
    expect(vmap(jit(scale), { inAxes: [null, 0] })(2, halves()).dtype).toBe("bfloat16");
    const [value, tangent] = jvp(scale, [2, halves()], [1, halves()]);
    expect([value.dtype, tangent.dtype]).toEqual(["bfloat16", "bfloat16"]);
    expect(evalShape(scale)(2, halves())).toMatchObject({ dtype: "bfloat16", shape: [2] });
    expect(jit(scale)(2, np.ones([2], "float16")).dtype).toBe("float16");
  });

  test("is float32 among numbers and integers", () => {
    expect(jit(scale)(2, np.arange(3)).dtype).toBe("float32");
    expect(jit(scale)(2, np.ones([2], "bool")).dtype).toBe("float32");
    expect(jit((rate: TensorLike) => np.exp(rate))(2).dtype).toBe("float32");
  });

  test("has a float32 gradient", async () => {
    const loss = (rate: TensorLike, x: Tensor) => np.sum(scale(rate, x)).astype("float32");
    const slope = grad(loss)(2, halves()) as Tensor;
    expect([slope.dtype, await slope.item()]).toEqual(["float32", 2]);
  });

  test.each<[string, (rate: Tensor) => Tensor, "bfloat16" | "float32"]>([
    ["exp", (rate) => np.exp(rate), "bfloat16"],
    ["arithmetic with numbers", (rate) => rate.add(1).mul(2).div(3).pow(0.5), "bfloat16"],
    ["where", (rate) => np.where(rate.gt(0), rate, 0), "bfloat16"],
    ["shapes", (rate) => np.stack([rate.reshape([1]).get(0), rate]), "bfloat16"],
    ["zerosLike", (rate) => np.zerosLike(rate), "bfloat16"],
    ["clip", (rate) => np.clip(rate, 0, 1), "bfloat16"],
    ["astype", (rate) => rate.astype("float32"), "float32"],
    ["convertElementType", (rate) => lax.convertElementType(rate, "float32"), "float32"],
    ["a float32 tensor beside it", (rate) => rate.add(np.ones([2])), "float32"],
    ["a float32 constant beside it", (rate) => rate.mul(np.array(2.5, "float32")), "float32"],
    ["a weak constant beside it", (rate) => rate.mul(np.array(2.5)), "bfloat16"],
    ["numbers among themselves", (rate) => rate.mul(np.subtract(1, 0.2)), "bfloat16"],
    ["a sum", (rate) => np.sum(np.broadcastTo(rate, [3])), "float32"],
  ])("stays weakly typed through functions of numbers alone, as in JAX: %s", (_, fn, dtype) => {
    const f = fn as (rate: TensorLike) => Tensor;
    expect(jit((rate: TensorLike, x: Tensor) => f(rate).mul(x))(2, halves()).dtype).toBe(dtype);
    // Also where the result leaves the function, compiled or not.
    expect(jit(f)(2).mul(halves()).dtype).toBe(dtype);
    expect(f(np.array(2)).mul(halves()).dtype).toBe(dtype);
  });

  test("of quantiles and their shares keeps 16-bit floats", () => {
    for (const fn of [np.quantile, np.nanquantile]) expect(fn(halves(), 0.3).dtype).toBe("bfloat16");
    expect(np.percentile(halves(), 30).dtype).toBe("bfloat16");
  });

  test("is traced apart from a float32 tensor of the same shape", () => {
    const compiled = jit(scale);
    const tensor = np.ones([1]).get(0);
    expect(compiled(2, halves()).dtype).toBe("bfloat16");
    expect(compiled(tensor, halves()).dtype).toBe("float32");
    expect(compiled(2, halves()).dtype).toBe("bfloat16");
    expect(compiled(np.array(2, "float32"), halves()).dtype).toBe("float32");
    expect(compiled(3, halves()).dtype).toBe("bfloat16");
  });
});

describe("a number as a carry", () => {
  const xs = np.arange(3).astype("bfloat16");

  test("of scan takes the type of the result", async () => {
    const [last, sums] = lax.scan((c: Tensor, x: Tensor) => [c.add(x), c], 0, xs);
    expect([last.dtype, sums.dtype]).toEqual(["bfloat16", "bfloat16"]);
    expect(await last.item()).toBe(3);
    const [plain] = lax.scan((c: Tensor, x: Tensor) => [c.add(x.sum()), null], 0, np.ones([3, 2]));
    expect(plain.dtype).toBe("float32");
    const [counted] = lax.scan((_: Tensor, x: Tensor) => [x, null], 7, np.arange(3));
    expect([counted.dtype, await counted.item()]).toEqual(["int32", 2]);
    const unrolled = lax.scan((c: Tensor, x: Tensor) => [c.add(x), c], 0, xs, { unroll: 2 });
    expect(unrolled[0].dtype).toBe("bfloat16");
  });

  test("of whileLoop and foriLoop takes the type of the result", async () => {
    const one = np.array(1, "bfloat16");
    const counted = lax.whileLoop(
      (c: Tensor) => c.lt(3),
      (c: Tensor) => c.add(one),
      0,
    );
    expect([counted.dtype, await counted.item()]).toEqual(["bfloat16", 3]);
    expect(lax.foriLoop(0, 3, (_, c: Tensor) => c.add(one), 0.5).dtype).toBe("bfloat16");
    expect(lax.foriLoop(0, np.array(3, "int32"), (_, c: Tensor) => c.add(one), 0.5).dtype).toBe("bfloat16");
    expect(lax.foriLoop(0, 3, (_, c: Tensor) => c.add(1), 0.5).mul(one).dtype).toBe("bfloat16");
  });

  test("is differentiated as the type it took", async () => {
    const f = (start: TensorLike, steps: Tensor) =>
      lax.scan((c: TensorLike, x: Tensor) => [np.multiply(c, x), null], start, steps)[0] as Tensor;
    const slope = grad((start: TensorLike, steps: Tensor) => f(start, steps).astype("float32"))(
      2,
      np.array([2, 3], "bfloat16"),
    ) as Tensor;
    expect([slope.dtype, await slope.item()]).toEqual(["float32", 6]);
  });

  test("keeps its type where it is a tensor, and does not become a fraction's integer part", () => {
    const zero = np.zeros([]);
    expect(() => lax.scan((c: Tensor, x: Tensor) => [c.add(x).astype("bfloat16"), null], zero, xs)).toThrow(
      /leaf 0 comes in as f32\[\] and leaves as bf16\[\]/,
    );
    expect(() => lax.scan((_: Tensor, x: Tensor) => [x, null], 0.5, np.arange(3))).toThrow(
      /comes in as f32\[\] and leaves as i32\[\]/,
    );
  });
});

describe("cond", () => {
  const branch = (predicate: Tensor | number) =>
    lax.cond(
      predicate,
      (x: Tensor) => x.mul(2),
      (x: Tensor) => x,
      np.array(5),
    );

  test("takes numbers: 0 is false, others are true", async () => {
    for (const [predicate, value] of [
      [1, 10],
      [0, 5],
      [-0, 5],
      [0.5, 10],
      [Number.NaN, 10],
    ] as const) {
      expect(await branch(predicate).item()).toBe(value);
      expect(await branch(np.array(predicate)).item()).toBe(value);
      expect(await jit(branch)(np.array(predicate)).item()).toBe(value);
    }
    expect(await branch(np.array(2, "int32")).item()).toBe(10);
    expect(await branch(np.array(-3, "bfloat16")).item()).toBe(10);
  });
});
