/**
 * Classifies equations by their printed form: the printer and the parser treat two of the same kind alike. Sizes and
 * dims beyond 0 and 1 are numbers like any other to them, while an empty list, a constant −0 or another axis name may
 * be written differently.
 */
import type { Atom, Eqn } from "../../src/ir/program.js";
import type { TensorType } from "../../src/ir/shape.js";

/** The kind of an equation's text, without the programs inside; undefined if a parameter is not plain data. */
export function textKind({ op, ins, outs, params }: Eqn): string | undefined {
  const own = plainKind(params);
  return own && `${op} ${own}${ins.map(atomKind).join("")}=${outs.map(atomKind).join("")}`;
}

/** The kind of the text of a value's definition, or of a constant. */
export function atomKind(atom: Atom): string {
  return atom.kind === "var"
    ? typeKind(atom.type)
    : `${atom.type.dtype}:${Object.is(atom.value, -0) ? "-0" : numberKind(atom.value)};`;
}

/** Passes copy equations, but share the types of their values. */
const typeKinds = new WeakMap<TensorType, string>();

function typeKind(type: TensorType): string {
  const known = typeKinds.get(type);
  if (known !== undefined) return known;
  const { dtype, shape, varying } = type;
  const kind = `${dtype}${shape.length}${varying ? plainKind(varying) : ""};`;
  typeKinds.set(type, kind);
  return kind;
}

function numberKind(value: number): string {
  const size = Math.abs(value);
  if (!Number.isFinite(value) || (size <= 1 && Number.isInteger(value))) return String(value);
  // JavaScript prints very small and very large numbers with an exponent.
  const form = size < 1e-6 ? "e-" : size >= 1e21 ? "e+" : Number.isInteger(value) ? "n" : "f";
  return value < 0 ? `-${form}` : form;
}

function plainKind(value: unknown): string | undefined {
  if (typeof value === "number") return numberKind(value);
  if (typeof value !== "object" || value === null) {
    return typeof value === "function" || typeof value === "symbol" ? undefined : JSON.stringify(value);
  }
  if (Array.isArray(value)) return listKind(value);
  if (Object.getPrototypeOf(value) !== Object.prototype) return undefined;
  if ("eqns" in value) return "{}";
  return listKind(Object.entries(value));
}

function listKind(values: readonly unknown[]): string | undefined {
  let kinds = "[";
  for (const value of values) {
    const kind = plainKind(value);
    if (kind === undefined) return undefined;
    kinds += `${kind},`;
  }
  return `${kinds}]`;
}
