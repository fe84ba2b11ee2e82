import { varyingAxes } from "../../ir/infer/varying.js";
import type { MeshAxis } from "../../ir/mesh.js";
import type { Eqn, Program, Var } from "../../ir/program.js";
import { at } from "../../ir/shape.js";
import type { Tensor } from "../../trace/tensor.js";
import { cut } from "../rewrite/split.js";

/** Which values of a program are kept for the backward pass: results of its equations, and values inside them. */
export interface Keep {
  readonly vars: readonly Var[];
  /** For equations with inner programs, which values of each body are kept. */
  readonly inside: ReadonlyMap<Eqn, readonly Keep[]>;
}

/**
 * The values that an earlier run kept of a program: those of its own equations, then those of each equation with
 * bodies, as that equation returns them (a scan stacks them).
 */
export interface Kept {
  readonly keep: Keep;
  readonly values: readonly Tensor[];
}

/** What an earlier run kept of an equation's bodies. */
export interface KeptInside {
  readonly keeps: readonly Keep[];
  readonly values: readonly Tensor[];
}

/** All known values of a program: each remat around it may have kept some. */
export type Saved = readonly Kept[];

/** Nothing is kept. */
export const keepNothing: Keep = { vars: [], inside: new Map() };

/** How many values are kept. */
export function numKept({ vars, inside }: Keep): number {
  return [...inside.values()].flat().reduce((sum, keep) => sum + numKept(keep), vars.length);
}

/** Along which axes of surrounding shard maps each kept value may differ. */
export function keptVarying({ vars, inside }: Keep): (readonly MeshAxis[])[] {
  const within = [...inside].flatMap(([eqn, keeps]) => {
    const manual = eqn.op === "shardMap" ? eqn.params.manual : [];
    const axes = keeps.flatMap(keptVarying);
    return axes.map((list) => list.filter(({ name }) => !manual.includes(name)));
  });
  return [...vars.map(({ type }) => varyingAxes(type)), ...within];
}

/** The results that need not be recomputed; a named value is known when its `name` equation's result is. */
export function savedOuts(program: Program, saved: Saved): (eqn: Eqn) => readonly Tensor[] | undefined {
  const known = new Map(
    saved.flatMap(({ keep, values }) => keep.vars.map(({ id }, i) => [id, at(values, i)])),
  );
  for (const { op, ins, outs } of known.size > 0 ? [...program.eqns].reverse() : []) {
    const [x, value] = [ins[0], known.get(outs[0]?.id ?? -1)];
    if (op === "name" && x?.kind === "var" && value) known.set(x.id, value);
  }
  return ({ outs }) => {
    // An equation without results ran for its effect, and is not run again where an earlier run is known.
    if (outs.length === 0 && saved.length === 0) return undefined;
    const found = outs.map(({ id }) => known.get(id)).filter((value) => value !== undefined);
    return found.length === outs.length ? found : undefined;
  };
}

/** The known values of one body of an equation, given those kept in all of its bodies. */
export function savedOfBody(
  known: readonly KeptInside[],
  body: number,
  values: readonly Tensor[] = known.flatMap((kept) => kept.values),
): Saved {
  const parts = cut(values, ...known.map((kept) => kept.values.length));
  return known.map(({ keeps }, i) => ({
    keep: at(keeps, body),
    values: at(cut(at(parts, i), ...keeps.map(numKept)), body),
  }));
}

/** The known values inside an equation. */
export function savedInside(saved: Saved, eqn: Eqn): readonly KeptInside[] {
  return saved.flatMap(({ keep, values }) => {
    const keeps = keep.inside.get(eqn);
    if (!keeps) return [];
    const lengths = [...keep.inside.values()].map((list) => list.reduce((n, k) => n + numKept(k), 0));
    const parts = cut(values, keep.vars.length, ...lengths);
    return [{ keeps, values: at(parts, 1 + [...keep.inside.keys()].indexOf(eqn)) }];
  });
}
