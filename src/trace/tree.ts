import { need, needIfGiven } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import { TreeError } from "../ir/errors.js";
import { identityOf } from "../ir/identity.js";
import type { Whole } from "./prefix.js";
import { type Registered, registered } from "./treeClasses.js";

export { registerClass, type TreeClass } from "./treeClasses.js";

/**
 * The shape of a tree without its leaves. Keys of objects are sorted, as in JAX, so that insertion order does not
 * matter.
 */
export type Structure =
  | { readonly kind: "leaf" }
  | { readonly kind: "none" }
  /** A static value, part of the structure: structures with different values are different. */
  | { readonly kind: "static"; readonly value: unknown }
  | { readonly kind: "array"; readonly children: readonly Structure[] }
  | { readonly kind: "object"; readonly keys: readonly string[]; readonly children: readonly Structure[] }
  | {
      readonly kind: "class";
      readonly name: string;
      readonly rebuild: (children: readonly unknown[]) => unknown;
      readonly aux: string;
      readonly children: readonly Structure[];
    };

/** Decides what counts as a leaf besides everything that is not an array, plain object or registered class. */
export type IsLeaf = (node: unknown) => boolean;

const leaf: Structure = { kind: "leaf" };
const none: Structure = { kind: "none" };

type Node =
  | { kind: "leaf" }
  | { kind: "none" }
  | { kind: "array"; children: readonly unknown[] }
  | { kind: "object"; keys: readonly string[]; children: readonly unknown[] }
  | { kind: "class"; type: Registered; children: readonly unknown[] };

/** Maximum depth of a tree: deeper ones would exhaust the stack, and cyclic ones never end. */
const maxDepth = 1000;

function open(node: unknown, isLeaf: IsLeaf | undefined): Node {
  if (isLeaf?.(node)) return { kind: "leaf" };
  if (node === null || node === undefined) return { kind: "none" };
  if (typeof node !== "object") return { kind: "leaf" };
  if (Array.isArray(node)) return { kind: "array", children: node };
  const prototype: object | null = Object.getPrototypeOf(node);
  if (prototype === Object.prototype || prototype === null) {
    const keys = Object.keys(node).sort();
    return { kind: "object", keys, children: keys.map((key) => (node as Record<string, unknown>)[key]) };
  }
  const type = registered(prototype);
  return type ? { kind: "class", type, children: type.children(node) } : { kind: "leaf" };
}

/** The inner node that replaces a leaf with parts. */
export interface OpenedLeaf {
  readonly name: string;
  readonly children: readonly unknown[];
  readonly rebuild: (children: readonly unknown[]) => unknown;
}

interface Walk {
  readonly opens?: ((leaf: unknown) => OpenedLeaf | undefined) | undefined;
  readonly isLeaf?: IsLeaf | undefined;
  readonly isStatic?: IsLeaf | undefined;
  readonly visit: (leaf: unknown, path: string) => void;
}

function walk(node: unknown, how: Walk, path: string, depth = 0): Structure {
  const { isLeaf, isStatic, visit } = how;
  if (depth > maxDepth) {
    throw new TreeError(
      `a tree has more than ${maxDepth} levels at ${path.slice(0, 60)}…: it holds itself, or must be made flatter`,
    );
  }
  if (isStatic?.(node)) return { kind: "static", value: node };
  const opened = open(node, isLeaf);
  switch (opened.kind) {
    case "leaf": {
      const inner = how.opens?.(node);
      if (inner) return walkOpened(inner, how, path);
      visit(node, path);
      return leaf;
    }
    case "none":
      return none;
    case "array":
      return {
        kind: "array",
        children: opened.children.map((child, i) => walk(child, how, join(path, String(i)), depth + 1)),
      };
    case "object":
      return {
        kind: "object",
        keys: opened.keys,
        children: opened.children.map((child, i) =>
          walk(child, how, join(path, opened.keys[i] ?? ""), depth + 1),
        ),
      };
    case "class": {
      const { type } = opened;
      const single = opened.children.length === 1;
      return {
        kind: "class",
        name: type.name,
        aux: type.describe(node),
        rebuild: (children) => type.rebuild(node, children),
        children: opened.children.map((child, i) =>
          walk(child, how, single ? path : join(path, String(i)), depth + 1),
        ),
      };
    }
  }
}

function walkOpened({ name, children, rebuild }: OpenedLeaf, { visit }: Walk, path: string): Structure {
  for (const child of children) visit(child, path);
  return { kind: "class", name, aux: "", rebuild, children: children.map(() => leaf) };
}

function join(path: string, key: string): string {
  return path === "" ? key : `${path}/${key}`;
}

/**
 * The leaves of a tree from left to right, and its structure.
 *
 * @example
 * ```ts
 * tree.flatten({ w: 1, b: [2, 3] }).leaves; // [2, 3, 1]
 * ```
 */
export function flatten(tree: unknown, isLeaf?: IsLeaf): { leaves: unknown[]; structure: Structure } {
  needIfGiven("function", isLeaf, "isLeaf", "tree");
  const leaves: unknown[] = [];
  const structure = walk(tree, { isLeaf, visit: (value) => leaves.push(value) }, "");
  return { leaves, structure };
}

/**
 * The leaves of a tree with the path to each, such as `params/Dense_0/kernel`.
 *
 * @example
 * ```ts
 * tree.flattenWithPath({ w: 1, b: [2] }); // [{ "path": "b/0", "leaf": 2 }, { "path": "w", "leaf": 1 }]
 * ```
 */
export function flattenWithPath(tree: unknown, isLeaf?: IsLeaf): { path: string; leaf: unknown }[] {
  needIfGiven("function", isLeaf, "isLeaf", "tree");
  const entries: { path: string; leaf: unknown }[] = [];
  walk(tree, { isLeaf, visit: (value, path) => entries.push({ path, leaf: value }) }, "");
  return entries;
}

/**
 * The leaves of a tree with their paths, and its structure, which includes the values that `isStatic` selects.
 *
 * @param opens the inner nodes for leaves with parts
 *
 * @example
 * ```ts
 * tree.flattenDynamic({ w: 1, name: "a" }, (leaf) => typeof leaf === "string").entries; // [{ "path": "w", "leaf": 1 }]
 * ```
 */
export function flattenDynamic(
  tree: unknown,
  isStatic: IsLeaf,
  opens?: (leaf: unknown) => OpenedLeaf | undefined,
): { readonly entries: readonly { path: string; leaf: unknown }[]; readonly structure: Structure } {
  const entries: { path: string; leaf: unknown }[] = [];
  const visit = (leaf: unknown, path: string) => entries.push({ path, leaf });
  need("function", isStatic, "isStatic", "tree.flattenDynamic");
  needIfGiven("function", opens, "opens", "tree.flattenDynamic");
  return { structure: walk(tree, { isStatic, opens, visit }, ""), entries };
}

/**
 * The leaves of a tree from left to right.
 *
 * @example
 * ```ts
 * tree.leaves({ w: 1, b: [2, 3] }); // [2, 3, 1]
 * ```
 */
export function leaves(tree: unknown, isLeaf?: IsLeaf): unknown[] {
  return flatten(tree, isLeaf).leaves;
}

/**
 * The structure of a tree.
 *
 * @example
 * ```ts
 * tree.numLeaves(tree.structure({ w: 1, b: [2, 3] })); // 3
 * ```
 */
export function structure(tree: unknown, isLeaf?: IsLeaf): Structure {
  return flatten(tree, isLeaf).structure;
}

/** Throws unless a value is what {@link structure} returns. */
function checkStructure(s: Structure): void {
  need("object", s, "a tree's structure", "tree");
  const { kind } = s;
  if (kind === "leaf" || kind === "none" || kind === "static") return;
  if (kind !== "array" && kind !== "object" && kind !== "class") {
    throw new TreeError(`a tree's structure has the kind ${describe(kind)}: make it with tree.structure(…)`);
  }
  need("list", s.children, "the children of a structure", "tree");
  if (kind === "object") need("strings", s.keys, "the keys of a structure", "tree");
  if (kind === "class") need("function", s.rebuild, "rebuild of a structure", "tree");
}

/**
 * The number of leaves a structure has.
 *
 * @example
 * ```ts
 * tree.numLeaves(tree.structure([1, [2, 3]])); // 3
 * ```
 */
export function numLeaves(s: Structure): number {
  checkStructure(s);
  if (s.kind === "leaf") return 1;
  return s.kind === "none" || s.kind === "static"
    ? 0
    : s.children.reduce((n, child) => n + numLeaves(child), 0);
}

/**
 * The path to each leaf of a structure.
 *
 * @example
 * ```ts
 * tree.leafPaths(tree.structure({ w: 1, b: [2, 3] })); // ["b/0", "b/1", "w"]
 * ```
 */
export function leafPaths(s: Structure, path = ""): string[] {
  checkStructure(s);
  if (s.kind === "leaf") return [path];
  if (s.kind === "none" || s.kind === "static") return [];
  const single = s.kind === "class" && s.children.length === 1;
  return s.children.flatMap((child, i) => {
    const key = s.kind === "object" ? (s.keys[i] ?? "") : String(i);
    return leafPaths(child, single ? path : join(path, key));
  });
}

/**
 * Builds the tree of the given structure from its leaves; the caller states the tree's type.
 *
 * @example
 * ```ts
 * tree.unflatten(tree.structure({ w: 1, b: [2] }), [5, 6]); // { "b": [5], "w": 6 }
 * ```
 */
export function unflatten<T = unknown>(s: Structure, values: readonly unknown[]): T {
  const wanted = numLeaves(s);
  need("list", values, "the leaves", "tree.unflatten");
  if (wanted !== values.length) {
    throw new TreeError(
      `[tree.unflatten] the structure ${formatStructure(s)} has ${wanted} leaves, got ${values.length}`,
    );
  }
  let next = 0;
  const build = (node: Structure): unknown => {
    switch (node.kind) {
      case "leaf":
        return values[next++];
      case "none":
        return null;
      case "static":
        return node.value;
      case "array":
        return node.children.map(build);
      case "object":
        return Object.fromEntries(node.keys.map((key, i) => [key, build(node.children[i] ?? none)]));
      case "class":
        return node.rebuild(node.children.map(build));
    }
  };
  return build(s) as T;
}

/**
 * Whether two structures are equal.
 *
 * @example
 * ```ts
 * tree.sameStructure(tree.structure([1, 2]), tree.structure([3, 4])); // true
 * ```
 */
export function sameStructure(a: Structure, b: Structure): boolean {
  return a === b || formatStructure(a) === formatStructure(b);
}

/**
 * A structure as a string: `*` stands for a leaf.
 *
 * @example
 * ```ts
 * tree.formatStructure(tree.structure({ w: 1, b: [2] })); // "{b: [*], w: *}"
 * ```
 */
export function formatStructure(s: Structure): string {
  checkStructure(s);
  switch (s.kind) {
    case "leaf":
      return "*";
    case "none":
      return "null";
    case "static":
      return formatStatic(s.value);
    case "array":
      return `[${s.children.map(formatStructure).join(", ")}]`;
    case "object":
      return `{${s.keys.map((key, i) => `${key}: ${formatStructure(s.children[i] ?? none)}`).join(", ")}}`;
    case "class":
      return `${s.name}<${s.aux}>(${s.children.map(formatStructure).join(", ")})`;
  }
}

/**
 * A key of a static value: equal for equal primitives, and for objects and functions only if they are identical.
 *
 * @example
 * ```ts
 * tree.formatStatic("fast") === tree.formatStatic("slow"); // false
 * ```
 */
export function formatStatic(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (value === null || (typeof value !== "object" && typeof value !== "function")) {
    return `${typeof value} ${Object.is(value, -0) ? "-0" : String(value)}`;
  }
  return `${typeof value} #${identityOf(value)}`;
}

/**
 * Throws a {@link TreeError} that shows both structures unless they are equal.
 *
 * @example
 * ```ts
 * tree.checkSameStructure(tree.structure([1]), tree.structure([2]), "example", "params", "grads");
 * ```
 */
export function checkSameStructure(
  a: Structure,
  b: Structure,
  caller: string,
  whatA: string,
  whatB: string,
): void {
  if (!sameStructure(a, b)) {
    throw new TreeError(
      `[${caller}] ${whatA} and ${whatB} must have the same tree structure:\n  ${whatA}: ${formatStructure(a)}\n  ${whatB}: ${formatStructure(b)}`,
    );
  }
}

/**
 * Applies a function to the leaves of a tree, together with the corresponding leaves of further trees.
 *
 * @example
 * ```ts
 * tree.map((p: number, g: number) => p - 0.5 * g, { w: 1, b: [2] }, { w: 2, b: [4] }); // { "b": [0], "w": 0 }
 * ```
 */
export function map<T, L, R = L>(
  fn: (leaf: L, ...others: L[]) => R,
  tree: T,
  ...others: readonly unknown[]
): MapTree<T, L, R> {
  need("function", fn, "what is applied to leaves", "tree.map");
  return mapWithPath<T, L, R>((_path, value, ...rest) => fn(value, ...rest), tree, ...others);
}

/**
 * Like {@link map}; what `isLeaf` selects is a leaf, too, such as `null` or a whole branch.
 *
 * @example
 * ```ts
 * tree.mapUntil(Array.isArray, (x: number | number[]) => (Array.isArray(x) ? x.length : x), { a: 1, b: [2, 3] }); // { "a": 1, "b": 2 }
 * ```
 */
export function mapUntil<T, L, R = L>(
  isLeaf: IsLeaf,
  fn: (leaf: L, ...others: L[]) => R,
  tree: T,
  ...others: readonly unknown[]
): MapTree<T, L, R> {
  need("function", fn, "what is applied to leaves", "tree.mapUntil");
  need("function", isLeaf, "isLeaf", "tree.mapUntil");
  return mapEntries<T, L, R>((_path, value, ...rest) => fn(value, ...rest), tree, others, isLeaf);
}

/**
 * Like {@link map}; the function also receives the path of the leaf.
 *
 * @example
 * ```ts
 * tree.mapWithPath((path: string, x: number) => `${path}=${x}`, { a: 1, b: [2] }); // { "a": "a=1", "b": ["b/0=2"] }
 * ```
 */
export function mapWithPath<T, L, R = L>(
  fn: (path: string, leaf: L, ...others: L[]) => R,
  tree: T,
  ...others: readonly unknown[]
): MapTree<T, L, R> {
  return mapEntries(fn, tree, others, undefined);
}

function mapEntries<T, L, R>(
  fn: (path: string, leaf: L, ...others: L[]) => R,
  tree: T,
  others: readonly unknown[],
  isLeaf: IsLeaf | undefined,
): MapTree<T, L, R> {
  need("function", fn, "what is applied to leaves", "tree.map");
  const entries = flattenWithPath(tree, isLeaf);
  const own = structure(tree, isLeaf);
  const columns = others.map((other, i) => {
    const flat = flatten(other, isLeaf);
    checkSameStructure(own, flat.structure, "tree.map", "the first tree", `tree ${i + 2}`);
    return flat.leaves;
  });
  const results = entries.map(({ path, leaf: value }, i) =>
    fn(path, value as L, ...columns.map((column) => column[i] as L)),
  );
  return unflatten(own, results);
}

/**
 * Whether all leaves are truthy; JavaScript values, not tensors, which have no values while they are traced.
 *
 * @example
 * ```ts
 * tree.all({ a: true, b: [false] }); // false
 * ```
 */
export function all(tree: unknown): boolean {
  return leaves(tree).every(Boolean);
}

/**
 * Combines the leaves of a tree from left to right, starting from `initial`.
 *
 * @example
 * ```ts
 * tree.reduce((total: number, x: number) => total + x, { a: 1, b: [2, 3] }, 0); // 6
 * ```
 */
export function reduce<L, R>(fn: (total: R, leaf: L) => R, tree: unknown, initial: R): R {
  need("function", fn, "what collects leaves", "tree.reduce");
  return (leaves(tree) as L[]).reduce(fn, initial);
}

/**
 * Turns a tree of trees inside out: an array of objects becomes an object of arrays.
 *
 * @param outer the structure of the tree
 * @param inner the structure of every tree in it
 *
 * @example
 * ```ts
 * tree.transpose(tree.structure([0, 0]), tree.structure({ a: 0, b: 0 }), [{ a: 1, b: 2 }, { a: 3, b: 4 }]); // { "a": [1, 3], "b": [2, 4] }
 * ```
 */
export function transpose<T = unknown>(outer: Structure, inner: Structure, tree: unknown): T {
  const width = numLeaves(inner);
  const flat = flatten(tree);
  checkSameStructure(nest(outer, inner), flat.structure, "tree.transpose", "outer and inner", "the tree");
  const columns = Array.from({ length: width }, (_, i) =>
    unflatten(
      outer,
      flat.leaves.filter((_, j) => j % width === i),
    ),
  );
  return unflatten<T>(inner, columns);
}

/** The structure in which `inner` stands at every leaf of `outer`. */
function nest(outer: Structure, inner: Structure): Structure {
  if (outer.kind === "leaf") return inner;
  if (outer.kind === "none" || outer.kind === "static") return outer;
  return { ...outer, children: outer.children.map((child) => nest(child, inner)) };
}

/** The type of a tree after its leaves of type `L` became `R`. */
export type MapTree<T, L, R> = [L, R] extends [R, L] ? T : MappedTree<T, L, R>;

type MappedTree<T, L, R> = T extends L
  ? R
  : T extends Whole
    ? T
    : T extends object
      ? { [K in keyof T]: MappedTree<T[K], L, R> }
      : T;

/**
 * Releases the memory of all tensors in a tree now instead of when they are garbage-collected.
 *
 * @param except a tree whose tensors are kept
 *
 * @example
 * ```ts
 * tree.dispose({ w: np.array([1]) });
 * ```
 */
export function dispose(tree: unknown, except?: unknown): void {
  const kept = new Set(leaves(except));
  for (const leaf of leaves(tree)) if (isDisposable(leaf) && !kept.has(leaf)) leaf[Symbol.dispose]();
}

function isDisposable(leaf: unknown): leaf is Disposable {
  return typeof leaf === "object" && leaf !== null && Symbol.dispose in leaf;
}

/**
 * Repeats the leaves of a prefix tree so that there is one for every leaf of the full tree:
 * `broadcastPrefix(0, [x, y])` is `[0, 0]`.
 *
 * @param isLeaf what is a leaf of the prefix, where a leaf is itself an array or `null`
 *
 * @example
 * ```ts
 * tree.broadcastPrefix(0, tree.structure({ a: 1, b: [2, 3] }), "example"); // [0, 0, 0]
 * ```
 */
export function broadcastPrefix(
  prefix: unknown,
  full: Structure,
  caller: string,
  isLeaf?: IsLeaf,
): unknown[] {
  need("string", caller, "the caller", "tree.broadcastPrefix");
  needIfGiven("function", isLeaf, "isLeaf", caller);
  checkStructure(full);
  const result: unknown[] = [];
  const spread = (p: unknown, s: Structure, path: string): void => {
    const opened = open(p, isLeaf);
    // A static value needs no entry, so any is accepted.
    if (s.kind === "static") return;
    if (opened.kind === "leaf" || (opened.kind === "none" && s.kind !== "none")) {
      for (let i = numLeaves(s); i > 0; i--) result.push(p);
      return;
    }
    if (opened.kind === "none") return;
    if (s.kind === "leaf" || s.kind === "none" || !fits(opened, s)) {
      throw new TreeError(
        `[${caller}] the prefix tree does not fit${path && ` at ${path}`}: it has ${formatStructure(structure(p, isLeaf))} where the tree has ${formatStructure(s)}`,
      );
    }
    opened.children.forEach((child, i) => {
      const key = opened.kind === "object" ? (opened.keys[i] ?? "") : String(i);
      spread(child, s.children[i] ?? none, join(path, key));
    });
  };
  spread(prefix, full, "");
  return result;
}

function fits(
  node: Exclude<Node, { kind: "leaf" | "none" }>,
  s: Exclude<Structure, { kind: "leaf" | "none" | "static" }>,
): boolean {
  if (node.kind !== s.kind || node.children.length !== s.children.length) return false;
  return node.kind !== "object" || s.kind !== "object" || node.keys.join() === s.keys.join();
}
