import { at, range } from "../../src/ir/shape.js";
import type { DimFactors, FactorRule } from "../../src/spmd/partition/placement/factors.js";

/** A rule as text: `([i,k],[k,j])->([i,j]) reduction={k}`; `whole` and other reductions are listed likewise. */
export function formatRule({ factors, operands, results }: FactorRule): string {
  const name = (f: number) => (f < 18 ? String.fromCharCode(105 + f) : `f${f}`);
  const tensor = (dims: DimFactors) => `[${dims.map((list) => list.map(name).join("") || "1").join(",")}]`;
  const side = (tensors: readonly DimFactors[]) => `(${tensors.map(tensor).join(",")})`;
  const label = { sum: "reduction", max: "max", min: "min", index: "index", whole: "whole" } as const;
  const groups = (["sum", "max", "min", "index", "whole"] as const).flatMap((kind) => {
    const list = range(factors.length).filter((f) => at(factors, f).kind === kind);
    return list.length > 0 ? [` ${label[kind]}={${list.map(name).join(",")}}`] : [];
  });
  return `${side(operands)}->${side(results)}${groups.join("")}`;
}
