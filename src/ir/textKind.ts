/**
 * Equations whose texts are alike: the printer and the parser take the same ways for both. Sizes and dims beyond 0 and 1
 * are numbers like any other to them, while a list that is empty, a constant that is −0 or an axis of another name may
 * be written in a way of its own.
 */
import type { Atom, Eqn } from "./program.js";
import type { TensorType } from "./shape.js";

/** What the text of an equation looks like, without the programs inside; nothing where a parameter is no plain data. */
export function textKind({ op, ins, outs, params }: Eqn): string | undefined {
  const own = plainKind(params);
  return own && `${op} ${own}${ins.map(atomKind).join("")}=${outs.map(atomKind).join("")}`;
}

/** What the text of a value where it is defined, or of a constant, looks like. */
export function atomKind(atom: Atom): string {
  return atom.kind === "var"
    ? typeKind(atom.type)
    : `${atom.type.dtype}:${Object.is(atom.value, -0) ? "-0" : numberKind(atom.value)};`;
}

function typeKind({ dtype, shape, varying }: TensorType): string {
  return `${dtype}${shape.length}${varying ? plainKind(varying) : ""};`;
}

function numberKind(value: number): string {
  const size = Math.abs(value);
  if (!Number.isFinite(value) || (size <= 1 && Number.isInteger(value))) return String(value);
  // JavaScript writes the smallest and the largest with an exponent.
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
