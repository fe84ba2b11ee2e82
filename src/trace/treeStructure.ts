import { need } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import { TreeError } from "../ir/errors.js";
import { identityOf } from "../ir/identity.js";
import { type Registered, registered } from "./treeClasses.js";

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

export const leaf: Structure = { kind: "leaf" };
export const none: Structure = { kind: "none" };

type Node =
  | { kind: "leaf" }
  | { kind: "none" }
  | { kind: "array"; children: readonly unknown[] }
  | { kind: "object"; keys: readonly string[]; children: readonly unknown[] }
  | { kind: "class"; type: Registered; children: readonly unknown[] };

export function open(node: unknown, isLeaf: IsLeaf | undefined): Node {
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

/** The path of a child; an only child of a class has the path of its parent. */
export function childPath(
  parent: Exclude<Node | Structure, { kind: "leaf" | "none" | "static" }>,
  i: number,
  path: string,
): string {
  if (parent.kind === "class" && parent.children.length === 1) return path;
  const key = parent.kind === "object" ? parent.keys[i] : i;
  return path === "" ? `${key}` : `${path}/${key}`;
}

/** Throws unless a value is what `tree.structure` returns. */
export function checkStructure(s: Structure): void {
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
  return s.children.flatMap((child, i) => leafPaths(child, childPath(s, i, path)));
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

/** The structure in which `inner` stands at every leaf of `outer`. */
export function nest(outer: Structure, inner: Structure): Structure {
  if (outer.kind === "leaf") return inner;
  if (outer.kind === "none" || outer.kind === "static") return outer;
  return { ...outer, children: outer.children.map((child) => nest(child, inner)) };
}

export function fits(
  node: Exclude<Node, { kind: "leaf" | "none" }>,
  s: Exclude<Structure, { kind: "leaf" | "none" | "static" }>,
): boolean {
  if (node.kind !== s.kind || node.children.length !== s.children.length) return false;
  return node.kind !== "object" || s.kind !== "object" || node.keys.join() === s.keys.join();
}
