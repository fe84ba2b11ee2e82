import { Ambient } from "../ir/ambient.js";
import { need } from "../ir/arguments.js";
import { AxisError } from "../ir/errors.js";
import type { MeshAxis } from "../ir/mesh.js";

/** An axis that collectives can name. */
export interface BoundAxis extends MeshAxis {
  /** Whether types say which values differ along it: the axes of shard maps with the replication check. */
  readonly checked?: boolean;
  /** What a `vmap` axis is called in programs where the name belongs to a surrounding axis as well. */
  readonly alias?: string;
}

const bound = new Ambient<readonly BoundAxis[]>({
  name: "bound axes",
  initial: [],
  setBy: "shardMap or vmap",
  dependence: {
    key: (axes) =>
      axes.map((axis) => `${nameInPrograms(axis)}=${axis.size}${axis.checked ? "" : "?"}`).join(),
  },
});

const nameInPrograms = ({ name, alias }: BoundAxis): string => alias ?? name;

/** The axes that collectives can name at this point of tracing, outermost first; inner ones hide others of their name. */
export function boundAxes(): readonly BoundAxis[] {
  return bound.get();
}

/** Traces `fn` with the axes of a shard map bound. */
export function withAxes<T>(axes: readonly BoundAxis[], fn: () => T): T {
  const before = bound.get();
  for (const axis of axes) {
    if (before.some(({ name, checked }) => name === axis.name && checked !== undefined)) {
      throw new AxisError(
        `axis "${axis.name}" is bound already by a surrounding shardMap: devices along it have a block each`,
      );
    }
  }
  return bound.within([...before, ...axes], fn);
}

/**
 * Traces `fn` with the axis of a named `vmap` bound.
 *
 * @param fn is given the axis's name in programs
 */
export function withMappedAxis<T>(axis: MeshAxis, fn: (name: string) => T): T {
  const before = bound.get();
  const taken = before.filter(({ name }) => name === axis.name).length;
  const alias = axis.name + "′".repeat(taken);
  return bound.within([...before, { ...axis, alias }], () => fn(alias));
}

/** The bound axes with the given names. */
export function lookUpAxes(names: string | readonly string[], caller: string): MeshAxis[] {
  const list = typeof names === "string" ? [names] : names;
  need("strings", list, "the axis names", caller);
  if (new Set(list).size !== list.length) {
    throw new AxisError(`[${caller}] axes [${list.join(", ")}] name an axis twice`);
  }
  return list.map((name) => {
    const axis = boundAxes().findLast((candidate) => candidate.name === name);
    if (axis) return { name: nameInPrograms(axis), size: axis.size };
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
  return axes.filter(({ name }) =>
    boundAxes().some((axis) => nameInPrograms(axis) === name && axis.checked === true),
  );
}
