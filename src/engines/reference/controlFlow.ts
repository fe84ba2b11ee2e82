import { allocateHost } from "../../ir/dtype.js";
import type { OpParams } from "../../ir/ops.js";
import { at, range, sizeOf, type TensorType, tensorType } from "../../ir/shape.js";
import { type HostTensor, scalarOf } from "./hostTensor.js";
import { type Context, type EvalRule, type Lanes, narrow, takeLanes } from "./rule.js";

/** Slice `i` along dim 0, sharing the tensor's memory. */
function sliceAt({ type, data }: HostTensor, i: number): HostTensor {
  const shape = type.shape.slice(1);
  const size = sizeOf(shape);
  return { type: tensorType(type.dtype, shape), data: data.subarray(i * size, (i + 1) * size) };
}

/** Slices put together along a new dim 0. */
function stack(slices: readonly HostTensor[], type: TensorType): HostTensor {
  const data = allocateHost(type.dtype, sizeOf(type.shape));
  const size = sizeOf(type.shape.slice(1));
  slices.forEach((slice, i) => {
    data.set(slice.data, i * size);
  });
  return { type, data };
}

function scan(
  ins: readonly Lanes[],
  { body, length, reverse, numConsts, numCarry }: OpParams["scan"],
  types: readonly TensorType[],
  context: Context,
): Lanes[] {
  const consts = ins.slice(0, numConsts);
  const xs = ins.slice(numConsts + numCarry);
  let carry = ins.slice(numConsts, numConsts + numCarry);
  const steps = new Array<readonly Lanes[]>(length);
  for (const k of range(length)) {
    const i = reverse ? length - 1 - k : k;
    const slices = xs.map((lanes) => lanes.map((x) => sliceAt(x, i)));
    const outs = context.run(body, [...consts, ...carry, ...slices], context);
    carry = outs.slice(0, numCarry);
    steps[i] = outs.slice(numCarry);
  }
  const ys = types.slice(numCarry).map((type, y) =>
    context.devices.map((_, lane) =>
      stack(
        steps.map((step) => at(at(step, y), lane)),
        type,
      ),
    ),
  );
  return [...carry, ...ys];
}

/** Each device leaves the loop when its own condition fails; the others continue in lock step. */
function whileLoop(
  ins: readonly Lanes[],
  { condition, body, numConditionConsts, numBodyConsts }: OpParams["while"],
  context: Context,
): Lanes[] {
  const conditionConsts = ins.slice(0, numConditionConsts);
  const bodyConsts = ins.slice(numConditionConsts, numConditionConsts + numBodyConsts);
  const carry = ins.slice(numConditionConsts + numBodyConsts).map((lanes) => [...lanes]);
  let active = range(context.devices.length);
  const look = context.limitLoop();
  for (;;) {
    look();
    const conditionIns = takeLanes([...conditionConsts, ...carry], active);
    const flags = at(context.run(condition, conditionIns, narrow(context, active)), 0);
    active = active.filter((_, i) => scalarOf(at(flags, i)) !== 0);
    if (active.length === 0) return carry;
    const outs = context.run(body, takeLanes([...bodyConsts, ...carry], active), narrow(context, active));
    outs.forEach((lanes, value) => {
      active.forEach((lane, i) => {
        at(carry, value)[lane] = at(lanes, i);
      });
    });
  }
}

/** Devices that take the same branch run it in lock step. */
function cond(
  index: Lanes,
  operands: readonly Lanes[],
  { branches }: OpParams["cond"],
  types: readonly TensorType[],
  context: Context,
): Lanes[] {
  const chosen = index.map((i) => Math.min(Math.max(scalarOf(i), 0), branches.length - 1));
  const results = types.map(() => new Array<HostTensor>(chosen.length));
  branches.forEach((branch, b) => {
    const lanes = range(chosen.length).filter((lane) => chosen[lane] === b);
    if (lanes.length === 0) return;
    const outs = context.run(branch, takeLanes(operands, lanes), narrow(context, lanes));
    results.forEach((result, value) => {
      lanes.forEach((lane, i) => {
        result[lane] = at(at(outs, value), i);
      });
    });
  });
  return results;
}

type ControlOp = "scan" | "while" | "cond" | "remat" | "customVjp";

/** Reference rules of the ops that run programs; remat and custom derivatives do not affect the forward pass. */
export const controlFlowRules: { readonly [K in ControlOp]: EvalRule<K> } = {
  scan,
  while: (ins, params, _types, context) => whileLoop(ins, params, context),
  cond: (ins, params, types, context) => cond(at(ins, 0), ins.slice(1), params, types, context),
  remat: (ins, { body }, _types, context) => context.run(body, ins, context),
  customVjp: (ins, { body }, _types, context) => context.run(body, ins, context),
};
