import { expect } from "vitest";
import { type HostTensor, hostTensor, numbersOf } from "../../src/engines/reference/hostTensor.js";
import { interpretSpmd } from "../../src/engines/reference/interpret.js";
import { isFloat } from "../../src/ir/dtype.js";
import { axesCoordinates, axesSize, type MeshAxis } from "../../src/ir/mesh.js";
import type { Program } from "../../src/ir/program.js";
import { at, range, sizeOf, tensorType } from "../../src/ir/shape.js";
import { verify } from "../../src/ir/verify.js";
import { traceFlat } from "../../src/trace/builder.js";
import type { Tensor } from "../../src/trace/tensor.js";
import { vmapProgram } from "../../src/transforms/batching/vmap.js";
import { oracleFor } from "./agreement.js";
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

/** Element `b` of a batch along dim 0. */
function elementOf({ type, data }: HostTensor, b: number): HostTensor {
  const shape = type.shape.slice(1);
  const size = sizeOf(shape);
  return { type: tensorType(type.dtype, shape), data: data.slice(b * size, (b + 1) * size) };
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
  range(size).forEach((b) => {
    const single = oracleFor(
      program,
      mesh,
      values.map((devices) => devices.map((own) => at(own, b))),
    );
    actual.forEach((devices, out) => {
      devices.forEach((value, device) => {
        const own = result.batchedOutputs[out] ? elementOf(value, b) : value;
        const difference = single.difference(out, device, own);
        if (difference !== undefined) expect.fail(`output ${out}, element ${b}: ${difference}`);
      });
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
  const oracle = oracleFor(verify(program), { axes }, [blocks]);

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
    group.forEach((device, b) => {
      const value = at(actual, other);
      const own = result.batchedOutputs[0] ? elementOf(value, b) : value;
      expect(oracle.difference(0, device, own), `device ${device}`).toBeUndefined();
    });
  });
  return result.program;
}
