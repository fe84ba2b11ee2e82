import { HostFunction } from "../../src/ir/callbacks.js";
import { encode } from "../../src/ir/dtype.js";
import type { OpParams } from "../../src/ir/ops.js";
import { tensorType } from "../../src/ir/shape.js";

/** A pure host callback for the cases of ops: twice a float32[2,3], and its first row. */
const twice = new HostFunction("twice", ([x]) => {
  const values = Array.from(x?.data ?? [], (value) => 2 * Number(value));
  return [encode("float32", values), encode("float32", values.slice(0, 3))];
});

/** The parameters of a call of it. */
export const twiceParams: OpParams["callback"] = {
  fn: twice,
  kind: "pure",
  batching: "sequential",
  results: [tensorType("float32", [2, 3]), tensorType("float32", [3])],
  once: [],
};
