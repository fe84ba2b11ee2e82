import { axisSizeIn, type DimAxes, type MeshShape, splitCount } from "../../../ir/mesh.js";
import type { Eqn } from "../../../ir/program.js";
import { at, bytesOf, bytesOfAll, range } from "../../../ir/shape.js";
import type { FactorRule } from "./factors.js";
import type { Shardings } from "./propagate.js";
import type { DeviceBlocks } from "./rowValues.js";

/** The mesh, and how values should be split over it. */
interface Target {
  readonly mesh: MeshShape;
  readonly shardings: Shardings;
}

/**
 * Axes of a dim that cannot stay split go to another dim that can, by an all-to-all instead of a gather, where the
 * result is split over them or so small that gathering it afterwards costs less.
 *
 * @param assigned the axes of every factor so far
 */
export function setAside(
  eqn: Eqn,
  ins: readonly DeviceBlocks[],
  rule: FactorRule,
  assigned: readonly DimAxes[],
  { mesh, shardings }: Target,
): DimAxes[] {
  const moved = assigned.map((axes) => [...axes]);
  const free = freeFactors(rule);
  for (const axis of stuckAxes(ins, rule, assigned)) {
    const size = axisSizeIn(mesh, axis) ?? 1;
    const taken = ins.reduce(
      (bytes, { spec }, i) => bytes + (spec.flat().includes(axis) ? bytesOf(at(eqn.ins, i).type) : 0),
      0,
    );
    const given = bytesOfAll(eqn.outs);
    const isKept = eqn.outs.some((out) => shardings.get(out).flat().includes(axis));
    const target = free.find(
      (factor) => at(rule.factors, factor).size % (splitCount(mesh, at(moved, factor)) * size) === 0,
    );
    if (target !== undefined && (isKept || taken / size + given < taken)) at(moved, target).push(axis);
  }
  return moved;
}

/** The axes that split only dims which the op needs whole. */
function stuckAxes(
  ins: readonly DeviceBlocks[],
  { factors, operands }: FactorRule,
  assigned: readonly DimAxes[],
): ReadonlySet<string> {
  const isWhole = (factor: number) => at(factors, factor).kind === "whole";
  const stuck = ins.flatMap(({ spec }, i) => spec.filter((_, d) => operands[i]?.[d]?.some(isWhole)).flat());
  return new Set(stuck.filter((axis) => !assigned.flat().includes(axis)));
}

/** The factors that can be split and that all operands and results have as the outermost of a dim. */
function freeFactors({ factors, operands, results }: FactorRule): number[] {
  return range(factors.length).filter(
    (factor) =>
      at(factors, factor).kind === "parallel" &&
      [...operands, ...results].every(
        (dims) => dims.length === 0 || dims.some(([first]) => first === factor),
      ),
  );
}
