import { isFloat, sumType } from "../../../ir/dtype.js";
import type { MeshAxis, Spec } from "../../../ir/mesh.js";
import { afterPass } from "../../../ir/passes.js";
import { type Atom, type Eqn, mapInnerPrograms, type Program } from "../../../ir/program.js";
import { at, range } from "../../../ir/shape.js";
import { atSource, Environment, rebind, traceFlat } from "../../../trace/builder.js";
import * as ops from "../../../trace/ops.js";
import { Tensor } from "../../../trace/tensor.js";
import { removeDeadCode } from "../../../transforms/rewrite/deadCode.js";
import { countUses } from "./joinSums.js";
import { type Varying, varyingOutputs } from "./replication.js";

/**
 * Splits gathers and scatters next to matrix products into the hops of a ring, so that a hop is in flight while the
 * block before it is multiplied:
 *
 * - a product with a gathered operand becomes one product for each block, as the blocks arrive;
 * - a product whose sum is scattered is computed block by block, each added to the sum that passes by.
 *
 * Every device sums blocks in a different order. Products that are equal on all devices of a ring stay unchanged,
 * because their results must agree bit for bit.
 *
 * @param program what every device runs
 * @param inSpecs how its inputs are split
 * @param names the axes of the rings
 */
export function ringProducts(program: Program, inSpecs: readonly Spec[], names: readonly string[]): Program {
  if (names.length === 0) return program;
  const operands = new Map<Eqn, readonly Varying[]>();
  const inputs = inSpecs.map((spec) => new Set(spec.flat()));
  varyingOutputs(program, inputs, (eqn, ins) => operands.set(eqn, ins));
  const varies: Varies = (dot, side, axis) =>
    operands.get(dot)?.[side === "lhs" ? 0 : 1]?.has(axis.name) === true;
  return removeDeadCode(afterPass("ringProducts", rewrite(program, new Set(names), varies), "partitioned"));
}

type Dot = Eqn<"dotGeneral">;
type Side = "lhs" | "rhs";
const sides = ["lhs", "rhs"] as const;

/** Whether an operand of a product may differ from device to device along an axis. */
type Varies = (dot: Dot, side: Side, axis: MeshAxis) => boolean;

/** How a value was split before it was gathered. */
interface Split {
  readonly axis: MeshAxis;
  readonly dim: number;
}

/** The blocks of a gathered value in the order in which they arrive. */
interface Ring extends Split {
  readonly blocks: readonly Tensor[];
}

function rewrite(program: Program, names: ReadonlySet<string>, varies: Varies): Program {
  const productsOf = sumsOfProducts(program);
  const { program: result } = traceFlat(
    (args) => {
      const environment = new Environment(program.inputs, args);
      const tensorOf = (atom: Atom) => at(environment.read([atom]), 0);
      const change = ringRules({ program, names, varies, productsOf, tensorOf });
      for (const eqn of program.eqns) {
        const changed = atSource(eqn.source, () => change(eqn));
        const bodies = (inner: Program) => rewrite(inner, names, varies);
        if (changed) environment.define(eqn.outs, [changed]);
        else rebind(mapInnerPrograms(eqn, bodies), environment);
      }
      return environment.read(program.outputs);
    },
    program.inputs.map(({ type }) => type),
    "ringProducts",
  );
  return result;
}

/** What is known about a program during the rewrite. */
interface Rewriting {
  readonly program: Program;
  readonly names: ReadonlySet<string>;
  readonly varies: Varies;
  readonly productsOf: (atom: Atom) => readonly Dot[];
  /** The value that stands for one of the program in the new one. */
  readonly tensorOf: (atom: Atom) => Tensor;
}

/** Rewrites an equation; called in program order. Undefined for an equation that stays unchanged. */
function ringRules({ program, names, varies, productsOf, tensorOf }: Rewriting) {
  const axisOf = (axes: readonly MeshAxis[]) => {
    const [axis] = axes;
    return axes.length === 1 && axis && names.has(axis.name) ? axis : undefined;
  };
  const factors = program.eqns.flatMap((dot) =>
    dot.op === "dotGeneral" ? sides.map((side, i) => ({ dot, side, atom: at(dot.ins, i) })) : [],
  );
  const comesApart = (dot: Dot, side: Side, { axis, dim }: Split) =>
    partners(dot, side, dim).result !== undefined || varies(dot, side === "lhs" ? "rhs" : "lhs", axis);
  const rings = new Map<number, Ring>();
  const ringOf = (atom: Atom) => (atom.kind === "var" ? rings.get(atom.id) : undefined);
  return (eqn: Eqn): Tensor | undefined => {
    switch (eqn.op) {
      case "allGather": {
        const axis = axisOf(eqn.params.axes);
        const out = at(eqn.outs, 0);
        const split = axis && { axis, dim: eqn.params.dim };
        const isOut = (atom: Atom) => atom.kind === "var" && atom.id === out.id;
        if (!split || !factors.some(({ dot, side, atom }) => isOut(atom) && comesApart(dot, side, split)))
          return undefined;
        const ring = gatherInRing(tensorOf(at(eqn.ins, 0)), split);
        rings.set(out.id, ring);
        // For readers of the whole value.
        return joined(ring, ring.blocks, ring.dim);
      }
      case "dotGeneral": {
        const [left, right] = sides.map((side, i) => {
          const ring = ringOf(at(eqn.ins, i));
          return ring && comesApart(eqn, side, ring) ? ring : undefined;
        });
        if (left) return multiplyBlocks(eqn, "lhs", left, tensorOf(at(eqn.ins, 1)));
        return right && multiplyBlocks(eqn, "rhs", right, tensorOf(at(eqn.ins, 0)));
      }
      case "psumScatter": {
        const axis = axisOf(eqn.params.axes);
        const products = productsOf(at(eqn.ins, 0));
        if (!axis || products.length === 0) return undefined;
        const terms = products.map((dot) => ({ dot, ins: dot.ins.map(tensorOf) }));
        return scatterInRing(terms, axis, eqn.params.dim);
      }
      default:
        return undefined;
    }
  };
}

/** Finds the products that a value is the sum of, if they have no other readers. */
function sumsOfProducts(program: Program): (atom: Atom) => readonly Dot[] {
  const uses = countUses(program);
  const found = new Map<number, readonly Dot[]>();
  const productsOf = (atom: Atom) =>
    atom.kind === "var" && uses.get(atom.id) === 1 ? (found.get(atom.id) ?? []) : [];
  for (const eqn of program.eqns) {
    const [out] = eqn.outs;
    if (!out || !isFloat(out.type.dtype)) continue;
    if (eqn.op === "dotGeneral") found.set(out.id, [eqn]);
    if (eqn.op !== "add") continue;
    const parts = eqn.ins.map(productsOf);
    if (parts.every((products) => products.length > 0)) found.set(out.id, parts.flat());
  }
  return productsOf;
}

/** One hop up the ring. */
function hop(x: Tensor, axis: MeshAxis): Tensor {
  const { size } = axis;
  const pairs = range(size).map((i) => [i, (i + 1) % size] as const);
  return ops.ppermute(x, [axis], pairs);
}

/** This device's own block, then those of the devices before it. */
function gatherInRing(x: Tensor, split: Split): Ring {
  const blocks = [x];
  for (let i = 1; i < split.axis.size; i++) blocks.push(hop(at(blocks, i - 1), split.axis));
  return { ...split, blocks };
}

/** The position of the device `distance` places after this one. */
function deviceAfter(axis: MeshAxis, distance: number): Tensor {
  return ops.rem(ops.add(ops.axisIndex([axis]), distance), Tensor.scalar(axis.size, "int32"));
}

/** The position of the device that the i-th block of a ring comes from. */
function sourceOf({ axis }: Ring, i: number): Tensor {
  return deviceAfter(axis, axis.size - i);
}

function startsAt(rank: number, dim: number, start: Tensor): Tensor[] {
  const zero = Tensor.scalar(0, "int32");
  return range(rank).map((d) => (d === dim ? start : zero));
}

/** One of `count` equal blocks of a dim. */
function blockAt(x: Tensor, dim: number, position: Tensor, count: number): Tensor {
  const size = at(x.shape, dim) / count;
  return ops.dynamicSlice(x, startsAt(x.ndim, dim, ops.mul(position, size)), x.shape.with(dim, size));
}

/** What belongs to the blocks of a ring, put in the order of the devices along a dim. */
function joined(ring: Ring, parts: readonly Tensor[], dim: number): Tensor {
  const { dtype, shape } = at(parts, 0);
  const size = at(shape, dim);
  const whole = ops.zeros({ dtype, shape: shape.with(dim, size * ring.axis.size) });
  return parts.reduce(
    (all, part, i) =>
      ops.dynamicUpdateSlice(all, part, startsAt(shape.length, dim, ops.mul(sourceOf(ring, i), size))),
    whole,
  );
}

/** Where else a dim of a product's operand occurs: in the other operand, in the result, or in both. */
function partners({ ins, params }: Dot, side: Side, dim: number): { other?: number; result?: number } {
  const { lhsBatch, rhsBatch, lhsContract, rhsContract } = params;
  const isLeft = side === "lhs";
  const [batch, otherBatch] = isLeft ? [lhsBatch, rhsBatch] : [rhsBatch, lhsBatch];
  const [contract, otherContract] = isLeft ? [lhsContract, rhsContract] : [rhsContract, lhsContract];
  if (batch.includes(dim)) return { other: at(otherBatch, batch.indexOf(dim)), result: batch.indexOf(dim) };
  if (contract.includes(dim)) return { other: at(otherContract, contract.indexOf(dim)) };
  const freeOf = (operand: number, paired: readonly number[]) =>
    range(at(ins, operand).type.shape.length).filter((d) => !paired.includes(d));
  const left = freeOf(0, [...lhsBatch, ...lhsContract]);
  const right = freeOf(1, [...rhsBatch, ...rhsContract]);
  const position = isLeft ? left.indexOf(dim) : left.length + right.indexOf(dim);
  return { result: lhsBatch.length + position };
}

/** A product with a gathered operand, block by block. */
function multiplyBlocks(eqn: Dot, side: Side, ring: Ring, other: Tensor): Tensor {
  const { other: otherDim, result } = partners(eqn, side, ring.dim);
  const { dtype } = eqn.params;
  const parts = ring.blocks.map((block, i) => {
    const partner =
      otherDim === undefined ? other : blockAt(other, otherDim, sourceOf(ring, i), ring.axis.size);
    const [lhs, rhs] = side === "lhs" ? [block, partner] : [partner, block];
    return ops.dotGeneral(lhs, rhs, eqn.params, result === undefined ? sumType(dtype) : dtype);
  });
  if (result !== undefined) return joined(ring, parts, result);
  return ops.convert(parts.reduce(ops.add), dtype);
}

/** A scattered sum of products: the partial sum travels around the ring, and every device adds its product. */
function scatterInRing(
  terms: readonly { readonly dot: Dot; readonly ins: readonly Tensor[] }[],
  axis: MeshAxis,
  dim: number,
): Tensor {
  const { dtype } = at(terms, 0).dot.params;
  const wide = sumType(dtype);
  const partFor = (position: Tensor): Tensor =>
    terms
      .map(({ dot, ins }) => {
        const operands = sides.map((side, i) => {
          const x = at(ins, i);
          const own = range(x.ndim).find((d) => partners(dot, side, d).result === dim);
          return own === undefined ? x : blockAt(x, own, position, axis.size);
        });
        return ops.dotGeneral(at(operands, 0), at(operands, 1), dot.params, wide);
      })
      .reduce((sum, part) => ops.add(sum, part));
  const first = ops.convert(partFor(deviceAfter(axis, axis.size - 1)), dtype);
  return range(axis.size - 1).reduce((passing, i) => {
    const moving = ops.convert(hop(passing, axis), wide);
    return ops.convert(ops.add(moving, partFor(deviceAfter(axis, axis.size - 2 - i))), dtype);
  }, first);
}
