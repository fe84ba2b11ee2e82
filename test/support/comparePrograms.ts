import { HostFunction } from "../../src/ir/callbacks.js";
import { varyingAxes } from "../../src/ir/infer/varying.js";
import { type Atom, type Eqn, innerPrograms, type Program, type Var } from "../../src/ir/program.js";
import { sameType } from "../../src/ir/shape.js";
import { printEqn } from "../../src/ir/text/print.js";

/**
 * Describes where two programs first differ; undefined when they are equal except for the identities of their values
 * and the source lines of their equations.
 */
export function findDifference(a: Program, b: Program): string | undefined {
  const twins = new Map<number, number>();
  const defines = (left: readonly Var[], right: readonly Var[]) =>
    left.length === right.length &&
    left.every((variable, i) => {
      const twin = right[i];
      if (!twin || !sameType(variable.type, twin.type)) return false;
      if (!samePlain(varyingAxes(variable.type), varyingAxes(twin.type), () => false)) return false;
      twins.set(variable.id, twin.id);
      return true;
    });
  const reads = (left: readonly Atom[], right: readonly Atom[]) =>
    left.length === right.length && left.every((atom, i) => sameAtom(atom, right[i], twins));
  if (!defines(a.inputs, b.inputs)) return "the inputs differ";
  if (a.eqns.length !== b.eqns.length) return `${a.eqns.length} and ${b.eqns.length} equations`;
  for (const [i, eqn] of a.eqns.entries()) {
    const other = b.eqns[i];
    if (!other || eqn.op !== other.op || !reads(eqn.ins, other.ins)) return `operands of ${printEqn(eqn)}`;
    const inside = findInside(eqn, other);
    if (inside !== undefined) return inside;
    if (!defines(eqn.outs, other.outs)) return `results of ${printEqn(eqn)}`;
  }
  return reads(a.outputs, b.outputs) ? undefined : "the outputs differ";
}

function sameAtom(a: Atom, b: Atom | undefined, twins: ReadonlyMap<number, number>): boolean {
  if (!b || !sameType(a.type, b.type)) return false;
  if (a.kind === "literal") return b.kind === "literal" && Object.is(a.value, b.value);
  return b.kind === "var" && twins.get(a.id) === b.id;
}

function findInside(a: Eqn, b: Eqn): string | undefined {
  const [left, right] = [innerPrograms(a), innerPrograms(b)];
  const isProgram = new Set<unknown>([...left, ...right].map(([, program]) => program));
  const same = (x: unknown, y: unknown) => samePlain(x, y, (value) => isProgram.has(value));
  if (left.length !== right.length || !same(a.params, b.params)) return `parameters of ${printEqn(a)}`;
  for (const [i, [, program]] of left.entries()) {
    const other = right[i];
    const inside = other && findDifference(program, other[1]);
    if (inside !== undefined) return inside;
  }
  return undefined;
}

/** Whether two values are the same plain data: lists, records, strings, numbers, booleans, host callbacks. */
function samePlain(a: unknown, b: unknown, skip: (value: unknown) => boolean): boolean {
  if (skip(a) && skip(b)) return true;
  if (Array.isArray(a)) {
    return Array.isArray(b) && a.length === b.length && a.every((item, i) => samePlain(item, b[i], skip));
  }
  // Printed programs and keys of ops do not distinguish −0 from 0 among parameters.
  if (typeof a !== "object" || a === null || a instanceof HostFunction) return a === b || Object.is(a, b);
  if (typeof b !== "object" || b === null) return false;
  if (Object.getPrototypeOf(a) !== Object.prototype || Object.getPrototypeOf(b) !== Object.prototype)
    return false;
  const right = new Map(Object.entries(b));
  const left = Object.entries(a);
  return (
    left.length === right.size &&
    left.every(([key, value]) => right.has(key) && samePlain(value, right.get(key), skip))
  );
}
