import { need } from "../ir/arguments.js";
import { TreeError } from "../ir/errors.js";

/** How a class takes part in trees. */
export interface TreeClass<T, C extends readonly unknown[]> {
  /** The children, which are trees themselves. */
  readonly children: (node: T) => C;
  /** Makes a new instance like `node` with other children. */
  readonly rebuild: (node: T, children: C) => T;
  /** Everything else about the instance as a string; two nodes match only when it is equal. */
  readonly describe: (node: T) => string;
}

/** A class whose instances are inner nodes of trees. */
export interface Registered {
  readonly name: string;
  readonly children: (node: unknown) => readonly unknown[];
  readonly rebuild: (node: unknown, children: readonly unknown[]) => unknown;
  readonly describe: (node: unknown) => string;
}

const classes = new Map<object, Registered>();

/**
 * Makes instances of a class inner nodes of trees; a class can be registered once.
 *
 * @example
 * ```ts
 * class Scaled {
 *   constructor(readonly value: Tensor, readonly scale: number) {}
 * }
 * tree.registerClass(Scaled, {
 *   children: ({ value }) => [value] as const,
 *   rebuild: ({ scale }, [value]) => new Scaled(value, scale),
 *   describe: ({ scale }) => String(scale),
 * });
 * tree.leaves([new Scaled(np.array([1]), 2), 3]).length; // 2
 * ```
 */
export function registerClass<T extends object, C extends readonly unknown[]>(
  type: abstract new (...args: never[]) => T,
  how: TreeClass<T, C>,
): void {
  need("function", type, "the class", "registerClass");
  need("object", how, "how it takes part in trees", "registerClass");
  if (classes.has(type.prototype)) throw new TreeError(`[registerClass] ${type.name} is already registered`);
  classes.set(type.prototype, {
    name: type.name,
    children: (node) => how.children(node as T),
    rebuild: (node, children) => how.rebuild(node as T, children as C),
    describe: (node) => how.describe(node as T),
  });
}

/** The class of a node whose prototype is given, if it is registered. */
export function registered(prototype: object): Registered | undefined {
  return classes.get(prototype);
}
