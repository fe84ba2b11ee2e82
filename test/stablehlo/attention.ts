/** Attention as a kernel of the device against products and a softmax, with the same in float32 as the measure. */

import { createXlaEngine } from "../../src/engines/xla/openXla.js";
import { devicePut, grad, jit, Mesh, NamedSharding, P, random, type Tensor } from "../../src/index.js";
import type { DType } from "../../src/ir/dtype.js";
import type { Engine } from "../../src/ir/engine.js";
import { at, range } from "../../src/ir/shape.js";
import { dotProductAttention } from "../../src/nn/functions/dotProductAttention.js";

interface AttentionCase {
  readonly dtype: DType;
  readonly batch: number;
  readonly length: number;
  readonly keyLength: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly headSize: number;
  readonly isCausal: boolean;
}

const first: AttentionCase = {
  dtype: "bfloat16",
  batch: 2,
  length: 128,
  keyLength: 128,
  heads: 4,
  keyHeads: 4,
  headSize: 64,
  isCausal: true,
};

const cases: readonly AttentionCase[] = [
  first,
  { ...first, keyHeads: 2 },
  { ...first, keyHeads: 1, isCausal: false },
  { ...first, dtype: "float16", headSize: 128 },
  { ...first, headSize: 32, length: 100, keyLength: 100 },
  { ...first, isCausal: false, length: 64, keyLength: 192 },
  { ...first, length: 512, keyLength: 512, heads: 8, keyHeads: 2 },
];

const names = ["result", "query", "key", "value"];

/** The result for random operands, and the cotangents of the operands, as numbers. */
async function run(one: AttentionCase, dtype: DType, engine: Engine): Promise<Float32Array[]> {
  const mesh = Mesh.create({ data: 1 }, { engine });
  const { batch, length, keyLength, heads, keyHeads, headSize, isCausal } = one;
  const draw = (seed: number, shape: readonly number[]) =>
    random.normal(random.key(seed), shape).astype(one.dtype).astype(dtype);
  const keyShape = [batch, keyLength, keyHeads, headSize];
  const queryShape = [batch, length, heads, headSize];
  const operands = [draw(0, queryShape), draw(1, keyShape), draw(2, keyShape), draw(3, queryShape)];
  const placed = await Promise.all(operands.map((x) => devicePut(x, new NamedSharding(mesh, P()))));
  const attend = (q: Tensor, k: Tensor, v: Tensor) => dotProductAttention(q, k, v, { isCausal });
  const weighted = (ct: Tensor) => (q: Tensor, k: Tensor, v: Tensor) =>
    attend(q, k, v).astype("float32").mul(ct.astype("float32")).sum();
  const all = jit(
    (q: Tensor, k: Tensor, v: Tensor, ct: Tensor) => [
      attend(q, k, v).astype("float32"),
      ...grad(weighted(ct), { argnums: [0, 1, 2] })(q, k, v).map((x) => x.astype("float32")),
    ],
    { mesh, name: "attention" },
  );
  const results = all(at(placed, 0), at(placed, 1), at(placed, 2), at(placed, 3));
  return Promise.all(results.map(async (x) => Float32Array.from(await x.data())));
}

/** The root of the mean square of differences, and the largest. */
function errorsOf(got: Float32Array, want: Float32Array): { readonly mean: number; readonly worst: number } {
  let [sum, worst] = [0, 0];
  got.forEach((x, i) => {
    const error = Math.abs(x - (want[i] ?? Number.NaN));
    sum += error * error;
    worst = Math.max(worst, Number.isNaN(error) ? Number.POSITIVE_INFINITY : error);
  });
  return { mean: Math.sqrt(sum / got.length), worst };
}

/** Compares all cases; a kernel may be off by twice as much as products that round as often. */
export async function runAttention(
  print: (line: string) => void,
): Promise<{ passed: number; failed: number }> {
  const engines = { fused: createXlaEngine(), plain: createXlaEngine({ attention: "plain" }) };
  const count = { passed: 0, failed: 0 };
  for (const one of cases) {
    const exact = await run(one, "float32", engines.plain);
    const plain = await run(one, one.dtype, engines.plain);
    const fused = await run(one, one.dtype, engines.fused);
    for (const i of range(names.length)) {
      const [own, other] = [errorsOf(at(fused, i), at(exact, i)), errorsOf(at(plain, i), at(exact, i))];
      const isRight = own.mean <= 2 * other.mean && own.worst <= 4 * other.worst;
      count[isRight ? "passed" : "failed"]++;
      const figures = [own.mean, other.mean, own.worst, other.worst].map((x) => x.toExponential(2)).join(" ");
      print(`${isRight ? "ok  " : "FAIL"} ${JSON.stringify(one)} ${at(names, i)}: ${figures}`);
    }
  }
  print(`attention is ${JSON.stringify(engines.fused.info?.())}`);
  await Promise.all(Object.values(engines).map((engine) => engine.close()));
  return count;
}
