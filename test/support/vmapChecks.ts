import { expect } from "vitest";
import { interpretSpmd } from "../../src/engines/reference/interpret.js";
import { type HostTensor, hostTensor, numbersOf } from "../../src/engines/reference/tensor.js";
import { isFloat } from "../../src/ir/dtype.js";
import { axesCoordinates, axesSize, type MeshAxis } from "../../src/ir/mesh.js";
import type { Program } from "../../src/ir/program.js";
import { at, range, sizeOf, tensorType } from "../../src/ir/shape.js";
import { verify } from "../../src/ir/verify.js";
import { traceFlat } from "../../src/trace/builder.js";
import type { Tensor } from "../../src/trace/tensor.js";
import { vmapProgram } from "../../src/transforms/vmap.js";
import { deviceAxis, type TensorOperand } from "./opCases.js";

/** Numbers from 0 to 1 that are the same in every run. */
export function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) | 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}

/** A tensor of random values in the range of an operand. */
export function randomTensor({ type, low, high }: TensorOperand, random: () => number): HostTensor {
  const draw = () => {
    const value = low + random() * (high - low);
    return isFloat(type.dtype) ? value : Math.floor(value);
  };
  return hostTensor(type.dtype, type.shape, range(sizeOf(type.shape)).map(draw));
}

/** Tensors together along a new dim 0. */
function stack(tensors: readonly HostTensor[]): HostTensor {
  const { dtype, shape } = at(tensors, 0).type;
  return hostTensor(dtype, [tensors.length, ...shape], tensors.flatMap(numbersOf));
}

/** Expects the same type and, up to rounding, the same elements. */
export function expectSame(actual: HostTensor, expected: HostTensor): void {
  expect(actual.type).toEqual(expected.type);
  const wanted = numbersOf(expected);
  numbersOf(actual).forEach((value, i) => {
    const want = at(wanted, i);
    if (Object.is(value, want) || value === want) return;
    expect(Math.abs(value - want)).toBeLessThanOrEqual(1e-5 * Math.max(1, Math.abs(want)));
  });
}

const batchSize = 3;

/** Runs a batched program, and the single one on each element, over the devices of a mesh. */
export function expectLikeLoop(
  program: Program,
  operands: readonly TensorOperand[],
  batchedInputs: readonly boolean[],
  random: () => number,
  options: { spmdAxisName?: string; size?: number } = {},
): Program {
  const { size = batchSize, spmdAxisName } = options;
  const mesh = { axes: [deviceAxis] };
  const result = vmapProgram(program, { size, batchedInputs, spmdAxisName });
  verify(result.program);
  // For every operand, device and element of the batch a value; shared operands have one for all elements.
  const values = operands.map((operand, i) =>
    range(deviceAxis.size).map(() => {
      const own = range(size).map(() => randomTensor(operand, random));
      return batchedInputs[i] ? own : own.map(() => at(own, 0));
    }),
  );
  const whole = values.map((devices, i) =>
    devices.map((own) => (batchedInputs[i] ? stack(own) : at(own, 0))),
  );
  const actual = interpretSpmd(result.program, mesh, whole);
  const single = range(size).map((b) =>
    interpretSpmd(
      program,
      mesh,
      values.map((devices) => devices.map((own) => at(own, b))),
    ),
  );
  actual.forEach((devices, out) => {
    devices.forEach((value, device) => {
      const each = single.map((outs) => at(at(outs, out), device));
      if (result.batchedOutputs[out]) expectSame(value, stack(each));
      else for (const expected of each) expectSame(value, expected);
    });
  });
  return result.program;
}

/** An argument that is known to be there. */
export function asTensor(value: Tensor | undefined): Tensor {
  if (!value) throw new Error("a tensor is missing");
  return value;
}

/** Runs a program that talks over the axes on all devices of their mesh, and by mapping over one of the axes. */
export function expectLikeDevices(
  axes: readonly MeshAxis[],
  mapped: string,
  shape: readonly number[],
  fn: (x: Tensor) => Tensor,
  sharedInput = false,
): Program {
  const random = randomNumbers(11);
  const type = tensorType("float32", shape);
  const program = traceFlat(([x]) => [fn(asTensor(x))], [type]).program;
  const place = axes.findIndex(({ name }) => name === mapped);
  const { size } = at(axes, place);
  const others = axes.filter(({ name }) => name !== mapped);
  const coordinates = (device: number) => axesCoordinates(axes, device);
  const devices = range(axesSize(axes));
  const rest = (device: number) =>
    coordinates(device)
      .filter((_, i) => i !== place)
      .join();
  const shared = new Map<string, HostTensor>();
  const blocks = devices.map((device) => {
    const block = randomTensor({ kind: "tensor", type, low: -2, high: 2 }, random);
    if (!sharedInput) return block;
    const known = shared.get(rest(device)) ?? block;
    shared.set(rest(device), known);
    return known;
  });
  const expected = at(interpretSpmd(verify(program), { axes }, [blocks]), 0);

  const result = vmapProgram(program, { size, axisName: mapped, batchedInputs: [!sharedInput] });
  verify(result.program);
  const groups = range(axesSize(others)).map((other) =>
    devices.filter((device) => rest(device) === axesCoordinates(others, other).join()),
  );
  const whole = groups.map((group) => {
    const own = group.map((device) => at(blocks, device));
    return sharedInput ? at(own, 0) : stack(own);
  });
  const actual = at(interpretSpmd(result.program, { axes: others }, [whole]), 0);
  groups.forEach((group, other) => {
    const each = group.map((device) => at(expected, device));
    if (result.batchedOutputs[0]) expectSame(at(actual, other), stack(each));
    else for (const block of each) expectSame(at(actual, other), block);
  });
  return result.program;
}
