import { isFloat, limits, sumType } from "../../../ir/dtype.js";
import type { ReduceOp } from "../../../ir/opFacts.js";
import type { OpName } from "../../../ir/ops.js";
import type { EqnParts } from "../../../ir/program.js";
import { at, type TensorType, tensorType } from "../../../ir/shape.js";
import { arrayText, listText, rowsText } from "./text.js";
import { type HloValue, names, type Rule, signature, type Writer } from "./writer.js";

/** An associative op with its identity element. */
interface Monoid {
  readonly op: string;
  readonly start: number;
}

const sum: Monoid = { op: "stablehlo.add", start: 0 };

/** The op that sums, or takes the maximum or minimum, for a data type. */
export function monoidOf(kind: "sum" | "max" | "min", { dtype }: TensorType): Monoid {
  if (kind === "sum") return sum;
  const isMax = kind === "max";
  if (dtype === "bool") return { op: isMax ? "stablehlo.or" : "stablehlo.and", start: isMax ? 0 : 1 };
  const worst = isFloat(dtype)
    ? isMax
      ? Number.NEGATIVE_INFINITY
      : Number.POSITIVE_INFINITY
    : limits(dtype)[isMax ? "min" : "max"];
  return { op: isMax ? "stablehlo.maximum" : "stablehlo.minimum", start: worst };
}

const operand = ({ ins }: EqnParts<OpName>, write: Writer): HloValue => write.read(at(ins, 0));

/** Sums of 16-bit floats are accumulated in float32 and rounded once. */
const reduce =
  (kind: "sum" | "max" | "min"): Rule<ReduceOp> =>
  (eqn, write) => {
    const { dtype, shape } = at(eqn.outs, 0).type;
    const wide = kind === "sum" ? sumType(dtype) : dtype;
    const x = write.convert(operand(eqn, write), wide);
    const type = tensorType(wide, shape);
    const { op, start } = monoidOf(kind, type);
    const init = write.splat(start, wide);
    const text =
      `stablehlo.reduce(${x.name} init: ${init.name}) applies ${op} across dimensions = ` +
      `${listText(eqn.params.dims)} : ${signature([x, init], [type])}`;
    return [write.convert(write.define(text, type), dtype)];
  };

const bool = tensorType("bool", []);

/**
 * Whether x comes before y, or ties with it: −0 equals 0, and NaN equals NaN.
 *
 * @param direction how the number that comes first compares with the other
 * @param nan GT if NaN comes before all numbers, LT if after them
 */
export function ranked(x: HloValue, y: HloValue, direction: Order, nan: Order, write: Writer) {
  const before = write.compare(direction, x, y);
  const equal = write.compare("EQ", x, y);
  if (!isFloat(x.type.dtype)) return { before, equal };
  const [xIsNaN, yIsNaN] = [write.compare("NE", x, x), write.compare("NE", y, y)];
  const onlyOne = write.compare(nan, xIsNaN, yIsNaN);
  const both = write.same("stablehlo.and", [xIsNaN, yIsNaN], bool);
  return {
    before: write.same("stablehlo.or", [before, onlyOne], bool),
    equal: write.same("stablehlo.or", [equal, both], bool),
  };
}

type Order = "GT" | "LT";

/** A reduction of values together with their positions; of equal values the first is kept. */
const extreme =
  (kind: "max" | "min"): Rule<"argmax" | "argmin"> =>
  (eqn, write) => {
    const given = operand(eqn, write);
    const x = given.type.dtype === "bool" ? write.convert(given, "int32") : given;
    const scalar = tensorType(x.type.dtype, []);
    const index = tensorType("int32", []);
    const { dim } = eqn.params;
    const positions = write.iota(dim, tensorType("int32", x.type.shape));
    const worst = write.splat(monoidOf(kind, scalar).start, scalar.dtype);
    const last = write.splat(limits("int32").max, "int32");
    const outType = at(eqn.outs, 0).type;
    const best = tensorType(scalar.dtype, outType.shape);
    const pair = write.fresh(best);
    const operands = [x, positions, worst, last];
    write.line(
      `${pair.name}:2 = "stablehlo.reduce"(${names(operands)}) <{dimensions = ${arrayText([dim])}}> ({`,
    );
    write.region([scalar, index, scalar, index], (a, i, b, j) => {
      if (!a || !i || !b || !j) return [];
      const { before, equal } = ranked(a, b, kind === "max" ? "GT" : "LT", "GT", write);
      const earlier = write.same("stablehlo.and", [equal, write.compare("LT", i, j)], bool);
      const wins = write.same("stablehlo.or", [before, earlier], bool);
      return [write.select(wins, a, b), write.select(wins, i, j)];
    });
    write.line(`}) : ${signature(operands, [best, outType])}`);
    return [{ name: `${pair.name}#1`, type: outType }];
  };

/** Running sums are sums over windows that extend back, or ahead, over the whole dim. */
const cumsum: Rule<"cumsum"> = (eqn, write) => {
  const { dim, reverse } = eqn.params;
  const { dtype, shape } = at(eqn.outs, 0).type;
  const n = at(shape, dim);
  const x = write.convert(operand(eqn, write), sumType(dtype));
  if (n === 0) return [write.convert(x, dtype)];
  if (n === 1) return [write.convert(write.sumOfOne(x), dtype)];
  const zero = write.splat(0, x.type.dtype);
  const window = shape.map(() => 1).with(dim, n);
  const padding = shape.map((_, d) => (d !== dim ? [0, 0] : reverse ? [0, n - 1] : [n - 1, 0]));
  const attributes = [`window_dimensions = ${arrayText(window)}`, `padding = ${rowsText(padding, 2)}`];
  const sums = write.combined("reduce_window", [x, zero], attributes, "stablehlo.add", x.type);
  return [write.convert(sums, dtype)];
};

/** The lowering rules of reductions. */
export const reductionRules: { readonly [K in ReduceOp | "argmax" | "argmin" | "cumsum"]: Rule<K> } = {
  reduceSum: reduce("sum"),
  reduceMax: reduce("max"),
  reduceMin: reduce("min"),
  argmax: extreme("max"),
  argmin: extreme("min"),
  cumsum,
};
