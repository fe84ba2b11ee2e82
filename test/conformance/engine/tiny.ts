/**
 * XLA on the CPU and GPUs take float32 and bfloat16 numbers below 2⁻¹²⁶ for zero, wherever they come from. So no operand
 * is one, and where the interpreter gives one, zero is as good. Drivers of GPUs may also ignore the sign of a zero.
 */
import { type HostTensor, hostTensor, numbersOf } from "../../../src/engines/reference/hostTensor.js";
import type { EngineCase } from "./cases.js";

const isTiny = (x: number) => x !== 0 && Math.abs(x) < 2 ** -126;

function replaced(tensor: HostTensor, change: (x: number, i: number) => number): HostTensor {
  const { dtype, shape } = tensor.type;
  if (dtype !== "float32" && dtype !== "bfloat16") return tensor;
  return hostTensor(dtype, shape, numbersOf(tensor).map(change));
}

/** The case with zeros in place of tiny operands. */
export function withoutTiny(one: EngineCase): EngineCase {
  const inputs = one.inputs.map((row) => row.map((x) => replaced(x, (n) => (isTiny(n) ? 0 * n : n))));
  return { ...one, inputs };
}

/** What an engine gave, with the interpreter's tiny numbers where it gave zeros instead. */
export function withTinyResults(got: HostTensor, expected: HostTensor): HostTensor {
  const numbers = numbersOf(expected);
  return replaced(got, (x, i) => (x === 0 && isTiny(numbers[i] ?? 0) ? (numbers[i] ?? 0) : x));
}

/** What an engine gave, with the signs that the interpreter's zeros have. */
export function withZeroSigns(got: HostTensor, expected: HostTensor): HostTensor {
  const numbers = numbersOf(expected);
  return replaced(got, (x, i) => (x === 0 && numbers[i] === 0 ? (numbers[i] ?? 0) : x));
}
