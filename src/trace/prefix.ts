import type { Tensor } from "./tensor.js";

/** What a tree has at its ends: tensors and everything else that is not opened. */
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
 * What may stand for a tree of type `T` where leaves of type `L` say something about all tensors below them: one
 * leaf for everything, or a tree of the same form that ends with leaves earlier. `null` is a leaf only where `L`
 * has it.
 *
 * ```ts
 * type Batch = { tokens: Tensor; masks: [Tensor, Tensor] };
 * const specs: Prefix<Batch, PartitionSpec> = { tokens: P("data"), masks: P() };
 * ```
 *
 * Where nothing is known of a part of the tree (`unknown`), everything fits and is checked by the call. Code that
 * is generic in its tree passes a `Prefix<T, L>` on.
 */
export type Prefix<T, L> = L | PrefixNode<T, L>;

// The brackets keep `never`, the parameters of functions of which nothing is known, from vanishing.
type PrefixNode<T, L> = [unknown] extends [T]
  ? unknown
  : [T] extends [never]
    ? unknown
    : T extends Whole
      ? never
      : T extends null | undefined
        ? null | undefined
        : { readonly [K in keyof T]: Prefix<T[K], L> };
