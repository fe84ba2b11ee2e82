/** Elements of tensors as text, as NumPy prints them. */
import { range, type Shape, sizeOf } from "../ir/shape.js";
import { Complex, formatComplex } from "./complexNumber.js";

/** Tensors with more elements are abbreviated: only the first and the last few along every dim are shown. */
export const maxElements = 1000;

/** Number of elements shown at each end of a dim then. */
const edge = 3;

/** An element of a tensor as a JavaScript value. */
export type ElementValue = number | boolean | Complex;

/** The values of a tensor as nested JavaScript arrays. */
export type Nested = ElementValue | Nested[];

/** The elements of a tensor in row-major order as nested arrays. */
export function nestElements(shape: Shape, element: (index: number) => ElementValue): Nested {
  const build = (dim: number, start: number): Nested => {
    const n = shape[dim];
    if (n === undefined) return element(start);
    const step = sizeOf(shape.slice(dim + 1));
    return Array.from({ length: n }, (_, i) => build(dim + 1, start + i * step));
  };
  return build(0, 0);
}

/**
 * The elements of a tensor in row-major order as text, one row per line.
 *
 * @param written how an element is formatted; with six digits by default
 */
export function formatElements(
  shape: Shape,
  element: (index: number) => ElementValue,
  written: (value: ElementValue) => string = formatElement,
): string {
  const short = sizeOf(shape) > maxElements;
  const shown = (n: number): (number | undefined)[] =>
    short && n > 2 * edge ? [...range(edge), undefined, ...range(edge).map((i) => n - edge + i)] : range(n);
  const texts: string[] = [];
  const gather = (dim: number, start: number): void => {
    const n = shape[dim];
    if (n === undefined) texts.push(written(element(start)));
    else {
      const step = sizeOf(shape.slice(dim + 1));
      for (const i of shown(n)) if (i !== undefined) gather(dim + 1, start + i * step);
    }
  };
  gather(0, 0);
  const width = shape.length > 1 ? Math.max(0, ...texts.map(({ length }) => length)) : 0;
  let next = 0;
  const build = (dim: number): string => {
    const n = shape[dim];
    if (n === undefined) return (texts[next++] ?? "").padStart(width);
    const parts = shown(n).map((i) => (i === undefined ? "…" : build(dim + 1)));
    const isRow = dim === shape.length - 1;
    const gap = isRow ? ", " : `,${"\n".repeat(shape.length - 1 - dim)}${" ".repeat(dim + 1)}`;
    return `[${parts.join(gap)}]`;
  };
  return build(0);
}

function formatElement(value: ElementValue): string {
  if (typeof value === "boolean") return String(value);
  if (value instanceof Complex) return formatComplex(value, formatElement);
  if (Object.is(value, -0)) return "-0";
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6)));
}
