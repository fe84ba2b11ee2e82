import * as tree from "../../trace/tree.js";

/** What `nn.scan` and `nn.vmap` tell the boxes of variables about the dim they add or remove. */
export interface MetadataParams {
  /** The name of the new dim; `null` for one that is not split. */
  readonly partitionName?: string | null;
  readonly [key: string]: unknown;
}

/**
 * A box around a variable that knows something about its dims, such as how they are split. `nn.param` stores
 * the box and returns what is inside. A class of boxes must be registered with `tree.registerClass`, with the
 * boxed value as its one child.
 */
export abstract class AxisMetadata<T = unknown> {
  /** The value inside. */
  abstract unbox(): T;
  /** The same box around another value. */
  abstract replaceBoxed<U>(value: U): AxisMetadata<U>;
  /** The box of a value that has got a dim at `index`; undone by {@link removeAxis}. */
  abstract addAxis(index: number, params: MetadataParams): AxisMetadata<T>;
  /** The box of a value that has lost its dim at `index`; undone by {@link addAxis}. */
  abstract removeAxis(index: number, params: MetadataParams): AxisMetadata<T>;
}

/**
 * Whether a value is in a box.
 *
 * @example
 * ```ts
 * nn.isBoxed(new nn.Partitioned(np.ones([4]), ["model"])); // true
 * ```
 */
export function isBoxed(value: unknown): value is AxisMetadata {
  return value instanceof AxisMetadata;
}

/**
 * Replaces the boxes of a tree.
 *
 * @example
 * ```ts
 * const boxes = { w: new nn.Partitioned(np.ones([4]), ["model"]), b: np.ones([1]) };
 * nn.mapBoxes((box) => box.unbox(), boxes); // { "b": [1], "w": [1, 1, 1, 1] }
 * ```
 */
export function mapBoxes<T>(fn: (box: AxisMetadata) => unknown, values: T): T {
  return tree.mapUntil(isBoxed, (leaf: unknown) => (isBoxed(leaf) ? fn(leaf) : leaf), values) as T;
}

/**
 * A tree without its boxes.
 *
 * @example
 * ```ts
 * nn.unbox({ w: new nn.Partitioned(np.ones([2]), ["model"]) }); // { "w": [1, 1] }
 * ```
 */
export function unbox<T = unknown>(values: unknown): T {
  return mapBoxes((box) => unbox(box.unbox()), values) as T;
}

/**
 * The values of the second tree in the boxes of the first, which has the same structure apart from the boxes;
 * values that are in boxes themselves are taken out of them.
 *
 * @example
 * ```ts
 * const boxes = { w: new nn.Partitioned(np.ones([2]), ["model"]) };
 * nn.replaceBoxed(boxes, { w: np.array([3, 4]) }).w.value; // [3, 4]
 * ```
 */
export function replaceBoxed<T>(boxes: T, values: unknown): T {
  const { leaves, structure } = tree.flatten(boxes, isBoxed);
  const plain = tree.flatten(unbox(values));
  tree.checkSameStructure(structure, plain.structure, "replaceBoxed", "the boxed tree", "the new values");
  return tree.unflatten<T>(
    structure,
    leaves.map((leaf, i) => (isBoxed(leaf) ? leaf.replaceBoxed(plain.leaves[i]) : plain.leaves[i])),
  );
}

/**
 * Tells every box of a tree that its value has got a dim.
 *
 * @example
 * ```ts
 * const box = new nn.Partitioned(np.ones([2, 4]), [null, "model"]);
 * nn.addAxis(box, 0, { partitionName: "layers" }).names; // ["layers", null, "model"]
 * ```
 */
export function addAxis<T>(values: T, index: number, params: MetadataParams): T {
  return mapBoxes((box) => box.addAxis(index, params), values);
}

/**
 * Tells every box of a tree that its value has lost a dim.
 *
 * @example
 * ```ts
 * const box = new nn.Partitioned(np.ones([2, 4]), ["layers", "model"]);
 * nn.removeAxis(box, 0, { partitionName: "layers" }).names; // ["model"]
 * ```
 */
export function removeAxis<T>(values: T, index: number, params: MetadataParams): T {
  return mapBoxes((box) => box.removeAxis(index, params), values);
}
