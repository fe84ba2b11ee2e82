import { byteSize, type DType, isFloat } from "../../../ir/dtype.js";
import {
  type Atom,
  type Eqn,
  forEachEqn,
  innerPrograms,
  makeEqn,
  mapInnerPrograms,
  mapOperands,
  newVar,
  type Program,
  type Var,
} from "../../../ir/program.js";
import { at } from "../../../ir/shape.js";

/**
 * Gathers values in the type in which they are used: where all readers of a gathered float convert it to the same
 * narrower one, as layers in bfloat16 do with weights in float32, each device converts its block instead. Less is sent
 * and stored, and no result changes.
 */
export function narrowGathers(program: Program): Program {
  let hasGathers = false;
  forEachEqn(program, ({ op }) => {
    hasGathers ||= op === "allGather";
  });
  return hasGathers ? rewritten(program, new Map()) : program;
}

/** Ops whose results have elements of their first operand. */
const movements: ReadonlySet<Eqn["op"]> = new Set<Eqn["op"]>([
  ...(["allGather", "transpose", "reshape", "slice", "dynamicSlice"] as const),
]);

/** The result that has elements of an operand, as they are. */
function movedTo(eqn: Eqn, operand: number): Var | undefined {
  if (eqn.op === "optimizationBarrier") return at(eqn.outs, operand);
  return operand === 0 && movements.has(eqn.op) ? at(eqn.outs, 0) : undefined;
}

/** The operands of a loop or a branch that its bodies take as their inputs. */
function bodyOperands(eqn: Eqn): readonly Atom[] {
  return eqn.op === "cond" ? eqn.ins.slice(1) : eqn.ins;
}

/** Whether the bodies of an equation only read an operand. */
function isOnlyRead(eqn: Eqn, operand: number): boolean {
  if (eqn.op === "cond") return operand > 0;
  if (eqn.op !== "scan") return false;
  const { numConsts, numCarry } = eqn.params;
  return operand < numConsts || operand >= numConsts + numCarry;
}

/** @param types the narrower types that some inputs have now */
function rewritten(program: Program, types: ReadonlyMap<number, DType>): Program {
  /** What stands for values in narrower types, and for what they were converted to. */
  const narrow = new Map<number, Var>();
  const same = new Map<number, Atom>();
  const resolve = (atom: Atom) =>
    atom.kind === "var" ? (narrow.get(atom.id) ?? same.get(atom.id) ?? atom) : atom;
  const typeOf = (atom: Atom) => (atom.kind === "var" ? narrow.get(atom.id)?.type.dtype : undefined);
  const makeNarrow = (value: Var, dtype: DType | undefined): Var => {
    if (dtype) narrow.set(value.id, newVar({ ...value.type, dtype }));
    return narrow.get(value.id) ?? value;
  };
  const inputs = program.inputs.map((input) => makeNarrow(input, types.get(input.id)));
  const eqns = program.eqns.flatMap((eqn): Eqn[] => {
    const inner = mapInnerPrograms(eqn, (body) => {
      const operands = bodyOperands(eqn);
      const known = body.inputs.map(({ id }, i) => [id, operands[i] && typeOf(operands[i])] as const);
      return rewritten(body, new Map(known.flatMap(([id, dtype]) => (dtype ? [[id, dtype]] : []))));
    });
    const own = mapOperands(inner, resolve);
    const [operand, out] = [eqn.ins[0], eqn.outs[0]];
    if (!operand || !out) return [own];
    if (eqn.op === "convert" && typeOf(operand)) {
      same.set(out.id, resolve(operand));
      return [];
    }
    const wanted = eqn.op === "allGather" && !typeOf(operand) ? readAs(program, out) : undefined;
    if (wanted) {
      const block = newVar({ ...operand.type, dtype: wanted });
      const convert = makeEqn("convert", own.ins, [block], { dtype: wanted }, eqn.source);
      return [convert, { ...own, ins: [block], outs: [makeNarrow(out, wanted)] }];
    }
    eqn.ins.forEach((atom, i) => {
      const moved = movedTo(eqn, i);
      if (moved) makeNarrow(moved, typeOf(atom));
    });
    const isMoved = own.outs.some(({ id }) => narrow.has(id));
    return [isMoved ? { ...own, outs: own.outs.map((one) => narrow.get(one.id) ?? one) } : own];
  });
  return { inputs, eqns, outputs: program.outputs.map(resolve) };
}

/** The narrower float to which all readers of a value convert it, if they agree. */
function readAs(program: Program, value: Var): DType | undefined {
  const found = new Set<DType | "as it is">();
  addReaders(program, [value], found);
  const [dtype, ...others] = found;
  if (dtype === undefined || dtype === "as it is" || others.length > 0) return undefined;
  const { dtype: wide } = value.type;
  return isFloat(wide) && isFloat(dtype) && byteSize(dtype) < byteSize(wide) ? dtype : undefined;
}

/** Adds the types to which a program converts some of its values before it computes anything with them. */
function addReaders(program: Program, read: readonly Var[], found: Set<DType | "as it is">): void {
  const marked = new Set(read.map(({ id }) => id));
  const isMarked = (atom: Atom | undefined) => atom?.kind === "var" && marked.has(atom.id);
  for (const eqn of program.eqns) {
    const operands = eqn.ins.flatMap((atom, i) => (isMarked(atom) ? [i] : []));
    if (operands.length === 0) continue;
    const moved = operands.flatMap((i) => movedTo(eqn, i) ?? []);
    if (eqn.op === "convert") found.add(eqn.params.dtype);
    else if (moved.length === operands.length) for (const { id } of moved) marked.add(id);
    else if (operands.every((i) => isOnlyRead(eqn, i))) {
      const isOperand = bodyOperands(eqn).map(isMarked);
      for (const [, body] of innerPrograms(eqn)) {
        const inside = body.inputs.filter((_, i) => isOperand[i]);
        addReaders(body, inside, found);
      }
    } else found.add("as it is");
  }
  if (program.outputs.some(isMarked)) found.add("as it is");
}
