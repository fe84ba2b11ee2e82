import type { MovementOp } from "../../../ir/opFacts.js";
import type { OpName } from "../../../ir/ops.js";
import type { EqnParts } from "../../../ir/program.js";
import { at, type Shape } from "../../../ir/shape.js";
import { listText, typeText } from "./text.js";
import type { HloValue, Rule, Writer } from "./writer.js";

const resultType = ({ outs }: EqnParts<OpName>) => at(outs, 0).type;

/** An op on operands as they are, with attributes derived from its parameters. */
const moved =
  <K extends OpName>(op: string, attributes: (params: EqnParts<K>["params"]) => string): Rule<K> =>
  (eqn, write) => [
    write.mapped(`stablehlo.${op}`, read(eqn, write), attributes(eqn.params), resultType(eqn)),
  ];

function read({ ins }: EqnParts<OpName>, write: Writer): HloValue[] {
  return ins.map((atom) => write.read(atom));
}

const reverse: Rule<"reverse"> = (eqn, write) => {
  const [x] = read(eqn, write);
  if (!x || eqn.params.dims.length === 0) return x ? [x] : [];
  const text = `stablehlo.reverse ${x.name}, dims = ${listText(eqn.params.dims)} : ${typeText(x.type)}`;
  return [write.define(text, x.type)];
};

/**
 * An op on a window of its first operand. XLA makes one slice of slices of slices, and forgets that a start out of
 * bounds is moved: it is moved before.
 */
const windowed =
  <K extends "dynamicSlice" | "dynamicUpdateSlice">(
    op: string,
    sizesOf: (eqn: EqnParts<K>) => Shape,
    attributes: (params: EqnParts<K>["params"]) => string,
  ): Rule<K> =>
  (eqn, write) => {
    const sizes = sizesOf(eqn);
    const { shape } = at(eqn.ins, 0).type;
    const first = eqn.ins.length - shape.length;
    const operands = eqn.ins.map((atom, i) => {
      if (i < first) return write.read(atom);
      const last = at(shape, i - first) - at(sizes, i - first);
      if (atom.kind !== "literal") return write.clamped(write.read(atom), last);
      return write.splat(Math.min(Math.max(atom.value, 0), last), atom.type.dtype);
    });
    return [write.mapped(`stablehlo.${op}`, operands, attributes(eqn.params), resultType(eqn))];
  };

/** The lowering rules of ops that create and move elements. */
export const movementRules: { readonly [K in MovementOp | "iota"]: Rule<K> } = {
  iota: (eqn, write) => [write.iota(eqn.params.dim, resultType(eqn))],
  broadcastInDim: moved<"broadcastInDim">("broadcast_in_dim", ({ dims }) => `, dims = ${listText(dims)}`),
  reshape: (eqn, write) => [write.reshape(write.read(at(eqn.ins, 0)), eqn.params.shape)],
  transpose: moved<"transpose">("transpose", ({ permutation }) => `, dims = ${listText(permutation)}`),
  reverse,
  slice: moved<"slice">("slice", ({ starts, limits, strides }) => {
    const ranges = starts.map((start, d) => `${start}:${at(limits, d)}:${at(strides, d)}`);
    return ` [${ranges.join(", ")}]`;
  }),
  pad: moved<"pad">(
    "pad",
    ({ low, high, interior }) =>
      `, low = ${listText(low)}, high = ${listText(high)}, interior = ${listText(interior)}`,
  ),
  concatenate: moved<"concatenate">("concatenate", ({ dim }) => `, dim = ${dim}`),
  dynamicSlice: windowed<"dynamicSlice">(
    "dynamic_slice",
    ({ params }) => params.sizes,
    ({ sizes }) => `, sizes = ${listText(sizes)}`,
  ),
  dynamicUpdateSlice: windowed<"dynamicUpdateSlice">(
    "dynamic_update_slice",
    ({ ins }) => at(ins, 1).type.shape,
    () => "",
  ),
};
