import { callHost } from "../../ir/callbacks.js";
import { positionAlong } from "../../ir/mesh.js";
import { at } from "../../ir/shape.js";
import { zeros } from "./hostTensor.js";
import { type EvalRule, takeLane } from "./rule.js";

/** Devices call one after the other; along the axes of `once`, only the first device calls. */
const callback: EvalRule<"callback"> = (ins, { fn, once }, types, { mesh, devices }) => {
  const names = once.map(({ name }) => name);
  const results = devices.map((device, lane) => {
    if (positionAlong(mesh, device, names) !== 0) return types.map(zeros);
    const operands = takeLane(ins, lane).map(({ type, data }) => ({ type, data: data.slice() }));
    const outs = callHost(fn, operands, types);
    return types.map((type, i) => ({ type, data: at(outs, i) }));
  });
  return types.map((_, i) => results.map((result) => at(result, i)));
};

/** Reference rules of host callbacks. */
export const callbackRules = { callback };
