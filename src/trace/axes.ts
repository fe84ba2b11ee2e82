import { AxisError } from "../ir/errors.js";
import type { MeshAxis } from "../ir/mesh.js";

let bound: readonly MeshAxis[] = [];

/** The axes that collectives can name at this point of tracing, outermost first. */
export function boundAxes(): readonly MeshAxis[] {
  return bound;
}

/** Traces `fn` with further axes bound: those of a shard map or of a named `vmap`. */
export function withAxes<T>(axes: readonly MeshAxis[], fn: () => T): T {
  const before = bound;
  for (const axis of axes) {
    if (before.some(({ name }) => name === axis.name)) {
      throw new AxisError(
        `axis "${axis.name}" is bound already by a surrounding shardMap or vmap: choose another name`,
      );
    }
  }
  bound = [...before, ...axes];
  try {
    return fn();
  } finally {
    bound = before;
  }
}

/** The bound axes with the given names. */
export function lookUpAxes(names: string | readonly string[], caller: string): MeshAxis[] {
  const list = typeof names === "string" ? [names] : names;
  if (new Set(list).size !== list.length) {
    throw new AxisError(`[${caller}] axes [${list.join(", ")}] name an axis twice`);
  }
  return list.map((name) => {
    const axis = bound.find((candidate) => candidate.name === name);
    if (axis) return axis;
    const known =
      bound.length > 0
        ? `the axes here are ${bound.map((a) => `"${a.name}"`).join(", ")}`
        : "no axis is bound here";
    throw new AxisError(
      `[${caller}] unknown axis "${name}": ${known}; call it inside shardMap or vmap with that axis name`,
    );
  });
}
