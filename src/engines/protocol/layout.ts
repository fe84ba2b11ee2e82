/**
 * Layouts of the memory that threads share, computed as a C compiler lays out a struct: fields follow each other in
 * the order in which they are written, each at a multiple of its alignment, and the size of the whole is a multiple of
 * the largest alignment. Sizes and offsets count elements of the array that holds them.
 */

/** The 32-bit words of a cache line: what different threads write lies on different ones. */
export const LINE_WORDS = 16;

/** A field of several elements, or one that cannot begin anywhere. */
export interface LayoutField {
  readonly size: number;
  readonly align: number;
}

/** The offset of every field, and the size of all of them. */
export type Layout<Name extends string = string> = Readonly<Record<Name | "size", number>>;

/** A field that begins at a multiple of `align` elements. */
export function aligned(align: number, size = 1): LayoutField {
  return { size, align };
}

/** Words that begin a cache line; the fields after them lie on it, too, as far as it reaches. */
export function onNewLine(size = 1): LayoutField {
  return aligned(LINE_WORDS, size);
}

/** Numbers of 64 bits among words of 32. */
export function float64Words(count = 1): LayoutField {
  return aligned(2, 2 * count);
}

/**
 * Lays out fields: `layout({ run: 1, address: float64Words() })` is `{ run: 0, address: 2, size: 4 }`.
 *
 * @param fields how many elements each one has, or an aligned {@link LayoutField}
 * @param start where the first one begins, for fields that follow those of another layout
 */
export function layout<Name extends string>(
  fields: Readonly<Record<Name, number | LayoutField>>,
  start = 0,
): Layout<Name> {
  let [end, widest] = [start, 1];
  const place = (field: number | LayoutField): number => {
    const { size, align } = typeof field === "number" ? { size: field, align: 1 } : field;
    const offset = roundUp(end, align);
    end = offset + size;
    widest = Math.max(widest, align);
    return offset;
  };
  const offsets = mapValues(fields, place);
  return { ...offsets, size: roundUp(end, widest) };
}

/** The fields that begin at `at`, by their names. */
export function readFields<Name extends string>(
  fields: Layout<Name>,
  from: Float64Array,
  at: number,
): Readonly<Record<Name, number>> {
  return mapValues<Name, number, number>(fields, (offset) => from[at + offset] ?? 0);
}

function mapValues<Name extends string, A, B>(
  record: Readonly<Record<Name, A>>,
  change: (value: A) => B,
): Record<Name, B> {
  const entries = Object.entries<A>(record).map(([name, value]) => [name, change(value)]);
  return Object.fromEntries(entries);
}

function roundUp(offset: number, align: number): number {
  return Math.ceil(offset / align) * align;
}
