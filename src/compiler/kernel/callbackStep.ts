import { callHost, type HostValue } from "../../ir/callbacks.js";
import { viewHost } from "../../ir/dtype.js";
import { at } from "../../ir/shape.js";
import type { CallbackSpec, CallbackStep } from "../steps.js";

/**
 * Calls the function of a callback step with copies of its operands and writes its results.
 *
 * @param addresses where operands and results begin in the memory, in bytes
 */
export function runCallback(
  { fn, ins, outs }: CallbackSpec,
  { places, numOperands }: Pick<CallbackStep, "places" | "numOperands">,
  memory: ArrayBufferLike,
  addresses: readonly number[],
): void {
  const all = new Uint8Array(memory);
  const operands = ins.map((type, i): HostValue => {
    const copy = new Uint8Array(at(places, i).bytes);
    copy.set(all.subarray(at(addresses, i), at(addresses, i) + copy.length));
    return { type, data: viewHost(type.dtype, copy.buffer) };
  });
  callHost(fn, operands, outs).forEach((data, i) => {
    all.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at(addresses, numOperands + i));
  });
}
