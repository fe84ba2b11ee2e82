import { type DType, isInteger, limits, roundTo } from "../../ir/dtype.js";
import { isElementwise } from "../../ir/opFacts.js";
import { type Atom, type Eqn, type Literal, newLiteral } from "../../ir/program.js";
import { at, range, sameNumbers } from "../../ir/shape.js";

/** What an equation simplifies to: an existing value, or an equation (perhaps a simpler one). */
export type Simplified =
  | { readonly kind: "atom"; readonly atom: Atom }
  | { readonly kind: "eqn"; readonly eqn: Eqn };

type Lookup = (atom: Atom) => Eqn | undefined;

/** Applies the identities that hold bit for bit, including −0, infinities and NaN. */
export function identity(original: Eqn, definition: Lookup): Simplified {
  const eqn = shorten(useLiterals(original, definition), definition);
  const atom = sameValue(eqn, definition) ?? fold(eqn);
  return atom ? { kind: "atom", atom } : { kind: "eqn", eqn };
}

/** Operands with a single repeated number become scalar literals, as long as another operand has the shape. */
function useLiterals(eqn: Eqn, definition: Lookup): Eqn {
  if (!isElementwise(eqn.op)) return eqn;
  const literals = eqn.ins.map((atom) => {
    const given = definition(atom);
    const marked = given?.op === "pvary" ? given.ins[0] : undefined;
    const source = marked ? definition(marked) : given;
    const operand = source?.op === "broadcastInDim" ? source.ins[0] : marked;
    return operand?.kind === "literal" ? operand : undefined;
  });
  const shaped = eqn.ins.some((atom, i) => atom.kind === "var" && !literals[i]);
  if (!shaped || !literals.some((literal) => literal)) return eqn;
  return { ...eqn, ins: eqn.ins.map((atom, i) => literals[i] ?? atom) };
}

const isValue = (atom: Atom | undefined, value: number): boolean =>
  atom?.kind === "literal" && Object.is(atom.value, value);

/** The operand that an equation returns unchanged. */
function sameValue(eqn: Eqn, definition: Lookup): Atom | undefined {
  const [x, y, z] = eqn.ins;
  if (!x) return undefined;
  switch (eqn.op) {
    case "mul":
      return isValue(y, 1) ? x : isValue(x, 1) ? y : undefined;
    case "div":
    case "pow":
      return isValue(y, 1) ? x : undefined;
    case "sub":
      return isValue(y, 0) ? x : undefined;
    case "add": {
      const zero = isInteger(x.type.dtype) ? 0 : -0;
      return isValue(y, zero) ? x : isValue(x, zero) ? y : undefined;
    }
    case "neg":
    case "not": {
      const source = definition(x);
      return source?.op === eqn.op ? source.ins[0] : undefined;
    }
    case "convert":
    case "bitcast":
      // A conversion to the same type may end a weak type, which is part of what results are.
      return x.type.dtype === eqn.params.dtype && !x.type.weak ? x : undefined;
    case "select": {
      const chosen = y === z ? y : x.kind !== "literal" ? undefined : x.value ? y : z;
      // A selected literal is a scalar, whatever the shape of the result.
      return chosen && sameNumbers(chosen.type.shape, at(eqn.outs, 0).type.shape) ? chosen : undefined;
    }
    case "broadcastInDim":
    case "reshape":
      return sameNumbers(x.type.shape, eqn.params.shape) ? x : undefined;
    case "transpose":
      return sameNumbers(eqn.params.permutation, range(x.type.shape.length)) ? x : undefined;
    case "slice": {
      const { starts, limits, strides } = eqn.params;
      const whole = starts.every((s) => s === 0) && strides.every((s) => s === 1);
      return whole && sameNumbers(limits, x.type.shape) ? x : undefined;
    }
    case "concatenate":
      return eqn.ins.length === 1 ? x : undefined;
    case "reduceSum":
    case "reduceMax":
    case "reduceMin":
      return eqn.params.dims.length === 0 ? x : undefined;
    default:
      return undefined;
  }
}

/** Merges two consecutive movements into one. */
function shorten(eqn: Eqn, definition: Lookup): Eqn {
  const source = eqn.ins[0] && definition(eqn.ins[0]);
  if (!source) return eqn;
  if (eqn.op === "reshape" && source.op === "reshape") return { ...eqn, ins: source.ins };
  if (eqn.op === "transpose" && source.op === "transpose") {
    const permutation = eqn.params.permutation.map((d) => at(source.params.permutation, d));
    return { ...eqn, ins: source.ins, params: { permutation } };
  }
  if (eqn.op === "broadcastInDim" && source.op === "broadcastInDim") {
    const dims = source.params.dims.map((d) => at(eqn.params.dims, d));
    return { ...eqn, ins: source.ins, params: { shape: eqn.params.shape, dims } };
  }
  return eqn;
}

/** Arithmetic that JavaScript rounds exactly as every engine does. */
function fold(eqn: Eqn): Literal | undefined {
  const literals = eqn.ins.filter((atom) => atom.kind === "literal");
  const [a, b] = literals;
  if (!a || literals.length !== eqn.ins.length || !isElementwise(eqn.op)) return undefined;
  const { dtype } = a.type;
  if (eqn.op === "convert") return convertLiteral(a.value, dtype, eqn.params.dtype);
  if (eqn.op === "neg" && dtype !== "bool") return newLiteral(-a.value, dtype);
  if (!b || !isExact(dtype)) return undefined;
  const value = arithmetic(eqn, a.value, b.value, isInteger(dtype));
  if (value === undefined) return undefined;
  const literal = newLiteral(roundTo(dtype, value), dtype);
  return at(eqn.outs, 0).type.weak ? { ...literal, type: { ...literal.type, weak: true } } : literal;
}

const isExact = (dtype: DType) => dtype === "float32" || dtype === "float64" || isInteger(dtype);

function arithmetic(eqn: Eqn, a: number, b: number, integers: boolean): number | undefined {
  switch (eqn.op) {
    case "add":
      return a + b;
    case "sub":
      return a - b;
    case "mul":
      return integers ? Math.imul(a, b) : a * b;
    case "div":
      return integers ? undefined : a / b;
    default:
      return undefined;
  }
}

function convertLiteral(value: number, from: DType, to: DType): Literal | undefined {
  if (to === "bool") return newLiteral(value !== 0, to);
  if (!isInteger(to)) return newLiteral(value, to);
  const { min, max } = limits(to);
  const fits =
    from !== "float64" &&
    Number.isInteger(value) &&
    Math.abs(value) < 2 ** 31 &&
    value >= min &&
    value <= max;
  return fits ? newLiteral(value, to) : undefined;
}
