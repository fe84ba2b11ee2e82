import * as ops from "../../trace/ops.js";
import { cut } from "../rewrite/split.js";
import { type Kept, type Saved, savedOfBody } from "./keep.js";
import { keepingEverything, keepOf, keepsEverything } from "./rematPolicy.js";
import { replay } from "./replay.js";
import type { LinearizeRule, TensorCotangent } from "./vjpTypes.js";

/**
 * The forward pass keeps what the policy names, including inside loops and branches. The backward pass recomputes the
 * rest, behind a barrier that makes it depend on the cotangents, so that it can neither be merged with the first
 * computation nor moved before its use.
 */
export const rematRule: LinearizeRule<"remat"> = (ins, { body, policy }, active, tools, known) => {
  const saved = savedOfBody(known, 0);
  if (keepsEverything(policy)) return tools.linearize(keepingEverything(body), ins, active, saved);
  const alreadyKept = saved.map(({ keep }) => keep);
  const keep = keepOf(body, policy, active, tools, alreadyKept);
  const { outs, kept } = replay(body, ins, keep, saved);
  const pullback = (cotangents: readonly TensorCotangent[]): TensorCotangent[] => {
    const layers: Saved = [...saved, { keep, values: kept }];
    const present = cotangents.filter((ct) => ct !== null);
    const shaped = ins.filter((x) => x.node.kind !== "literal");
    const barred = ops.optimizationBarrier([
      ...shaped,
      ...layers.flatMap(({ values }) => values),
      ...present,
    ]);
    const [values = [], ...rest] = cut(barred, shaped.length, ...layers.map((layer) => layer.values.length));
    const nextValue = values.values();
    const nextCt = (rest.at(-1) ?? []).values();
    const again = tools.linearize(
      body,
      ins.map((x) => (x.node.kind === "literal" ? x : (nextValue.next().value ?? x))),
      active,
      layers.map((layer, i): Kept => ({ keep: layer.keep, values: rest[i] ?? [] })),
    );
    return again.pullback(cotangents.map((ct) => (ct ? (nextCt.next().value ?? ct) : null)));
  };
  return { outs, pullback };
};
