import { need, needIfGiven } from "../ir/arguments.js";
import { TreeError } from "../ir/errors.js";
import type { Whole } from "./prefix.js";
import {
  checkSameStructure,
  checkStructure,
  childPath,
  fits,
  formatStructure,
  type IsLeaf,
  leaf,
  nest,
  none,
  numLeaves,
  open,
  type Structure,
} from "./treeStructure.js";

export { registerClass, type TreeClass } from "./treeClasses.js";
export {
  checkSameStructure,
  formatStatic,
  formatStructure,
  type IsLeaf,
  leafPaths,
  numLeaves,
  type Structure,
  sameStructure,
} from "./treeStructure.js";

/** Maximum depth of a tree: deeper ones would exhaust the stack, and cyclic ones never end. */
const maxDepth = 1000;

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
      `a tree has more than ${maxDepth} levels at ${path.slice(0, 60)}…: it contains itself or is nested too deeply`,
    );
  }
  if (isStatic?.(node)) return { kind: "static", value: node };
  const opened = open(node, isLeaf);
  if (opened.kind === "none") return none;
  if (opened.kind === "leaf") {
    const inner = how.opens?.(node);
    if (inner) return walkOpened(inner, how, path);
    visit(node, path);
    return leaf;
  }
  const children = opened.children.map((child, i) => walk(child, how, childPath(opened, i, path), depth + 1));
  if (opened.kind !== "class") return { ...opened, children };
  const { type } = opened;
  const rebuild = (values: readonly unknown[]) => type.rebuild(node, values);
  return { kind: "class", name: type.name, aux: type.describe(node), rebuild, children };
}

function walkOpened({ name, children, rebuild }: OpenedLeaf, { visit }: Walk, path: string): Structure {
  for (const child of children) visit(child, path);
  return { kind: "class", name, aux: "", rebuild, children: children.map(() => leaf) };
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
 * A tree with the structure of another one and the leaves of a prefix of it.
 *
 * @example
 * ```ts
 * tree.broadcast({ a: 1, b: 2 }, { a: 0, b: [0, 0] }); // { "a": 1, "b": [2, 2] }
 * ```
 */
export function broadcast<T>(prefix: unknown, full: T): T {
  const shape = structure(full);
  return unflatten<T>(shape, broadcastPrefix(prefix, shape, "tree.broadcast"));
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
    for (const [i, child] of opened.children.entries()) {
      spread(child, s.children[i] ?? none, childPath(opened, i, path));
    }
  };
  spread(prefix, full, "");
  return result;
}
