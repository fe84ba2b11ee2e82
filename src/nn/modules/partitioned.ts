import { need, needIfGiven } from "../../ir/arguments.js";
import type { DType } from "../../ir/dtype.js";
import { isTyped, type Shape, type TensorType } from "../../ir/shape.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { PartitionSpec, type SpecEntry } from "../../spmd/mesh/partitionSpec.js";
import { NamedSharding } from "../../spmd/mesh/sharding.js";
import { currentMesh, withShardingConstraint } from "../../spmd/run/constraint.js";
import { boundAxes } from "../../trace/axes.js";
import type { Whole } from "../../trace/prefix.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { ModuleError } from "./errors.js";
import { AxisMetadata, isBoxed, type MetadataParams } from "./metadata.js";

/** The names of a variable's dims: mesh axes or logical names, `null` for a dim that is not split. */
export type DimNames = readonly SpecEntry[];

/** Makes the initial value of a parameter, which may come in a box. */
export type ParamInitializer = (key: Tensor, shape: Shape, dtype?: DType) => Tensor | AxisMetadata<Tensor>;

/** A value with the mesh axes that split its dims. */
export class Partitioned<T = Tensor> extends AxisMetadata<T> {
  readonly value: T;
  /** For every dim the mesh axes that split it; missing ones are whole. */
  readonly names: DimNames;
  /** Where the constraint applies that {@link unbox} puts on the value, unless `withMesh` gives a mesh. */
  readonly mesh: Mesh | undefined;

  constructor(value: T, names: DimNames, mesh?: Mesh) {
    super();
    this.value = value;
    this.names = names;
    this.mesh = mesh;
  }

  /** The value, constrained to its sharding where a mesh is known and the axes are not handled by a shard map. */
  unbox(): T {
    return constrain(this.value, this.getPartitionSpec(), this.mesh);
  }

  replaceBoxed<U>(value: U): Partitioned<U> {
    return new Partitioned(value, this.names, this.mesh);
  }

  /** The same value with other names. */
  protected rename(names: DimNames): Partitioned<T> {
    return new Partitioned(this.value, names, this.mesh);
  }

  addAxis(index: number, params: MetadataParams): Partitioned<T> {
    const name = partitionName(this, params);
    const names = [...this.names];
    const at = index < 0 ? names.length + 1 + index : index;
    while (names.length < at) names.push(null);
    names.splice(at, 0, name);
    return this.rename(names);
  }

  removeAxis(index: number, params: MetadataParams): Partitioned<T> {
    const name = partitionName(this, params);
    const names = [...this.names];
    const [removed] = names.splice(index, 1);
    if ((removed ?? null) !== name) {
      throw new ModuleError(
        "partition-name",
        `[removeAxis] dim ${index} of ${this} is named ${format(removed)}, not ${format(name)}: give scan or vmap the partitionName under which the variable was made`,
      );
    }
    return this.rename(names);
  }

  /** The names as a spec. */
  getPartitionSpec(): PartitionSpec {
    return new PartitionSpec(this.names);
  }

  /** The sharding of the value on a mesh. */
  getSharding(mesh: Mesh): NamedSharding {
    return new NamedSharding(mesh, this.getPartitionSpec());
  }

  override toString(): string {
    return `${this.constructor.name}(${this.names.map(format).join(", ")})`;
  }
}

function format(entry: SpecEntry | undefined): string {
  if (typeof entry === "symbol") return "UNCONSTRAINED";
  return JSON.stringify(entry ?? null);
}

function partitionName(box: Partitioned<unknown>, params: MetadataParams): SpecEntry {
  if (params.partitionName !== undefined) return params.partitionName;
  throw new ModuleError(
    "partition-name",
    `${box} is used in scan or vmap, which adds a dim to it: name the dim with metadataParams: { partitionName: "layers" } (null when it is not split)`,
  );
}

/** What identifies a box besides its value. */
export function describeBox(box: Partitioned<unknown>): string {
  return box.names.map(format).join() + (box.mesh ? ` on ${box.mesh}` : "");
}

tree.registerClass(Partitioned<unknown>, {
  children: (box): [unknown] => [box.value],
  rebuild: (box, [value]) => box.replaceBoxed(value),
  describe: describeBox,
});

/**
 * The value with a sharding constraint, where a mesh is known. Axes that a surrounding shard map handles
 * itself are left out: there the value is one device's block already.
 */
export function constrain<T>(value: T, spec: PartitionSpec, given: Mesh | undefined): T {
  const mesh = given ?? currentMesh();
  if (!mesh || !(value instanceof Tensor)) return value;
  const manual = new Set(boundAxes().map(({ name }) => name));
  const isManual = (entry: SpecEntry) =>
    typeof entry === "string" ? manual.has(entry) : Array.isArray(entry) && entry.some((a) => manual.has(a));
  if (!spec.entries.some(isManual)) return withShardingConstraint(value, new NamedSharding(mesh, spec));
  const rest = spec.entries.map((entry): SpecEntry => (isManual(entry) ? null : entry));
  if (rest.every((entry) => entry === null)) return value;
  return withShardingConstraint(value, new NamedSharding(mesh, new PartitionSpec(rest)));
}

/**
 * An initialiser whose values come in a {@link Partitioned} box.
 *
 * @example
 * ```ts
 * const init = nn.withPartitioning(random.initializers.ones, [null, "model"]);
 * init(random.key(0), [2, 2]).names; // [null, "model"]
 * ```
 */
export function withPartitioning(
  init: ParamInitializer,
  names: DimNames,
  mesh?: Mesh,
): (key: Tensor, shape: Shape, dtype?: DType) => Partitioned<Tensor> {
  need("function", init, "init", "nn.withPartitioning");
  need("list", names, "names", "nn.withPartitioning");
  needIfGiven("object", mesh, "mesh", "nn.withPartitioning");
  return (key, shape, dtype) => {
    const value = init(key, shape, dtype);
    return new Partitioned(isBoxed(value) ? value.unbox() : value, names, mesh);
  };
}

/**
 * The spec of every variable of a tree: that of its box, or `P()` where there is none. The leaves may be
 * tensors or the types that `evalShape` returns.
 *
 * @example
 * ```ts
 * nn.getPartitionSpec({ w: new nn.Partitioned(np.ones([4]), ["model"]) }).w; // P("model")
 * ```
 */
export function getPartitionSpec<T>(variables: T): ShardingTree<T, PartitionSpec> {
  return mapSpecs((spec) => spec, variables);
}

/**
 * {@link getPartitionSpec} on a mesh: a tree of {@link NamedSharding}.
 *
 * @example
 * ```ts
 * const variables = { w: new nn.Partitioned(np.ones([4]), ["model"]) };
 * nn.getSharding(variables, Mesh.create({ model: 2 })).w.spec; // P("model")
 * ```
 */
export function getSharding<T>(variables: T, mesh: Mesh): ShardingTree<T, NamedSharding> {
  return mapSpecs((spec) => new NamedSharding(mesh, spec), variables);
}

/** The type of a tree of variables after every tensor, and every box of one, became an `S`. */
export type ShardingTree<T, S> = unknown extends T
  ? unknown
  : T extends AxisMetadata<unknown> | TensorType | Whole
    ? S
    : T extends null | undefined
      ? T
      : { readonly [K in keyof T]: ShardingTree<T[K], S> };

function mapSpecs<T, S>(fn: (spec: PartitionSpec) => S, variables: T): ShardingTree<T, S> {
  const specOf = (leaf: unknown) =>
    leaf instanceof Partitioned ? leaf.getPartitionSpec() : new PartitionSpec([]);
  const isLeaf = (node: unknown) => isBoxed(node) || isTyped(node);
  return tree.mapUntil(isLeaf, (leaf: unknown) => fn(specOf(leaf)), variables) as ShardingTree<T, S>;
}
