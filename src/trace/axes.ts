import { Ambient } from "../ir/ambient.js";
import { need } from "../ir/arguments.js";
import { AxisError } from "../ir/errors.js";
import type { MeshAxis } from "../ir/mesh.js";

/** An axis that collectives can name. */
export interface BoundAxis extends MeshAxis {
  /** Whether types say which values differ along it: the axes of shard maps with the replication check. */
  readonly checked?: boolean;
}

const bound = new Ambient<readonly BoundAxis[]>({
  name: "bound axes",
  initial: [],
  setBy: "shardMap or vmap",
  dependence: {
    key: (axes) => axes.map(({ name, size, checked }) => `${name}=${size}${checked ? "" : "?"}`).join(),
  },
});

/** The axes that collectives can name at this point of tracing, outermost first. */
export function boundAxes(): readonly BoundAxis[] {
  return bound.get();
}

/** Traces `fn` with further axes bound: those of a shard map or of a named `vmap`. */
export function withAxes<T>(axes: readonly BoundAxis[], fn: () => T): T {
  const before = bound.get();
  for (const axis of axes) {
    if (before.some(({ name }) => name === axis.name)) {
      throw new AxisError(
        `axis "${axis.name}" is bound already by a surrounding shardMap or vmap: choose another name`,
      );
    }
  }
  return bound.within([...before, ...axes], fn);
}

/** The bound axes with the given names. */
export function lookUpAxes(names: string | readonly string[], caller: string): MeshAxis[] {
  const list = typeof names === "string" ? [names] : names;
  need("strings", list, "the axis names", caller);
  if (new Set(list).size !== list.length) {
    throw new AxisError(`[${caller}] axes [${list.join(", ")}] name an axis twice`);
  }
  return list.map((name) => {
    const axis = boundAxes().find((candidate) => candidate.name === name);
    if (axis) return { name, size: axis.size };
    const known =
      boundAxes().length > 0
        ? `the axes here are ${boundAxes()
            .map((a) => `"${a.name}"`)
            .join(", ")}`
        : "no axis is bound here";
    throw new AxisError(
      `[${caller}] unknown axis "${name}": ${known}; call it inside shardMap or vmap with that axis name`,
    );
  });
}

/** The axes along which types say which values differ. */
export function checkedAxes(axes: readonly MeshAxis[]): MeshAxis[] {
  return axes.filter(({ name }) => boundAxes().some((axis) => axis.name === name && axis.checked));
}
