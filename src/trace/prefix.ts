import type { Tensor } from "./tensor.js";

/** What is a leaf of a tree: tensors and everything else that is not traversed. */
export type Whole =
  | Tensor
  | number
  | string
  | boolean
  | bigint
  | symbol
  | ((...args: never[]) => unknown)
  | ArrayBufferView;

/**
 * What may stand for a tree of type `T` where leaves of type `L` say something about all tensors below them: one leaf
 * for everything, or a tree of the same form whose leaves may stand for whole subtrees. `null` is a leaf only where `L`
 * has it.
 *
 * ```ts
 * type Batch = { tokens: Tensor; masks: [Tensor, Tensor] };
 * const specs: Prefix<Batch, PartitionSpec> = { tokens: P("data"), masks: P() };
 * ```
 *
 * Where nothing is known about a part of the tree (`unknown`), everything is accepted and checked at run time. Code
 * that is generic in its tree passes on a `Prefix<T, L>`.
 */
export type Prefix<T, L> = L | PrefixNode<T, L>;

// The brackets keep the conditional type from distributing over `never`, the parameters of unknown functions.
type PrefixNode<T, L> = [unknown] extends [T]
  ? unknown
  : [T] extends [never]
    ? unknown
    : T extends Whole
      ? never
      : T extends null | undefined
        ? null | undefined
        : { readonly [K in keyof T]: Prefix<T[K], L> };
