/**
 * How a leaf lies in a tensor of a file, written as `(h d) e -> e h d`: the dims of the file's tensor, then those of the
 * leaf, each a letter for a size. `(h d)` is one dim of the file that is two of the leaf, and `(h d)+(k d) e -> e k d @1`
 * takes the second of two parts that are concatenated along a dim.
 */
import { InternalError } from "../../ir/errors.js";
import { at, rowMajorStrides, type Shape } from "../../ir/shape.js";
import type { FileView } from "../files/safetensors/fileViews.js";

/** The size of each letter. */
export type Sizes = Readonly<Record<string, number>>;

/** A leaf's view of a file's tensor, without names, and its shape. */
export interface TensorLayout extends Pick<FileView, "fileShape" | "offset" | "strides"> {
  readonly shape: Shape;
}

/** The layout that a text describes. */
export function parseLayout(text: string, sizes: Sizes): TensorLayout {
  const [before = "", after = before] = text.split("->").map((side) => side.trim());
  const [leaf = "", part = "0"] = after.split("@").map((side) => side.trim());
  const sizeOf = (letter: string): number => {
    const size = sizes[letter];
    if (size === undefined) throw new InternalError(`[parseLayout] no size for ${letter} in "${text}"`);
    return size;
  };
  const product = (letters: readonly string[]) => letters.reduce((n, letter) => n * sizeOf(letter), 1);
  // Every dim of the file as the letters of each of its concatenated parts.
  const dims = (before.match(/(\([^)]*\)|\w)(\+(\([^)]*\)|\w))*/g) ?? []).map((dim) =>
    dim.split("+").map((one) => one.replace(/[()]/g, "").trim().split(/\s+/)),
  );
  const fileShape = dims.map((parts) => parts.reduce((n, letters) => n + product(letters), 0));
  const inFile = rowMajorStrides(fileShape);
  let offset = 0;
  const strides = new Map<string, number>();
  dims.forEach((parts, d) => {
    const chosen = parts.length > 1 ? Number(part) : 0;
    const skipped = parts.slice(0, chosen).reduce((n, letters) => n + product(letters), 0);
    offset += skipped * at(inFile, d);
    const letters = parts[chosen] ?? [];
    letters.forEach((letter, i) => {
      strides.set(letter, product(letters.slice(i + 1)) * at(inFile, d));
    });
  });
  const letters = leaf.match(/\w/g) ?? [];
  return {
    fileShape,
    offset,
    shape: letters.map(sizeOf),
    strides: letters.map((letter) => strides.get(letter) ?? 0),
  };
}
