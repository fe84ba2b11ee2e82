import { encode, type HostTensor, numbersOf } from "../../src/engines/reference/hostTensor.js";
import { evaluate } from "../../src/engines/reference/interpret.js";
import type { Context, Lanes } from "../../src/engines/reference/rule.js";
import { type DType, isFloat, roundTo } from "../../src/ir/dtype.js";
import { attentionBackwardProgram, attentionProgram } from "../../src/ir/expansions/attention.js";
import { xlaProgram } from "../../src/ir/expansions/xlaFunctions.js";
import { axesSize, type MeshShape } from "../../src/ir/mesh.js";
import type { Atom, Eqn, Program } from "../../src/ir/program.js";
import { at, range, sizeOf, type TensorType } from "../../src/ir/shape.js";
import { scatteredBy } from "./floatBits.js";
import { errorLevels, localErrors } from "./localErrors.js";

/** One way to round. */
export interface Rounding {
  readonly seed: number;
  /** Whether ops may be joined. */
  readonly joinsOps: boolean;
  /** Whether values keep the digits of a float64, as between joined ops, instead of being rounded to their types. */
  readonly keepsDigits: boolean;
}

/** A perturbed loop that goes on so much longer has lost its end. */
const MAX_EQUATIONS = 5_000_000;

const wide = ({ dtype, shape }: TensorType): TensorType => ({
  dtype: isFloat(dtype) ? "float64" : dtype,
  shape,
});

const widened = (tensor: HostTensor): HostTensor =>
  isFloat(tensor.type.dtype) ? encode(wide(tensor.type), Float64Array.from(numbersOf(tensor))) : tensor;

/** The smaller ops that one is made of, if each of them rounds to the types that the operands have here. */
function composedOf({ op, ins, params }: Eqn): Program | undefined {
  const types = ins.map(({ type }) => type);
  if (op === "attention") return attentionProgram(params, types);
  if (op === "attentionBackward") return attentionBackwardProgram(params, types);
  // Of float64 it is the plain function, which is as exact as that promises; of narrower floats it has certain bits.
  if (op === "xlaFunction" && at(types, 0).dtype === "float64") return xlaProgram(params, types);
  return undefined;
}

const narrowed = (tensor: HostTensor, dtype: DType): HostTensor =>
  isFloat(dtype) ? encode({ dtype, shape: tensor.type.shape }, Float64Array.from(numbersOf(tensor))) : tensor;

/**
 * Interprets a program with the reference engine's rules in float64, moving every float result by a random part of
 * the error that its op may make. The same values are moved alike on all devices, and between runs of one seed.
 *
 * @returns for every output one tensor per device, of the program's types
 */
export function interpretPerturbed(
  program: Program,
  mesh: MeshShape,
  inputs: readonly (readonly HostTensor[])[],
  rounding: Rounding,
): HostTensor[][] {
  const run = new PerturbedRun(rounding);
  const lanes = inputs.map((row) => row.map(widened));
  const context: Context = {
    mesh,
    devices: range(axesSize(mesh.axes)),
    limitLoop: () => () => {},
    run: (inner, values, here) => run.program(inner, values, here, []),
  };
  const given = program.inputs.map(({ id }) => id);
  const outputs = run.program(program, lanes, context, given);
  return outputs.map((row, i) => row.map((tensor) => narrowed(tensor, at(program.outputs, i).type.dtype)));
}

class PerturbedRun {
  private numEquations = 0;

  constructor(private readonly rounding: Rounding) {}

  /** @param given the values that no rounding has touched: what an op makes of them is rounded correctly */
  program(program: Program, inputs: readonly Lanes[], context: Context, given: readonly number[]): Lanes[] {
    const values = new Map<number, Lanes>();
    const read = (atom: Atom): Lanes => {
      if (atom.kind === "literal") {
        const scalar = widened(encode(atom.type, Float64Array.of(atom.value)));
        return context.devices.map(() => scalar);
      }
      return values.get(atom.id) ?? [];
    };
    program.inputs.forEach(({ id }, i) => {
      values.set(id, at(inputs, i));
    });
    program.eqns.forEach((eqn, place) => {
      if (++this.numEquations > MAX_EQUATIONS) throw new Error("a perturbed program does not end");
      const isGiven = eqn.ins.every((atom) => atom.kind === "literal" || given.includes(atom.id));
      const results = this.equation(eqn, eqn.ins.map(read), context, { place, isGiven });
      eqn.outs.forEach(({ id }, i) => {
        values.set(id, at(results, i));
      });
    });
    return program.outputs.map(read);
  }

  private equation(
    eqn: Eqn,
    ins: readonly Lanes[],
    context: Context,
    { place, isGiven }: { readonly place: number; readonly isGiven: boolean },
  ): Lanes[] {
    const { op, ins: atoms, outs, params } = eqn;
    const types = outs.map(({ type }) => type);
    const program = composedOf(eqn);
    if (program) {
      const given = isGiven ? program.inputs.map(({ id }) => id) : [];
      return this.program(program, ins, context, given);
    }
    if (op === "bitcast" || op === "xlaFunction" || op === "roundFloat8") {
      const own = ins.map((lanes, i) => lanes.map((x) => narrowed(x, at(atoms, i).type.dtype)));
      return evaluate(op, own, params, types, context).map((lanes) => lanes.map(widened));
    }
    const wideTypes = types.map(wide);
    const results = evaluate(op, ins, params, wideTypes, context);
    const { kind } = errorLevels[op];
    if (kind === "body" || kind === "exact") return results;
    return results.map((lanes, out) => {
      const { dtype } = at(types, out);
      if (!isFloat(dtype)) return lanes;
      const { joinsOps } = this.rounding;
      const evaluation = {
        op,
        params,
        ins,
        types: wideTypes,
        context,
        results: lanes,
        dtype,
        isGiven,
        joinsOps,
      };
      const errors = localErrors(evaluation);
      const moved = new Map<HostTensor, HostTensor>();
      return lanes.map((tensor, lane) => {
        const known = moved.get(tensor) ?? this.settle(tensor, dtype, place, errors?.[lane]);
        moved.set(tensor, known);
        return known;
      });
    });
  }

  /** Every element moved by a part of its error, and rounded or at least brought into the range of its type. */
  private settle(
    { type, data }: HostTensor,
    dtype: DType,
    place: number,
    errors: Float64Array | undefined,
  ): HostTensor {
    const { seed, keepsDigits } = this.rounding;
    const values = new Float64Array(sizeOf(type.shape));
    for (let i = 0; i < values.length; i++) {
      const x = Number(data[i]);
      const moved = Number.isFinite(x) ? x + (errors?.[i] ?? 0) * scatteredBy(seed, place, i, x) : x;
      const nearest = roundTo(dtype, moved);
      values[i] = keepsDigits && Number.isFinite(nearest) ? moved : nearest;
    }
    return { type, data: values };
  }
}
