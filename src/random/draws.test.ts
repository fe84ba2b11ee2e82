import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { jit, random, type Tensor } from "shardwise";
import { expect, test } from "vitest";
import { type DType, encode } from "../ir/dtype.js";

interface Draws {
  readonly name: string;
  readonly seed: number;
  readonly dtype: DType;
  readonly sha256: string;
}

const draws: readonly Draws[] = JSON.parse(
  readFileSync(new URL("../../test/jax/draws.json", import.meta.url), "utf8"),
);

function sample({ name, dtype }: Draws, key: Tensor): Tensor {
  const [kind, lower, upper] = name.split(" ");
  if (kind === "normal") return random.normal(key, [10_000], dtype);
  if (kind === "exponential") return random.exponential(key, [10_000], dtype);
  return random.truncatedNormal(key, Number(lower), Number(upper), [10_000], dtype);
}

async function digest(x: Tensor): Promise<string> {
  const data = encode(x.dtype, await x.data());
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return createHash("sha256").update(bytes).digest("hex");
}

test.each(draws)("10,000 draws of $name in $dtype with seed $seed have the bits of JAX's", async (one) => {
  const key = random.key(one.seed);
  expect(await digest(sample(one, key))).toBe(one.sha256);
  expect(await digest(jit((words: Tensor) => sample(one, words))(key))).toBe(one.sha256);
});
