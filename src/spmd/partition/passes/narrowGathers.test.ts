import { describe, expect, test } from "vitest";
import { lax, np, type Tensor } from "../../../index.js";
import { forEachEqn, type Program } from "../../../ir/program.js";
import { at } from "../../../ir/shape.js";
import { verify } from "../../../ir/verify.js";
import { traceFlat } from "../../../trace/builder.js";
import * as ops from "../../../trace/ops.js";
import { narrowGathers } from "./narrowGathers.js";

const axes = [{ name: "d", size: 2 }];
const float = (...shape: number[]) => ({ dtype: "float32" as const, shape });

/** The types in which weights of three layers are gathered, if layers use them so. */
function gatheredAs(use: (h: Tensor, w: Tensor) => Tensor, wrap = (w: Tensor) => w): string[] {
  const { program } = traceFlat(
    ([w, x]) => {
      if (!w || !x) return [];
      const whole = wrap(ops.allGather(w, axes, 1));
      return [lax.scan((h: Tensor, own: Tensor): [Tensor, null] => [use(h, own), null], x, whole)[0]];
    },
    [float(3, 2, 4), float(5, 4)],
  );
  const after = narrowGathers(program);
  verify(after, "partitioned");
  return gathers(after);
}

function gathers(program: Program): string[] {
  const found: string[] = [];
  forEachEqn(program, ({ op, outs }) => {
    if (op === "allGather") found.push(at(outs, 0).type.dtype);
  });
  return found;
}

const narrow = (h: Tensor, w: Tensor) =>
  np.matmul(h.astype("bfloat16"), w.astype("bfloat16")).astype("float32");

describe("weights that are gathered", () => {
  test("are converted before, where layers only read them in a narrower type", () => {
    expect(gatheredAs(narrow)).toEqual(["bfloat16"]);
    expect(gatheredAs((h, w) => narrow(h, np.swapaxes(w, 0, 1)))).toEqual(["bfloat16"]);
    expect(gatheredAs(narrow, (w) => at(ops.optimizationBarrier([w]), 0))).toEqual(["bfloat16"]);
    const branch = (h: Tensor, w: Tensor) => lax.cond(np.greater(np.sum(h), 0), narrow, narrow, h, w);
    expect(gatheredAs(branch)).toEqual(["bfloat16"]);
  });

  test("stay as they are where anything reads them so, or in two other types", () => {
    expect(gatheredAs((h, w) => np.matmul(h, w))).toEqual(["float32"]);
    expect(gatheredAs((h, w) => narrow(h, w).add(np.sum(w)))).toEqual(["float32"]);
    expect(gatheredAs((h, w) => narrow(h, w).add(np.sum(w.astype("float16")).astype("float32")))).toEqual([
      "float32",
    ]);
    const branch = (h: Tensor, w: Tensor) =>
      lax.cond(np.greater(np.sum(h), 0), narrow, (a: Tensor, b: Tensor) => np.matmul(a, b), h, w);
    expect(gatheredAs(branch)).toEqual(["float32"]);
  });

  test("stay as they are where a loop carries them, or they leave the program", () => {
    const carried = traceFlat(
      ([w]) => {
        const whole = ops.allGather(w as Tensor, axes, 0);
        return [lax.scan((c: Tensor) => [c, np.sum(c.astype("bfloat16"))], whole, null, { length: 2 })[1]];
      },
      [float(2, 4)],
    );
    expect(gathers(narrowGathers(carried.program))).toEqual(["float32"]);
    const returned = traceFlat(
      ([w]) => {
        const whole = ops.allGather(w as Tensor, axes, 0);
        return [whole, whole.astype("bfloat16")];
      },
      [float(2, 4)],
    );
    expect(gathers(narrowGathers(returned.program))).toEqual(["float32"]);
  });
});
