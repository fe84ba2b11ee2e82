import { expect } from "vitest";
import { type HostTensor, hostTensor, numbersOf } from "../../src/engines/reference/hostTensor.js";
import { interpretSpmd } from "../../src/engines/reference/interpret.js";
import { type DType, isFloat } from "../../src/ir/dtype.js";
import { axesSize, type MeshShape } from "../../src/ir/mesh.js";
import {
  type Atom,
  type Eqn,
  mapInnerPrograms,
  newLiteral,
  newVar,
  type Program,
  type Var,
} from "../../src/ir/program.js";
import { at, formatType, range, sizeOf, type TensorType } from "../../src/ir/shape.js";
import { verify } from "../../src/ir/verify.js";
import { vjpProgram } from "../../src/transforms/derivatives/grad.js";
import { isNear } from "./near.js";

const wideDType = (dtype: DType): DType => (dtype === "float32" ? "float64" : dtype);
const wideType = ({ dtype, shape }: TensorType): TensorType => ({ dtype: wideDType(dtype), shape });

/** The same program in float64 wherever it was in float32, so that differences of its values have digits. */
export function widen(program: Program): Program {
  const vars = new Map<number, Var>();
  const define = (variable: Var): Var => {
    const wide = newVar(wideType(variable.type));
    vars.set(variable.id, wide);
    return wide;
  };
  const read = (atom: Atom): Atom => {
    if (atom.kind === "literal") return newLiteral(atom.value, wideDType(atom.type.dtype));
    const wide = vars.get(atom.id);
    if (!wide) throw new Error("a program reads a value that was never defined");
    return wide;
  };
  const inputs = program.inputs.map(define);
  const eqns = program.eqns.map((eqn): Eqn => {
    const widened = widenParams(mapInnerPrograms(eqn, widen));
    return { ...widened, ins: eqn.ins.map(read), outs: eqn.outs.map(define) };
  });
  return verify({ inputs, eqns, outputs: program.outputs.map(read) });
}

function widenParams(eqn: Eqn): Eqn {
  switch (eqn.op) {
    case "convert":
      return { ...eqn, params: { dtype: wideDType(eqn.params.dtype) } };
    case "iota":
      return { ...eqn, params: { ...eqn.params, dtype: wideDType(eqn.params.dtype) } };
    case "raggedDot":
      return { ...eqn, params: { ...eqn.params, dtype: wideDType(eqn.params.dtype) } };
    case "dotGeneral":
      return { ...eqn, params: { ...eqn.params, dtype: wideDType(eqn.params.dtype) } };
    default:
      return eqn;
  }
}

/** A tensor of random values between `low` and `high`, integers unless its type is a float. */
export function randomHost(type: TensorType, low: number, high: number, random: () => number): HostTensor {
  const draw = () => {
    const value = low + random() * (high - low);
    return isFloat(type.dtype) ? value : Math.floor(value);
  };
  return hostTensor(type.dtype, type.shape, range(sizeOf(type.shape)).map(draw));
}

/** For every input of a program one block for each device of a mesh. */
export type Blocks = readonly (readonly HostTensor[])[];

/** How {@link expectNumericGradients} compares. */
export interface NumericOptions {
  /** The step of the central differences. */
  readonly step?: number;
  /** How far derivatives may be apart, relative to the larger of 1 and the derivative. */
  readonly tolerance?: number;
}

/** How many random directions are tried for each input. */
const NUM_DIRECTIONS = 2;

/**
 * Compares the derivative of a float64 program with central differences, for each input along random directions that
 * move all of its elements on all devices. The loss is the sum of all float results of all devices, each element
 * weighted by a random number.
 */
export function expectNumericGradients(
  program: Program,
  mesh: MeshShape,
  inputs: Blocks,
  random: () => number,
  { step = 1e-6, tolerance = 1e-5 }: NumericOptions = {},
): void {
  const devices = range(axesSize(mesh.axes));
  const floatOuts = program.outputs.filter(({ type }) => isFloat(type.dtype));
  const weights = floatOuts.map(({ type }) => devices.map(() => randomHost(type, -1, 1, random)));
  const loss = (values: Blocks): number => {
    const outs = interpretSpmd(program, mesh, values).filter((_, i) =>
      isFloat(at(program.outputs, i).type.dtype),
    );
    return sum(outs.map((blocks, i) => dot(blocks, at(weights, i))));
  };
  const { forward, backward, residuals } = vjpProgram(program);
  verify(forward);
  verify(backward);
  const kept = interpretSpmd({ ...forward, outputs: residuals }, mesh, inputs);
  const gradients = interpretSpmd(backward, mesh, [...kept, ...weights]);
  let next = 0;
  program.inputs.forEach(({ type }, i) => {
    if (!isFloat(type.dtype)) return;
    const gradient = at(gradients, next++);
    const slopesAlong = (direction: readonly HostTensor[]) => {
      const moved = (by: number): Blocks =>
        inputs.map((blocks, other) =>
          other === i ? blocks.map((block, d) => moveAlong(block, at(direction, d), by)) : blocks,
        );
      const numeric = (loss(moved(step)) - loss(moved(-step))) / (2 * step);
      const vjp = dot(gradient, direction);
      return { vjp, numeric, areNear: isNear(vjp, numeric, tolerance * Math.max(1, Math.abs(numeric))) };
    };
    for (let tried = 0; tried < NUM_DIRECTIONS; tried++) {
      const direction = devices.map(() => randomDirection(type, random));
      if (slopesAlong(direction).areNear) continue;
      const wrong = unitDirections(type, devices.length).find(({ along }) => !slopesAlong(along).areNear);
      const { name, along } = wrong ?? { name: "all elements at once", along: direction };
      const { vjp, numeric } = slopesAlong(along);
      expect.fail(`input ${i} ${formatType(type)}, ${name}: vjp ${vjp}, numeric ${numeric}`);
    }
  });
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

/** The sum of products of the elements of two lists of tensors, one for each device. */
function dot(a: readonly HostTensor[], b: readonly HostTensor[]): number {
  const products = a.map((block, device) => {
    const other = numbersOf(at(b, device));
    return sum(numbersOf(block).map((value, j) => value * at(other, j)));
  });
  return sum(products);
}

/** Moves every element, and no two so alike that what is wrong with them cancels. */
function randomDirection({ dtype, shape }: TensorType, random: () => number): HostTensor {
  const draw = () => (random() < 0.5 ? -1 : 1) * (0.5 + random() / 2);
  return hostTensor(dtype, shape, range(sizeOf(shape)).map(draw));
}

/** Directions that move one element on one device, to say which of them is wrong. */
function unitDirections({ dtype, shape }: TensorType, numDevices: number) {
  const size = sizeOf(shape);
  const unit = (i: number, device: number) =>
    range(size).map((element) => Number(device * size + element === i));
  return range(numDevices * size).map((i) => ({
    name: `device ${Math.floor(i / size)}, element ${i % size}`,
    along: range(numDevices).map((device) => hostTensor(dtype, shape, unit(i, device))),
  }));
}

function moveAlong(tensor: HostTensor, direction: HostTensor, by: number): HostTensor {
  const along = numbersOf(direction);
  const values = numbersOf(tensor).map((value, j) => value + by * at(along, j));
  return hostTensor(tensor.type.dtype, tensor.type.shape, values);
}
