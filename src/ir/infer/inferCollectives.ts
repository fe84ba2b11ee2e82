/** The type rules of collectives. */
import { describe } from "../describe.js";
import { axesSize, type MeshAxis } from "../mesh.js";
import type { Domain } from "../opFacts.js";
import type { AxisOp } from "../ops.js";
import { at, sameNumbers, type TensorType, tensorType } from "../shape.js";
import {
  broken,
  checkDim,
  count,
  type Operand,
  require,
  sameAsOperand,
  type TypeRule,
  typeOf,
} from "./inferChecks.js";

const reduceAcross =
  (domain: Domain) =>
  (ins: readonly Operand[]): TensorType[] => {
    count(ins, 1);
    require(typeOf(ins, 0).dtype, domain);
    return sameAsOperand(ins);
  };

function scaleDim(type: TensorType, dim: number, change: (n: number) => number): TensorType {
  checkDim(dim, type.shape.length);
  return tensorType(type.dtype, type.shape.with(dim, change(at(type.shape, dim))));
}

function dividedBy(axes: readonly MeshAxis[], dim: number): (n: number) => number {
  const size = axesSize(axes);
  return (n) => {
    if (n % size !== 0) {
      const names = axes.map((a) => a.name).join(", ");
      throw broken.shape(
        `dim ${dim} of size ${n} does not split over axis ${names} (${n} / ${size} = ${n / size})`,
      );
    }
    return n / size;
  };
}

/** The rules of ops over mesh axes. */
export const collectiveTypes: { readonly [K in AxisOp]: TypeRule<K> } = {
  psum: reduceAcross("number"),
  pmax: reduceAcross("any"),
  pmin: reduceAcross("any"),
  allGather: (ins, { axes, dim }) => {
    count(ins, 1);
    return [scaleDim(typeOf(ins, 0), dim, (n) => n * axesSize(axes))];
  },
  psumScatter: (ins, { axes, dim }) => {
    count(ins, 1);
    require(typeOf(ins, 0).dtype, "number");
    return [scaleDim(typeOf(ins, 0), dim, dividedBy(axes, dim))];
  },
  ppermute: (ins, { axes, permutation }) => {
    const size = axesSize(axes);
    if (!Array.isArray(permutation) || ![...permutation].every((pair) => Array.isArray(pair)))
      throw broken.value(`the permutation must be an array of pairs, got ${describe(permutation)}`);
    for (const side of [0, 1] as const) {
      const ranks = permutation.map((pair) => pair[side]);
      if (
        new Set(ranks).size !== ranks.length ||
        ranks.some((r) => !Number.isInteger(r) || r < 0 || r >= size)
      ) {
        const what = side === 0 ? "sources" : "targets";
        throw broken.value(
          `${what} [${ranks.map(describe)}] must be different numbers from 0 to ${size - 1}`,
        );
      }
    }
    return sameAsOperand(ins);
  },
  allToAll: (ins, { axes, splitDim, concatDim }) => {
    count(ins, 1);
    const split = scaleDim(typeOf(ins, 0), splitDim, dividedBy(axes, splitDim));
    return [scaleDim(split, concatDim, (n) => n * axesSize(axes))];
  },
  raggedAllToAll: (ins, { axes }) => {
    count(ins, 4);
    const [x, into, sends, receives] = [typeOf(ins, 0), typeOf(ins, 1), typeOf(ins, 2), typeOf(ins, 3)];
    if (x.dtype !== into.dtype)
      throw broken.dtype(`x is ${x.dtype}, into ${into.dtype}: both must have one type`);
    if (
      x.shape.length === 0 ||
      !sameNumbers(x.shape.slice(1), into.shape.slice(1)) ||
      into.shape.length === 0
    ) {
      throw broken.shape(`x [${x.shape}] and into [${into.shape}] may differ only in the number of rows`);
    }
    for (const { dtype, shape } of [sends, receives]) {
      const [numBlocks = 0, columns] = shape;
      if (dtype !== "int32" || shape.length !== 2 || columns !== 3 || numBlocks % axesSize(axes) !== 0) {
        throw broken.shape(
          `tables must be int32[blocks,3] with a multiple of ${axesSize(axes)} blocks, got ${dtype}[${shape}]`,
        );
      }
    }
    if (!sameNumbers(sends.shape, receives.shape))
      throw broken.shape("both tables must have the same number of blocks");
    return [tensorType(into.dtype, into.shape)];
  },
  axisIndex: (ins) => {
    count(ins, 0);
    return [tensorType("int32", [])];
  },
};
