import { InternalError } from "../ir/errors.js";
import type { Structure } from "./tree.js";
import { registered } from "./treeClasses.js";

const none: Structure = { kind: "none" };

/** A structure that can only be compared: structures of classes would retain the tree they came from, and its leaves. */
export function outlineOf(s: Structure): Structure {
  if (s.kind === "leaf" || s.kind === "none" || s.kind === "static") return s;
  const children = s.children.map(outlineOf);
  return s.kind === "class" ? { ...s, children, rebuild: refuseRebuild } : { ...s, children };
}

function refuseRebuild(): never {
  throw new InternalError("[tree] an outline of a tree can only be compared, not unflattened");
}

/**
 * Calls `visit` with the leaves of a tree from left to right as long as the tree has a given structure and `visit`
 * returns true. The tree is walked without flattening it; one for which this cannot be decided so, such as one with
 * leaves that have parts, is refused.
 */
export function everyLeafLike(node: unknown, s: Structure, visit: (leaf: unknown) => boolean): boolean {
  switch (s.kind) {
    case "leaf":
      return visit(node);
    case "none":
      return node === null || node === undefined;
    case "static":
      return Object.is(node, s.value);
    case "array": {
      if (!Array.isArray(node) || node.length !== s.children.length) return false;
      for (let i = 0; i < node.length; i++) {
        if (!everyLeafLike(node[i], s.children[i] ?? none, visit)) return false;
      }
      return true;
    }
    case "object":
      return isObjectLike(node, s, visit);
    case "class": {
      if (typeof node !== "object" || node === null) return false;
      const type = registered(Object.getPrototypeOf(node));
      if (type === undefined || type.name !== s.name || type.describe(node) !== s.aux) return false;
      const children = type.children(node);
      return (
        children.length === s.children.length &&
        children.every((child, i) => everyLeafLike(child, s.children[i] ?? none, visit))
      );
    }
  }
}

function isObjectLike(
  node: unknown,
  { keys, children }: Extract<Structure, { kind: "object" }>,
  visit: (leaf: unknown) => boolean,
): boolean {
  if (typeof node !== "object" || node === null) return false;
  const prototype: object | null = Object.getPrototypeOf(node);
  if (prototype !== Object.prototype && prototype !== null) return false;
  if (Object.keys(node).length !== keys.length) return false;
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i] ?? "";
    if (!Object.hasOwn(node, key)) return false;
    if (!everyLeafLike((node as Record<string, unknown>)[key], children[i] ?? none, visit)) return false;
  }
  return true;
}
