/** The lines of the table as functions in both languages, with operands drawn from a grid of shapes and data types. */
import { lax, np, random, scipy, type Tensor } from "shardwise";
import * as nn from "shardwise/nn";
import * as optim from "shardwise/optim";
import type { FunctionRecord, OperandSpec } from "./functions.js";
import type { Draw } from "./random.js";
import { scipyTable } from "./scipyTable.js";
import { table } from "./table.js";
import { toPython } from "./translate.js";

type Kind = (shape: readonly number[]) => OperandSpec;

const floats: Kind = (shape) => ({ shape, low: -2, high: 2 });
const positive: Kind = (shape) => ({ shape, low: 0.2, high: 3 });
const integers: Kind = (shape) => ({ shape, dtype: "int32", low: 1, high: 6 });
const bools: Kind = (shape) => ({ shape, dtype: "bool", low: 0, high: 2 });
const fixed =
  (shape: readonly number[], kind: Kind = floats): Kind =>
  () =>
    kind(shape);
const small: Kind = (shape) => ({ shape, dtype: "int32", low: 0, high: 4 });

const kinds: Readonly<Record<string, Kind>> = {
  x: floats,
  y: floats,
  p: positive,
  r: positive,
  u: (shape) => ({ shape, low: -0.9, high: 0.9 }),
  i: integers,
  j: integers,
  k: bools,
  l: bools,
  z: (shape) => ({ shape, dtype: "complex64" }),
  v: fixed([6]),
  w: fixed([6]),
  m: fixed([3, 4]),
  n: fixed([3, 4]),
  s: fixed([4, 4]),
  q: fixed([4, 4]),
  t: fixed([2, 3, 4]),
  e: fixed([6], small),
  d: fixed([3], small),
  h: fixed([2, 8], (shape) => ({ shape, dtype: "uint8", low: 0, high: 256 })),
  o: fixed([1, 8, 8, 2]),
  f: fixed([3, 3, 2, 4]),
  0: fixed([]),
};

/** Types that replace float32; a function that refuses one here must refuse it there. */
const otherTypes = ["bfloat16", "float16", "int32", "uint8", "bool", "complex64"] as const;

const letters = ["a", "b", "c"];

/** Three steps of an optimiser on parameters, with gradients that depend on them. */
function train(optimizer: optim.GradientTransformation, params: Tensor, grads: Tensor): Tensor {
  let [current, state] = [{ w: params }, optimizer.init({ w: params })];
  for (let step = 1; step <= 3; step++) {
    const [updates, next] = optimizer.update({ w: current.w.mul(0.3).add(grads.mul(step)) }, state, current);
    [current, state] = [optim.applyUpdates(current, updates), next];
  }
  return current.w;
}

/** The function that a call of the table is; the text is part of this repository. */
function compiled(call: string): (args: readonly Tensor[]) => Tensor {
  const modules = { np, lax, nn, random, optim, scipy, train };
  const names = [...Object.keys(modules), ...letters];
  const fn = Reflect.construct(Function, [...names, `return ${call};`]) as (...args: unknown[]) => unknown;
  return (args) => {
    const value = fn(...Object.values(modules), ...letters.map((_, i) => args[i]));
    return typeof value === "number" || typeof value === "boolean" ? np.array(value) : (value as Tensor);
  };
}

interface Line {
  readonly names: readonly string[];
  readonly kinds: readonly string[];
  readonly calls: readonly { readonly ts: string; readonly py: string | undefined }[];
}

function parseLine(line: string): Line {
  const [, names = "", operands = "", calls = ""] = /^(\S+) (\w+): (.*)$/.exec(line) ?? [];
  if (names === "") throw new Error(`the table has a line that cannot be read: ${line}`);
  return {
    names: names.split(","),
    kinds: [...operands],
    calls: calls.split("; ").map((call) => {
      const [ts = "", py] = call.split("~");
      return { ts, py };
    }),
  };
}

const lines = [table, scipyTable].flatMap((text) => text.trim().split("\n")).map(parseLine);

/** The exported names that the table has. */
export const namesInTable: ReadonlySet<string> = new Set(lines.flatMap(({ names }) => names));

function recordOf(
  name: string,
  { kinds: operands }: Line,
  { ts, py }: Line["calls"][number],
  dtype: OperandSpec["dtype"],
): FunctionRecord {
  const call = ts.replaceAll("@", name);
  const own = (toPython(`${name}`).split(".").at(-1) ?? "").trim();
  const run = compiled(call);
  return {
    name: `${call}${dtype ? ` of ${dtype}` : ""}`,
    of: name,
    py: py === undefined ? toPython(call) : py.replaceAll("NAME", own),
    ts: run,
    call: (draw: Draw) => {
      const shape = draw.shape();
      return {
        operands: operands.map((kind) => {
          const spec = kinds[kind]?.(shape);
          if (!spec) throw new Error(`the table has an unknown kind of operand: ${kind}`);
          if (dtype === undefined || spec.dtype !== undefined) return spec;
          const { low = -2, high = 2 } = spec;
          const isSigned = !["uint8", "bool"].includes(dtype);
          return { ...spec, dtype, low: isSigned ? low : 0, high: dtype === "bool" ? 2 : Math.ceil(high) };
        }),
      };
    },
  };
}

/** Every call of the table with float32, and the first of every function with two other types that are drawn. */
export function gridRecords(draw: Draw): FunctionRecord[] {
  return lines.flatMap((line) =>
    line.names.flatMap((name) => {
      const plain = line.calls.map((call) => recordOf(name, line, call, undefined));
      const [first] = line.calls;
      const takesFloats = line.kinds.some((kind) => "xypruvwmnsqt".includes(kind));
      if (!first || !takesFloats) return plain;
      const drawn = [draw.pick(otherTypes), draw.pick(otherTypes)];
      return [...plain, ...[...new Set(drawn)].map((dtype) => recordOf(name, line, first, dtype))];
    }),
  );
}
