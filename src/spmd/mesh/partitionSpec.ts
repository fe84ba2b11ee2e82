import { AxisError, ShardingError } from "../../ir/errors.js";
import {
  axisSizeIn,
  type DimConstraint,
  formatMesh,
  formatSpec,
  type MeshShape,
  type Spec,
  splitCount,
} from "../../ir/mesh.js";
import { at, type Shape } from "../../ir/shape.js";
import * as tree from "../../trace/tree.js";
import { type KnownAxes, unknownAxis } from "./mesh.js";

/** Marks a dim that a constraint leaves to the partitioner. */
export const UNCONSTRAINED: unique symbol = Symbol("UNCONSTRAINED");

/** What {@link P} takes for one dim: no axis, one axis, several (outermost first), or unconstrained. */
export type SpecEntry<Axes extends string = string> = null | Axes | readonly Axes[] | typeof UNCONSTRAINED;

/** The axes that an entry names, outermost first; none where it says nothing. */
export function axesOf(entry: SpecEntry | undefined): readonly string[] {
  if (entry === null || entry === undefined || entry === UNCONSTRAINED) return [];
  return typeof entry === "string" ? [entry] : entry;
}

/**
 * Which mesh axes split which dim of a tensor; dims beyond the entries are whole on every device.
 *
 * @typeParam Axes the names that it uses, to be compared with those of a mesh; without it any mesh takes it
 */
// biome-ignore lint/suspicious/noExplicitAny: a spec of which nothing is known goes with every mesh, and every spec where nothing is known about the mesh
export class PartitionSpec<Axes extends string = any> {
  readonly entries: readonly SpecEntry<Axes>[];

  constructor(entries: readonly SpecEntry<Axes>[]) {
    this.entries = entries;
  }

  /** One entry a dim, each as a list of axes. */
  dims(rank: number): readonly DimConstraint[] {
    const list = this.entries.map(
      (entry): DimConstraint => (entry === UNCONSTRAINED ? "unconstrained" : axesOf(entry)),
    );
    while (list.length < rank) list.push([]);
    return list;
  }

  /** Whether another spec has the same entries; `P("a")` and `P(["a"])` do, `P("a")` and `P("a", null)` do not. */
  equals(other: PartitionSpec): boolean {
    const [own, others] = [this.dims(0), other.dims(0)];
    const same = (a: DimConstraint, b: DimConstraint | undefined) =>
      a === "unconstrained" || b === "unconstrained" || b === undefined
        ? a === b
        : a.length === b.length && a.every((axis, i) => axis === b[i]);
    return own.length === others.length && own.every((axes, d) => same(axes, others[d]));
  }

  toString(): string {
    return formatSpec(this.dims(0));
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }
}

/**
 * Makes a {@link PartitionSpec}: `P("data", null, ["pipe", "model"])` splits dim 0 over axis data, leaves
 * dim 1 whole and splits dim 2 over pipe and model. `P.UNCONSTRAINED` leaves a dim open in a constraint.
 *
 * @example
 * ```ts
 * String(P("data", null)); // "P(\"data\", null)"
 * ```
 */
export const P = Object.assign(
  <const Axes extends string = never>(...entries: SpecEntry<Axes>[]): PartitionSpec<KnownAxes<Axes>> =>
    new PartitionSpec(entries),
  { UNCONSTRAINED } as const,
);

/** The spec of a whole tensor on every device. */
export function replicatedSpec(rank: number): Spec {
  return Array.from({ length: rank }, () => []);
}

/**
 * Brings a spec into the form of one list of axes a dim and checks that it fits mesh and shape: known axes,
 * none used twice, sizes that divide.
 *
 * @param what names the tensor in messages, such as `argument 0/kernel`
 */
export function resolveConstraint(
  spec: PartitionSpec,
  mesh: MeshShape,
  shape: Shape,
  caller: string,
  what: string,
): readonly DimConstraint[] {
  if (spec.entries.length > shape.length) {
    throw new ShardingError(
      `[${caller}] ${what}: ${spec} has ${spec.entries.length} entries but the tensor [${shape}] has ${shape.length} dims`,
    );
  }
  const dims = spec.dims(shape.length);
  const used = new Set<string>();
  for (const name of dims.flatMap((axes) => (axes === "unconstrained" ? [] : axes))) {
    if (axisSizeIn(mesh, name) === undefined) throw unknownAxis(mesh, name, `${caller}] [${what}`);
    if (used.has(name)) throw new AxisError(`[${caller}] ${what}: ${spec} uses axis "${name}" twice`);
    used.add(name);
  }
  dims.forEach((axes, d) => {
    if (axes === "unconstrained") return;
    const parts = splitCount(mesh, axes);
    const n = at(shape, d);
    if (n % parts !== 0) {
      throw new ShardingError(
        `[${caller}] ${what}: dim ${d} of [${shape}] does not split over ${spec} on the mesh ${formatMesh(mesh)} (${n} / ${parts} = ${n / parts}): use a size that is a multiple of ${parts}`,
      );
    }
  });
  return dims;
}

/** {@link resolveConstraint} for specs that must say something about every dim. */
export function resolveSpec(
  spec: PartitionSpec,
  mesh: MeshShape,
  shape: Shape,
  caller: string,
  what: string,
): Spec {
  return resolveConstraint(spec, mesh, shape, caller, what).map((axes) => {
    if (axes === "unconstrained") {
      throw new ShardingError(
        `[${caller}] ${what}: P.UNCONSTRAINED is allowed only in withShardingConstraint`,
      );
    }
    return axes;
  });
}

/** The {@link PartitionSpec} of a resolved spec, without trailing whole dims. */
export function toPartitionSpec(spec: Spec): PartitionSpec {
  const entries = spec.map(
    (axes): SpecEntry => (axes.length === 0 ? null : axes.length === 1 ? at(axes, 0) : axes),
  );
  while (entries.length > 0 && entries.at(-1) === null) entries.pop();
  return new PartitionSpec(entries);
}

/** Whether a node of a tree is a spec, which is a leaf there. */
export const isSpec = (node: unknown): node is PartitionSpec => node instanceof PartitionSpec;

/** Applies a function to every spec of a tree. */
export function mapSpecs<R>(specs: unknown, fn: (spec: PartitionSpec) => unknown): R {
  return tree.mapUntil(isSpec, (leaf: unknown) => (isSpec(leaf) ? fn(leaf) : leaf), specs) as R;
}
