import { expect, test } from "vitest";
import { BASELINE_FEATURES } from "../wasm/features.js";
import { VecBuilder } from "../wasm/vectorProgram.js";
import { bitcast } from "./lanes.js";

test("bits are moved only between types narrower than a lane; all else has them where the other type wants them", () => {
  const sameWidth = [
    ["float32", "int32", "uint32"],
    ["bfloat16", "float16", "int16", "uint16"],
    ["int8", "uint8"],
  ] as const;
  const moved = sameWidth.map((types) =>
    types.flatMap((from) =>
      types.filter((to) => {
        const builder = new VecBuilder(BASELINE_FEATURES);
        const x = builder.input(0);
        return bitcast(builder, x, from, to) !== x;
      }),
    ),
  );
  expect(moved.map(({ length }) => length)).toEqual([0, 4 * 3, 2]);
});
