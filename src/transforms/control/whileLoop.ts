import { need } from "../../ir/arguments.js";
import { DTypeError } from "../../ir/errors.js";
import { joinAxes, varyingAlong, varyingAxes } from "../../ir/infer/varying.js";
import { at, formatType, type TensorType } from "../../ir/shape.js";
import { bind } from "../../trace/builder.js";
import { commonTarget } from "../../trace/executionTarget.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { flattenArgs, type TracedTree, traceTree } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { checkTypes, scan } from "./scan.js";
import { checkMeetings, markOutputs, settleCarry } from "./varyingTypes.js";

/**
 * Repeats a function of a carried value while a condition on it holds. The number of iterations is known
 * only when the program runs, so it has no reverse derivative; use `scan` or `foriLoop` for that. A number takes the type
 * that the body gives it.
 *
 * @example
 * ```ts
 * lax.whileLoop((x) => np.less(x, 100), (x) => x.mul(2), np.array(3)); // 192
 * ```
 */
export function whileLoop<C>(condition: (carry: C) => Tensor, body: (carry: C) => C, init: C): C;
export function whileLoop(
  condition: (carry: Tensor) => Tensor,
  body: (carry: Tensor) => Tensor,
  init: number,
): Tensor;
export function whileLoop<C>(condition: (carry: C) => Tensor, body: (carry: C) => C, init: C): C {
  need("function", condition, "condition", "whileLoop");
  need("function", body, "body", "whileLoop");
  const carry = flattenArgs(init, "whileLoop");
  const structure: tree.Structure = { kind: "array", children: [carry.structure] };
  const {
    traced,
    init: first,
    types,
  } = settleCarry(carry.tensors, (given) => {
    const loop = traceLoop(condition, body, carry.structure, structure, given);
    // Devices that leave the loop at different times have different carries.
    const leaves = varyingAxes(at(loop.test.program.outputs, 0).type);
    const after = loop.step.program.outputs.map(({ type }) =>
      varyingAlong(type, joinAxes([varyingAxes(type), leaves])),
    );
    return [loop, after];
  });
  const { test, step } = traced;
  checkTypes(types, step.program.outputs, "whileLoop");
  checkMeetings(at(test.program.outputs, 0).type, [test.program, step.program], "whileLoop", "condition");
  const params = {
    condition: test.program,
    body: markOutputs(step.program, types.map(varyingAxes)),
    numConditionConsts: test.captures.length,
    numBodyConsts: step.captures.length,
  };
  const operands = [...test.captures, ...step.captures, ...first];
  const results = bind("while", operands, params, commonTarget([test.target, step.target]));
  return tree.unflatten<C>(carry.structure, results);
}

function traceLoop<C>(
  condition: (carry: C) => Tensor,
  body: (carry: C) => C,
  carry: tree.Structure,
  structure: tree.Structure,
  types: readonly TensorType[],
): { readonly test: TracedTree; readonly step: TracedTree } {
  const test = traceTree(condition, structure, types, "whileLoop");
  const [verdict] = test.program.outputs;
  if (
    test.program.outputs.length !== 1 ||
    verdict?.type.dtype !== "bool" ||
    verdict.type.shape.length !== 0
  ) {
    const got = test.program.outputs.map(({ type }) => formatType(type)).join(", ");
    throw new DTypeError(`[whileLoop] the condition must return one bool scalar, it returned ${got}`);
  }
  const step = traceTree(body, structure, types, "whileLoop");
  tree.checkSameStructure(
    carry,
    step.outStructure,
    "whileLoop",
    "the carry",
    "the carry that the body returns",
  );
  return { test, step };
}

/**
 * `for (i = lower; i < upper; i++) carry = body(i, carry)`. With plain numbers as bounds it can be
 * differentiated; with tensors it is a {@link whileLoop}.
 *
 * @example
 * ```ts
 * lax.foriLoop(0, 3, (i, x) => x.mul(2), np.array(1)); // 8
 * ```
 */
export function foriLoop<C>(
  lower: number | Tensor,
  upper: number | Tensor,
  body: (i: Tensor, carry: C) => C,
  init: C,
): C;
export function foriLoop(
  lower: number | Tensor,
  upper: number | Tensor,
  body: (i: Tensor, carry: Tensor) => Tensor,
  init: number,
): Tensor;
export function foriLoop<C>(
  lower: number | Tensor,
  upper: number | Tensor,
  body: (i: Tensor, carry: C) => C,
  init: C,
): C {
  need("function", body, "body", "foriLoop");
  if (typeof lower === "number" && typeof upper === "number") {
    need("integer", lower, "lower", "foriLoop");
    need("integer", upper, "upper", "foriLoop");
    const length = Math.max(0, upper - lower);
    const indices = ops.add(ops.iota("int32", [length], 0), lower);
    const [last] = scan<C, Tensor, null>((carry, i) => [body(i, carry), null], init, indices);
    return last;
  }
  const bound = (value: number | Tensor) =>
    typeof value === "number" ? Tensor.scalar(value, "int32") : ops.convert(value, "int32");
  const end = bound(upper);
  const [, last] = whileLoop<[Tensor, C]>(
    ([i]) => ops.compare("lt", i, end),
    ([i, carry]) => [ops.add(i, 1), body(i, carry)],
    [bound(lower), init],
  );
  return at([last], 0);
}
