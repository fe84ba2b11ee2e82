import { describe, expect, test } from "vitest";
import { detectFeatures } from "../../src/compiler/wasm/features.js";
import { enableRelaxedSimd } from "../../src/engines/system/v8Flags.js";
import type { DType } from "../../src/ir/dtype.js";
import { range } from "../../src/ir/shape.js";
import { verify } from "../../src/ir/verify.js";
import { findDifference, randomInputs } from "./differential.js";
import { randomProgram } from "./randomProgram.js";

enableRelaxedSimd();
const features = detectFeatures();
const count = Number(process.env.FUZZ_PROGRAMS ?? 100);
const first = Number(process.env.SEED ?? 0);

describe("compiled programs agree with the reference engine", () => {
  const mesh = { axes: [] };

  test("random programs of all data types", () => {
    for (const seed of range(count).map((i) => first + i)) {
      const program = randomProgram({ seed, numEqns: 4 + (seed % 20) });
      verify(program, "partitioned");
      const donated = program.inputs.map((_, i) => (seed + i) % 3 === 0);
      const bfloat16Products = seed % 2 === 0;
      const difference = findDifference(program, randomInputs(program, mesh, seed), {
        ...{ mesh, donated, features, bfloat16Products },
      });
      expect(difference, `seed ${seed}`).toBeUndefined();
    }
  }, 600_000);

  test("random float32 programs, which fuse most", () => {
    const types: DType[] = ["float32", "int32", "bool"];
    for (const seed of range(count).map((i) => first + 100_000 + i)) {
      const program = randomProgram({ seed, numEqns: 10 + (seed % 30), types });
      verify(program, "partitioned");
      const difference = findDifference(program, randomInputs(program, mesh, seed), { mesh, features });
      expect(difference, `seed ${seed}`).toBeUndefined();
    }
  }, 600_000);

  test("random programs on a mesh", () => {
    const axes = [
      { name: "x", size: 2 },
      { name: "y", size: 2 },
    ];
    for (const seed of range(count / 2).map((i) => first + 200_000 + i)) {
      const program = randomProgram({ seed, numEqns: 4 + (seed % 16), axes });
      verify(program, "partitioned");
      const inputs = randomInputs(program, { axes }, seed);
      const difference = findDifference(program, inputs, { mesh: { axes } });
      expect(difference, `seed ${seed}`).toBeUndefined();
    }
  }, 600_000);
});
