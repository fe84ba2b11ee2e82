import type { Tensor } from "../../trace/tensor.js";
import { formatPath, ModuleError } from "./errors.js";
import { type CollectionFilter, inFilter } from "./filter.js";
import { drawKey, extendSequences, type RngSequences } from "./rngs.js";

/** The variables of one collection, or of a part of the module tree in it. */
export interface VariableTree {
  readonly [name: string]: unknown;
}

/** The variables of a module by collection: `{ params: { Dense_0: { kernel, bias } }, … }`. */
export interface Variables {
  readonly [collection: string]: VariableTree;
}

type MutableTree = Record<string, unknown>;

/** How many keys each sequence has given, here and in the scopes below. */
interface Counters {
  readonly counts: Map<string, number>;
  readonly children: Map<string, Counters>;
}

/** Decides which results of module calls are kept among the `intermediates`. */
export type CaptureFilter = (moduleName: string, method: string) => boolean;

/** What all scopes of one `init`, `apply` or lifted call share. */
interface Root {
  readonly variables: Record<string, MutableTree>;
  readonly mutable: CollectionFilter;
  readonly initializing: boolean;
  readonly capture: CaptureFilter | undefined;
  isOpen: boolean;
}

/** How to make the scope that a module tree starts from. */
export interface RootOptions {
  readonly variables: Variables;
  readonly rngs: RngSequences;
  readonly mutable: CollectionFilter;
  readonly initializing: boolean;
  readonly capture: CaptureFilter | undefined;
  /** The path in the whole module tree, where that is not the top. */
  readonly path?: readonly string[];
}

/** The names in use in a scope, and the numbers of the next automatic ones. */
export interface Names {
  /** For each name the collections of its variables; `null` stands for a submodule. */
  readonly reserved: Map<string, Set<string | null>>;
  readonly cursors: Map<string, number>;
}

/** A place in the module tree: its variables, its keys, and the names that are taken there. */
export class Scope {
  private readonly root: Root;
  /** The path from the top of the module tree. */
  readonly path: readonly string[];
  /** The path from the scope that the variables of `root` belong to. */
  private readonly steps: readonly string[];
  private readonly counters: Counters;
  private sequences: RngSequences;
  private readonly names: Names = { reserved: new Map(), cursors: new Map() };

  private constructor(
    root: Root,
    path: readonly string[],
    steps: readonly string[],
    sequences: RngSequences,
    counters: Counters,
  ) {
    this.root = root;
    this.path = path;
    this.steps = steps;
    this.sequences = sequences;
    this.counters = counters;
  }

  /** The scope at the top of a module tree; the trees of variables are copied. */
  static top({ variables, rngs, path = [], ...options }: RootOptions): Scope {
    return Scope.make({ ...options, variables, rngs, path }, newCounters());
  }

  /** A scope in the same place with variables and keys of its own; it counts keys together with this one. */
  lifted(options: Pick<RootOptions, "variables" | "rngs" | "mutable">): Scope {
    const { initializing, capture } = this.root;
    return Scope.make({ ...options, initializing, capture, path: this.path }, this.counters);
  }

  private static make(options: RootOptions & { path: readonly string[] }, counters: Counters): Scope {
    const { mutable, initializing, capture } = options;
    const variables = Object.fromEntries(
      Object.entries(options.variables).map(([collection, values]) => [collection, copyTree(values)]),
    );
    const root = { variables, mutable, initializing, capture, isOpen: true };
    return new Scope(root, options.path, [], options.rngs, counters);
  }

  /** The same place with no names taken, as at the start of every call of a module; key counts continue. */
  rewound(): Scope {
    return new Scope(this.root, this.path, this.steps, this.sequences, this.counters);
  }

  /** The scope of a submodule. */
  child(name: string): Scope {
    let counters = this.counters.children.get(name);
    if (!counters) {
      counters = newCounters();
      this.counters.children.set(name, counters);
    }
    const sequences = extendSequences(this.sequences, name);
    return new Scope(this.root, [...this.path, name], [...this.steps, name], sequences, counters);
  }

  /** The names that lead from another scope to this one, or `undefined` when this one is not below it. */
  stepsFrom(other: Scope): readonly string[] | undefined {
    const isBelow = this.root === other.root && other.steps.every((name, i) => name === this.steps[i]);
    return isBelow ? this.steps.slice(other.steps.length) : undefined;
  }

  /** Ends the life of this scope and all others of its call. */
  close(): void {
    this.root.isOpen = false;
  }

  get isInitializing(): boolean {
    return this.root.initializing;
  }

  get mutable(): CollectionFilter {
    return this.root.mutable;
  }

  get rngs(): RngSequences {
    return this.sequences;
  }

  /** Whether the results of a method are to be kept. */
  captures(moduleName: string, method: string): boolean {
    return this.root.capture?.(moduleName, method) ?? false;
  }

  /** Replaces the keys that this scope and its later children draw from; names and counts stay. */
  replaceKeys(fn: (key: Tensor, name: string) => Tensor): void {
    this.sequences = new Map(
      [...this.sequences].map(([name, { key, suffix }]) => [name, { key: fn(key, name), suffix }]),
    );
  }

  /** The next key of a sequence; `params` stands in for one that was not given. */
  makeRng(name: string): Tensor {
    this.checkOpen();
    const used = this.sequences.has(name) ? name : "params";
    const sequence = this.sequences.get(used);
    if (!sequence) {
      const known = [...this.sequences.keys()].map((key) => `"${key}"`).join(", ");
      throw new ModuleError(
        "missing-rng",
        `[makeRng] ${this} needs a key "${name}", but ${known ? `the keys are ${known}` : "there are no keys"}: pass it with module.with({ rngs: { ${name}: random.key(…) } }).apply(…)`,
      );
    }
    const count = (this.counters.counts.get(used) ?? 0) + 1;
    this.counters.counts.set(used, count);
    return drawKey(sequence, count);
  }

  /** Takes a name for a variable of a collection, or for a submodule (`null`). */
  reserve(name: string, collection: string | null, what: string): void {
    this.checkOpen();
    const { reserved } = this.names;
    const users = reserved.get(name) ?? new Set();
    if (users.has(null) || (collection === null && users.size > 0) || users.has(collection)) {
      const user = users.has(null) ? "a submodule" : `a variable of ${[...users].join(", ")}`;
      throw new ModuleError(
        "name-in-use",
        `[${what}] the name "${name}" is taken in ${this} by ${user}: choose another one`,
      );
    }
    reserved.set(name, users.add(collection));
  }

  /** The next automatic name of a submodule, such as `Dense_0`. */
  nextName(moduleName: string): string {
    const { cursors } = this.names;
    const index = cursors.get(moduleName) ?? 0;
    cursors.set(moduleName, index + 1);
    return `${moduleName}_${index}`;
  }

  /** A copy of the names in use. */
  exportNames(): Names {
    return copyNames(this.names);
  }

  /** Takes over the names in use elsewhere. */
  importNames(names: Names): void {
    const { reserved, cursors } = copyNames(names);
    for (const [name, users] of reserved) this.names.reserved.set(name, users);
    for (const [name, cursor] of cursors) this.names.cursors.set(name, cursor);
  }

  isMutable(collection: string): boolean {
    return inFilter(this.root.mutable, collection);
  }

  /** The variables of a collection in this place. */
  collection(name: string): VariableTree {
    let values: unknown = this.root.variables[name];
    for (const step of this.steps) values = isTree(values) ? values[step] : undefined;
    return isTree(values) ? values : {};
  }

  /** The collections that there are in this place. */
  collections(): Variables {
    return Object.fromEntries(
      Object.keys(this.root.variables)
        .map((name) => [name, this.collection(name)] as const)
        .filter(([, values]) => this.steps.length === 0 || Object.keys(values).length > 0),
    );
  }

  /** The collections that can be changed, as they are now. */
  mutableCollections(): Variables {
    return Object.fromEntries(Object.entries(this.collections()).filter(([name]) => this.isMutable(name)));
  }

  /** Whether the whole module tree has no variable in a collection. */
  isCollectionEmpty(name: string): boolean {
    return Object.keys(this.root.variables[name] ?? {}).length === 0;
  }

  has(collection: string, name: string): boolean {
    return Object.hasOwn(this.collection(collection), name);
  }

  get(collection: string, name: string): unknown {
    const values = this.collection(collection);
    return Object.hasOwn(values, name) ? values[name] : undefined;
  }

  /** Sets a variable of a mutable collection; trees are merged into existing ones. */
  put(collection: string, name: string, value: unknown): void {
    this.checkOpen();
    if (!this.isMutable(collection)) {
      throw new ModuleError(
        "immutable-collection",
        `[putVariable] "${name}" in ${this} cannot be set: the collection "${collection}" is not mutable; call module.with({ mutable: ["${collection}"] }).apply(…)`,
      );
    }
    this.root.variables[collection] ??= {};
    let values: MutableTree = this.root.variables[collection];
    for (const step of this.steps) {
      const next = values[step];
      const inner: MutableTree = isTree(next) ? next : {};
      values[step] = inner;
      values = inner;
    }
    merge(values, name, value);
  }

  toString(): string {
    return formatPath(this.path);
  }

  private checkOpen(): void {
    if (this.root.isOpen) return;
    throw new ModuleError(
      "closed-scope",
      `${this} was used after the init, apply or lifted call that it belongs to had ended: create modules inside the function that calls them`,
    );
  }
}

function newCounters(): Counters {
  return { counts: new Map(), children: new Map() };
}

function copyNames({ reserved, cursors }: Names): Names {
  return {
    reserved: new Map([...reserved].map(([name, users]) => [name, new Set(users)])),
    cursors: new Map(cursors),
  };
}

/** Whether a value is an inner node of a tree of variables. */
export function isTree(value: unknown): value is MutableTree {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function copyTree(values: VariableTree): MutableTree {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, isTree(value) ? copyTree(value) : value]),
  );
}

function merge(into: MutableTree, name: string, value: unknown): void {
  const known = into[name];
  if (!isTree(known) || !isTree(value)) {
    into[name] = isTree(value) ? copyTree(value) : value;
    return;
  }
  for (const [key, item] of Object.entries(value)) merge(known, key, item);
}
