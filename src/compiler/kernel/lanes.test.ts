import { expect, test } from "vitest";
import { BASELINE_FEATURES } from "../wasm/features.js";
import { VecBuilder } from "../wasm/vectorProgram.js";
import { bitcast } from "./lanes.js";

test("bits are moved only between the two 16-bit floats; all else has them where the other type wants them", () => {
  const types = ["float32", "bfloat16", "float16", "int32", "uint32"] as const;
  const moved = types.flatMap((from) =>
    types
      .filter((to) => {
        const builder = new VecBuilder(BASELINE_FEATURES);
        const x = builder.input(0);
        return bitcast(builder, x, from, to) !== x;
      })
      .map((to) => `${from} to ${to}`),
  );
  expect(moved).toEqual(["bfloat16 to float16", "float16 to bfloat16"]);
});
