import { Ambient } from "../../ir/ambient.js";
import { need, needIfGiven, oneOf } from "../../ir/arguments.js";
import { show } from "../../ir/describe.js";
import type { DType } from "../../ir/dtype.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import type { Shape } from "../../ir/shape.js";
import { type Mesh, meshKind } from "../../spmd/mesh/mesh.js";
import { axesOf, mapSpecs, PartitionSpec, type SpecEntry } from "../../spmd/mesh/partitionSpec.js";
import { NamedSharding } from "../../spmd/mesh/sharding.js";
import { currentMesh } from "../../spmd/run/constraint.js";
import { needTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { ModuleError } from "./errors.js";
import { isBoxed } from "./metadata.js";
import { constrain, type DimNames, describeBox, type ParamInitializer, Partitioned } from "./partitioned.js";

/**
 * Which mesh axes split dims of a logical name, in order of precedence: a rule counts when none of its axes
 * splits another dim of the same tensor already. A name may have several rules.
 */
export type LogicalRules = readonly (readonly [logicalName: string, axes: SpecEntry])[];

const surrounding = new Ambient<LogicalRules>({
  name: "logical axis rules",
  initial: [],
  setBy: "nn.logicalAxisRules",
  dependence: { key: formatRules },
});

/** Rules as text; axes may also be left to the partitioner, by a symbol. */
function formatRules(rules: LogicalRules): string {
  return JSON.stringify(rules, (_, entry: unknown) => (typeof entry === "symbol" ? { symbol: true } : entry));
}

/**
 * Runs `fn` with rules for logical names.
 *
 * @example
 * ```ts
 * nn.logicalAxisRules([["batch", "data"]], () => nn.logicalToMeshAxes(["batch", "embed"])); // P("data", null)
 * ```
 */
export function logicalAxisRules<T>(rules: LogicalRules, fn: () => T): T {
  need("list", rules, "rules", "nn.logicalAxisRules");
  need("function", fn, "fn", "nn.logicalAxisRules");
  return surrounding.within(rules, fn);
}

/**
 * The rules of the surrounding {@link logicalAxisRules}.
 *
 * @example
 * ```ts
 * nn.logicalAxisRules([["batch", "data"]], () => nn.getLogicalAxisRules()); // [["batch", "data"]]
 * ```
 */
export function getLogicalAxisRules(): LogicalRules {
  return surrounding.get();
}

/** The mesh axes of each dim; `undefined` for a name without a rule that applies. */
function assign(names: DimNames, rules: LogicalRules): (SpecEntry | undefined)[] {
  const twice = names.filter((name, i) => typeof name === "string" && names.indexOf(name) !== i);
  if (twice.length > 0) {
    throw new ModuleError(
      "partition-name",
      `[logicalToMeshAxes] the names ${show(names)} use ${show(twice[0])} twice: every dim of a tensor needs a name of its own`,
    );
  }
  const assigned = names.map((name): SpecEntry | undefined => (typeof name === "string" ? undefined : name));
  for (const rule of rules) {
    need("list", rule, "a rule", "logicalToMeshAxes");
    const [name, axes] = rule;
    const dim = names.indexOf(name);
    const used = new Set(assigned.flatMap(axesOf));
    if (dim < 0 || assigned[dim] !== undefined || axesOf(axes).some((axis) => used.has(axis))) continue;
    assigned[dim] = axes;
  }
  return assigned;
}

/**
 * The mesh axes that split a tensor whose dims have the given logical names; dims without a rule are whole.
 *
 * @example
 * ```ts
 * const rules = [["batch", "data"], ["embed", "data"], ["embed", "model"]] as const;
 * nn.logicalToMeshAxes(["batch", "embed"], rules); // P("data", "model")
 * ```
 */
export function logicalToMeshAxes(
  names: DimNames,
  rules: LogicalRules = getLogicalAxisRules(),
): PartitionSpec {
  need("list", names, "names", "nn.logicalToMeshAxes");
  needIfGiven("list", rules, "rules", "nn.logicalToMeshAxes");
  return new PartitionSpec(assign(names, rules).map((axes) => axes ?? null));
}

/**
 * {@link logicalToMeshAxes} for every spec of a tree, such as that of {@link getPartitionSpec}.
 *
 * @example
 * ```ts
 * nn.logicalToMesh({ w: P("embed", "mlp") }, [["mlp", "model"]]).w; // P(null, "model")
 * ```
 */
export function logicalToMesh<T>(specs: T, rules: LogicalRules = getLogicalAxisRules()): T {
  return mapSpecs(specs, (spec) => logicalToMeshAxes(spec.entries, rules));
}

/**
 * {@link logicalToMesh} on a mesh: a tree of {@link NamedSharding}.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ model: 2 });
 * nn.logicalToMeshSharding({ w: P("embed", "mlp") }, mesh, [["mlp", "model"]]).w.spec; // P(null, "model")
 * ```
 */
export function logicalToMeshSharding<T>(
  specs: T,
  mesh: Mesh,
  rules: LogicalRules = getLogicalAxisRules(),
): tree.MapTree<T, PartitionSpec, NamedSharding> {
  need("object", mesh, "mesh", "nn.logicalToMeshSharding");
  needIfGiven("list", rules, "rules", "nn.logicalToMeshSharding");
  return mapSpecs(specs, (spec) => new NamedSharding(mesh, logicalToMeshAxes(spec.entries, rules)));
}

/** What happens to a constraint when a name has no rule. */
export type RulesFallback = "axisIsUnsharded" | "raiseError" | "noConstraint";

const logicalConstraintOptions = schema({
  /** The rules; those of the surrounding {@link logicalAxisRules} by default. */
  rules: optional<LogicalRules>("list"),
  /** The mesh; that of the surrounding `withMesh` by default. */
  mesh: optional(meshKind),
  /** A name without a rule leaves its dim whole by default. */
  fallback: optional<RulesFallback>(
    oneOf("axisIsUnsharded", "raiseError", "noConstraint"),
    "axisIsUnsharded",
  ),
});

/** Options of {@link withLogicalConstraint}. */
export interface LogicalConstraintOptions extends OptionsOf<typeof logicalConstraintOptions> {}

/**
 * The same tensor, which the partitioner must split as the logical names of its dims say. Without rules or
 * without a mesh it does nothing, so that a model can name its dims and still run on one device.
 *
 * @example
 * ```ts
 * nn.withLogicalConstraint(np.array([[1, 2]]), ["batch", "embed"]); // [[1, 2]]
 * ```
 */
export function withLogicalConstraint(
  x: Tensor,
  names: DimNames,
  options?: LogicalConstraintOptions,
): Tensor {
  needTensor(x, "x", "nn.withLogicalConstraint");
  need("list", names, "names", "nn.withLogicalConstraint");
  const {
    rules = getLogicalAxisRules(),
    mesh,
    fallback,
  } = logicalConstraintOptions.read(options, "nn.withLogicalConstraint");
  if (rules.length === 0 || !(mesh ?? currentMesh())) return x;
  const assigned = assign(names, rules);
  const missing = names.filter((_, dim) => assigned[dim] === undefined);
  if (missing.length > 0 && fallback === "noConstraint") return x;
  if (missing.length > 0 && fallback === "raiseError") {
    throw new ModuleError(
      "partition-name",
      `[withLogicalConstraint] no rule applies to ${show(missing)} of ${show(names)}: add rules, or choose another fallback`,
    );
  }
  return constrain(x, new PartitionSpec(assigned.map((axes) => axes ?? null)), mesh);
}

/** A value whose dims have logical names, for which rules give the mesh axes. */
export class LogicallyPartitioned<T = Tensor> extends Partitioned<T> {
  /** The rules for the names; those of the surrounding {@link logicalAxisRules} by default. */
  readonly rules: LogicalRules | undefined;

  constructor(
    value: T,
    names: DimNames,
    options: { rules?: LogicalRules | undefined; mesh?: Mesh | undefined } = {},
  ) {
    super(value, names, options?.mesh);
    need("object", options, "the options", "nn.LogicallyPartitioned");
    this.rules = options.rules;
  }

  override unbox(): T {
    const rules = this.rules ?? getLogicalAxisRules();
    return rules.length === 0
      ? this.value
      : constrain(this.value, logicalToMeshAxes(this.names, rules), this.mesh);
  }

  override replaceBoxed<U>(value: U): LogicallyPartitioned<U> {
    return new LogicallyPartitioned(value, this.names, this);
  }

  protected override rename(names: DimNames): LogicallyPartitioned<T> {
    return new LogicallyPartitioned(this.value, names, this);
  }
}

tree.registerClass(LogicallyPartitioned<unknown>, {
  children: (box): [unknown] => [box.value],
  rebuild: (box, [value]) => box.replaceBoxed(value),
  describe: (box) => `${describeBox(box)}${box.rules ? ` by ${formatRules(box.rules)}` : ""}`,
});

/**
 * An initialiser whose values come in a {@link LogicallyPartitioned} box.
 *
 * @example
 * ```ts
 * const init = nn.withLogicalPartitioning(random.initializers.ones, ["embed", "mlp"]);
 * init(random.key(0), [2, 2]).names; // ["embed", "mlp"]
 * ```
 */
export function withLogicalPartitioning(
  init: ParamInitializer,
  names: DimNames,
  options: { readonly rules?: LogicalRules; readonly mesh?: Mesh } = {},
): (key: Tensor, shape: Shape, dtype?: DType) => LogicallyPartitioned<Tensor> {
  need("function", init, "init", "nn.withLogicalPartitioning");
  need("list", names, "names", "nn.withLogicalPartitioning");
  needIfGiven("object", options, "options", "nn.withLogicalPartitioning");
  return (key, shape, dtype) => {
    const value = init(key, shape, dtype);
    return new LogicallyPartitioned(isBoxed(value) ? value.unbox() : value, names, options);
  };
}
