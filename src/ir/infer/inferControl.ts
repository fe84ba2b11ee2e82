import { InternalError, ShapeError } from "../errors.js";
import { blockShape, globalShape } from "../mesh.js";
import type { OpName, OpParams } from "../ops.js";
import type { Program } from "../program.js";
import { at, formatType, sameType, type TensorType, tensorType } from "../shape.js";

interface Operand {
  readonly type: TensorType;
}

const types = (operands: readonly Operand[]): TensorType[] => operands.map(({ type }) => type);

/** Checks that operands have the types a body's inputs have. */
function match(op: OpName, what: string, given: readonly TensorType[], wanted: readonly TensorType[]): void {
  if (given.length !== wanted.length) {
    throw new InternalError(`[${op}] ${what}: ${given.length} values for ${wanted.length} inputs`);
  }
  given.forEach((type, i) => {
    const want = at(wanted, i);
    if (!sameType(type, want)) {
      throw new ShapeError(`[${op}] ${what} ${i} is ${formatType(type)} but must be ${formatType(want)}`);
    }
  });
}

function call(op: OpName, ins: readonly Operand[], body: Program): TensorType[] {
  match(op, "operand", types(ins), types(body.inputs));
  return types(body.outputs);
}

function dropLeading(type: TensorType, length: number, op: OpName): TensorType {
  if (type.shape[0] !== length) {
    throw new ShapeError(`[${op}] scanned operand ${formatType(type)} needs a first dim of size ${length}`);
  }
  return tensorType(type.dtype, type.shape.slice(1));
}

/** The type rules of ops that carry programs. */
export const inferControl = {
  call,

  scan(ins: readonly Operand[], p: OpParams["scan"]): TensorType[] {
    const fixed = p.numConsts + p.numCarry;
    const slices = types(ins.slice(fixed)).map((type) => dropLeading(type, p.length, "scan"));
    match("scan", "operand", [...types(ins.slice(0, fixed)), ...slices], types(p.body.inputs));
    const carry = types(ins.slice(p.numConsts, fixed));
    match("scan", "carry", types(p.body.outputs.slice(0, p.numCarry)), carry);
    const stacked = p.body.outputs
      .slice(p.numCarry)
      .map(({ type }) => tensorType(type.dtype, [p.length, ...type.shape]));
    // The body's own types, as an operand may be weakly typed where the carry is not.
    return [...types(p.body.inputs.slice(p.numConsts, fixed)), ...stacked];
  },

  while(ins: readonly Operand[], p: OpParams["while"]): TensorType[] {
    const all = types(ins);
    const carry = all.slice(p.numConditionConsts + p.numBodyConsts);
    const conditionIns = [...all.slice(0, p.numConditionConsts), ...carry];
    match("while", "condition operand", conditionIns, types(p.condition.inputs));
    match("while", "condition", types(p.condition.outputs), [tensorType("bool", [])]);
    match("while", "body operand", all.slice(p.numConditionConsts), types(p.body.inputs));
    match("while", "carry", types(p.body.outputs), carry);
    return types(p.body.inputs.slice(p.numBodyConsts));
  },

  cond(ins: readonly Operand[], { branches }: OpParams["cond"]): TensorType[] {
    match("cond", "index", types(ins.slice(0, 1)), [tensorType("int32", [])]);
    const results = branches.map((branch) => call("cond", ins.slice(1), branch));
    const first = at(results, 0);
    results.forEach((result, i) => {
      match("cond", `branch ${i} result`, result, first);
    });
    return first;
  },

  shardMap(ins: readonly Operand[], p: OpParams["shardMap"]): TensorType[] {
    const blocks = ins.map(({ type }, i) =>
      tensorType(type.dtype, blockShape(type.shape, at(p.inSpecs, i), p.mesh)),
    );
    match("shardMap", "operand block", blocks, types(p.body.inputs));
    return p.body.outputs.map(({ type }, i) =>
      tensorType(type.dtype, globalShape(type.shape, at(p.outSpecs, i), p.mesh)),
    );
  },
};
