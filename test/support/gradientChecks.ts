import { expect } from "vitest";
import { interpretSpmd } from "../../src/engines/reference/interpret.js";
import { type HostTensor, hostTensor, numbersOf } from "../../src/engines/reference/tensor.js";
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
import { vjpProgram } from "../../src/transforms/grad.js";
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
    case "dotGeneral":
      return { ...eqn, params: { ...eqn.params, dtype: wideDType(eqn.params.dtype) } };
    default:
      return eqn;
  }
}

/** A tensor of random values between `low` and `high`, whole numbers unless its type is a float. */
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
  /** At most so many elements of each input are checked. */
  readonly maxElements?: number;
}

/**
 * Compares the derivative of a float64 program with central differences. The loss is the sum of all float
 * results of all devices, each element weighted by a random number.
 */
export function expectNumericGradients(
  program: Program,
  mesh: MeshShape,
  inputs: Blocks,
  random: () => number,
  { step = 1e-6, tolerance = 1e-5, maxElements = 24 }: NumericOptions = {},
): void {
  const devices = range(axesSize(mesh.axes));
  const floatOuts = program.outputs.filter(({ type }) => isFloat(type.dtype));
  const weights = floatOuts.map(({ type }) => devices.map(() => randomHost(type, -1, 1, random)));
  const loss = (values: Blocks): number => {
    const outs = interpretSpmd(program, mesh, values).filter((_, i) =>
      isFloat(at(program.outputs, i).type.dtype),
    );
    let sum = 0;
    outs.forEach((blocks, i) => {
      blocks.forEach((block, device) => {
        const own = numbersOf(at(at(weights, i), device));
        numbersOf(block).forEach((value, j) => {
          sum += value * at(own, j);
        });
      });
    });
    return sum;
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
    const size = sizeOf(type.shape);
    const stride = Math.max(1, Math.ceil(size / maxElements));
    for (const device of devices) {
      const analytic = numbersOf(at(gradient, device));
      for (let element = 0; element < size; element += stride) {
        const shifted = (by: number): Blocks =>
          inputs.map((blocks, other) =>
            other === i ? blocks.map((b, d) => (d === device ? nudge(b, element, by) : b)) : blocks,
          );
        const numeric = (loss(shifted(step)) - loss(shifted(-step))) / (2 * step);
        const got = at(analytic, element);
        const bound = tolerance * Math.max(1, Math.abs(numeric));
        if (isNear(got, numeric, bound)) continue;
        expect.fail(
          `input ${i} ${formatType(type)}, device ${device}, element ${element}: vjp ${got}, numeric ${numeric}`,
        );
      }
    }
  });
}

function nudge(tensor: HostTensor, element: number, by: number): HostTensor {
  const values = numbersOf(tensor);
  values[element] = at(values, element) + by;
  return hostTensor(tensor.type.dtype, tensor.type.shape, values);
}
