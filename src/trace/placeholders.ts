/** Format strings with placeholders for values, like those of Python's `str.format`: `"step {}: {loss:.3f}"`. */
import { ValueError } from "../ir/errors.js";
import { type ElementValue, formatElements } from "./format.js";
import { HostArray } from "./hostArray.js";

/** A piece of a format string: literal text, or a value by its position or name. */
type Piece =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "value"; readonly key: number | string; readonly spec: Spec };

/** How elements are formatted: with at least `width` characters and this many digits. */
interface Spec {
  readonly width: number;
  readonly digits: number | undefined;
  readonly style: string | undefined;
}

/** A parsed format string. */
export interface Template {
  /** How many values it takes by position. */
  readonly numPositions: number;
  /** The names of the others. */
  readonly names: readonly string[];
  /** The string with values in place of the placeholders. */
  fill(values: readonly unknown[], named: Readonly<Record<string, unknown>>): string;
}

/** Parses a format string; `{{` and `}}` are literal braces. */
export function parseTemplate(format: string, caller: string): Template {
  const pieces: Piece[] = [];
  let position = 0;
  const pattern = /\{\{|\}\}|\{(\w*)(?::([^{}]*))?\}|[{}]|[^{}]+/g;
  for (const [text, name, spec] of format.matchAll(pattern)) {
    if (text === "{{" || text === "}}") pieces.push({ kind: "text", text: text.slice(1) });
    else if (text === "{" || text === "}") {
      throw new ValueError(
        `[${caller}] ${JSON.stringify(format)} has a lone "${text}": write "${text}${text}" for it`,
      );
    } else if (name === undefined) pieces.push({ kind: "text", text });
    else {
      const key = name === "" ? position++ : /^\d+$/.test(name) ? Number(name) : name;
      pieces.push({ kind: "value", key, spec: parseSpec(spec ?? "", format, caller) });
    }
  }
  const keys = pieces.flatMap((piece) => (piece.kind === "value" ? [piece.key] : []));
  return {
    numPositions: Math.max(0, ...keys.map((key) => (typeof key === "number" ? key + 1 : 0))),
    names: [...new Set(keys.filter((key) => typeof key === "string"))],
    fill: (values, named) =>
      pieces
        .map((piece) => {
          if (piece.kind === "text") return piece.text;
          const { key, spec } = piece;
          return formatTree(typeof key === "number" ? values[key] : named[key], spec);
        })
        .join(""),
  };
}

function parseSpec(text: string, format: string, caller: string): Spec {
  const match = /^(\d*)(?:\.(\d+))?([defg]?)$/.exec(text);
  if (!match) {
    throw new ValueError(
      `[${caller}] ${JSON.stringify(format)}: ":${text}" is not a number format: use a width, a precision and d, e, f or g, such as ":8.3f"`,
    );
  }
  const [, width, digits, style] = match;
  return {
    width: Number(width),
    digits: digits === undefined ? undefined : Number(digits),
    style: style || undefined,
  };
}

/** Whether a value is an object whose fields a format string refers to by name. */
export function isFields(value: unknown): value is Readonly<Record<string, unknown>> {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof HostArray)
  );
}

/** A tree of arrays as a string; a single array is its elements. */
function formatTree(value: unknown, spec: Spec): string {
  if (value instanceof HostArray) return formatArray(value, spec);
  if (Array.isArray(value)) return `[${value.map((part) => formatTree(part, spec)).join(", ")}]`;
  if (typeof value !== "object" || value === null) return String(value);
  const parts = Object.entries(value).map(([key, part]) => `${key}: ${formatTree(part, spec)}`);
  return `{${parts.join(", ")}}`;
}

function formatArray(array: HostArray, { width, digits, style }: Spec): string {
  if (digits === undefined && style === undefined) return array.toString().padStart(width);
  const written = (value: ElementValue) => formatNumber(Number(value), digits, style).padStart(width);
  return formatElements(array.shape, array.element, written);
}

function formatNumber(value: number, digits: number | undefined, style: string | undefined): string {
  if (!Number.isFinite(value)) return String(value);
  switch (style) {
    case "d":
      return String(Math.trunc(value));
    case "e":
      // At least two digits of the exponent, as C writes it.
      return value.toExponential(digits ?? 6).replace(/e([+-])(\d)$/, "e$10$2");
    case "f":
      return value.toFixed(digits ?? 6);
    default:
      return String(Number(value.toPrecision(Math.max(1, digits ?? 6))));
  }
}
