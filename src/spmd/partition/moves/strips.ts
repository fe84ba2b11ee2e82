import { getKnown, getOrInsert } from "../../../ir/collections.js";
import { at, type Shape, sizeOf } from "../../../ir/shape.js";
import * as ops from "../../../trace/ops.js";
import type { Tensor } from "../../../trace/tensor.js";
import type { RowIndex } from "../placement/rowValues.js";

/** Rows of a block that go to the same places on all devices that get them. */
export interface Strip {
  /** The first of them in the result, and the distance from one to the next. */
  readonly to: number;
  readonly toStep: number;
  /** The first of them in the source, and the distance from one to the next. */
  readonly from: number;
  readonly step: number;
  readonly length: number;
  /** The position of the sender relative to the receiver. */
  readonly shift: number;
  /** The positions that get the rows. */
  readonly receivers: readonly number[];
}

/** A strip of each moved dim. */
export type Box = ReadonlyMap<number, Strip>;

/** Whether the rows of a strip are next to each other in the result. */
export const isDense = ({ toStep, length }: Strip) => length === 1 || toStep === 1;

/** The end of a strip in the result. */
export const endOf = ({ to, toStep, length }: Strip) => to + (length - 1) * toStep + 1;

/** The strip of a dim. */
export function stripOf(box: Box, dim: number): Strip {
  return getKnown(box, dim);
}

/**
 * Where each device finds each of its rows; rows at even steps that travel together are one strip.
 *
 * @param n over how many devices the rows are split
 * @param size how many rows of the source a device has
 * @param isEverywhere whether every device has all rows of the source
 */
export function stripsOf(index: RowIndex, n: number, size: number, isEverywhere: boolean): Strip[] {
  const strips: Strip[] = [];
  const rows = index.length / n;
  for (let row = 0; row < rows; row++) {
    const found = new Map<string, { shift: number; from: number; receivers: number[] }>();
    for (let p = 0; p < n; p++) {
      const i = at(index, p * rows + row);
      if (i < 0) continue;
      const sender = isEverywhere ? p : Math.floor(i / size);
      const [shift, from] = [(sender - p + n) % n, isEverywhere ? i : i % size];
      getOrInsert(found, `${shift} ${from}`, () => ({ shift, from, receivers: [] })).receivers.push(p);
    }
    for (const { shift, from, receivers } of found.values()) {
      const next: Strip = { to: row, toStep: 1, from, step: 1, length: 1, shift, receivers };
      const last = strips.findIndex((other) => continues(other, next));
      if (last < 0) strips.push(next);
      else strips[last] = longer(at(strips, last), next);
    }
  }
  return strips;
}

function continues(strip: Strip, next: Strip): boolean {
  if (strip.shift !== next.shift || strip.receivers.join() !== next.receivers.join()) return false;
  const [toStep, step] = stepsTo(strip, next);
  if (strip.length === 1) return toStep > 0 && step > 0;
  return toStep === strip.toStep && step === strip.step;
}

/** The steps from the last rows of a strip to those of the next. */
function stepsTo(strip: Strip, next: Strip): readonly [number, number] {
  const last = strip.length - 1;
  return [next.to - strip.to - last * strip.toStep, next.from - strip.from - last * strip.step];
}

function longer(strip: Strip, next: Strip): Strip {
  const [toStep, step] = stepsTo(strip, next);
  return { ...strip, toStep, step, length: strip.length + 1 };
}

/** The rows of a dense strip from one place of the result to another. */
export function trim(strip: Strip, start: number, end: number): Strip {
  return { ...strip, to: start, from: strip.from + (start - strip.to) * strip.step, length: end - start };
}

/** The smallest range of rows around strips. */
export function hull(strips: readonly Strip[]): Strip {
  const to = Math.min(...strips.map((s) => s.to));
  const length = Math.max(...strips.map(endOf)) - to;
  return { ...at(strips, 0), to, toStep: 1, length };
}

/** How many elements of a tensor a box has. */
export function volume(x: Tensor, box: Box): number {
  return sizeOf(x.shape.map((n, d) => box.get(d)?.length ?? n));
}

/** The rows of a box. */
export function cut(x: Tensor, box: Box): Tensor {
  const strips = x.shape.map((n, d) => box.get(d) ?? { from: 0, step: 1, length: n });
  const starts = strips.map(({ from }) => from);
  const limits = strips.map(({ from, step, length }) => from + (length - 1) * step + 1);
  const strides = strips.map(({ step, length }) => (length === 1 ? 1 : step));
  return ops.slice(x, starts, limits, strides);
}

/** Rows at their place among zeros, in a box around them. */
export function within(x: Tensor, box: Box, around: Box): Tensor {
  const lists = x.shape.map((_, d) => {
    const [own, all] = [box.get(d), around.get(d)];
    if (!own || !all) return { low: 0, high: 0, interior: 0 };
    return {
      low: own.to - all.to,
      high: endOf(all) - endOf(own),
      interior: own.length === 1 ? 0 : own.toStep - 1,
    };
  });
  return ops.pad(x, ops.full([], 0, x.dtype), {
    low: lists.map(({ low }) => low),
    high: lists.map(({ high }) => high),
    interior: lists.map(({ interior }) => interior),
  });
}

/** Rows at their place among zeros, in the whole block. */
export function spread(x: Tensor, box: Box, shape: readonly number[]): Tensor {
  const whole = new Map([...box].map(([d, s]) => [d, { ...s, to: 0, toStep: 1, length: at(shape, d) }]));
  return within(x, box, whole);
}

/** The sum of two tensors of which one is zero where the other is not. */
export function overlay(a: Tensor, b: Tensor): Tensor {
  return a.dtype === "bool" ? ops.or(a, b) : ops.add(a, b);
}

/** Whether a device's position is in an ascending list, as a tensor of the given shape. */
export function isAmong(position: Tensor, list: readonly number[], shape: Shape): Tensor {
  const starts = list.filter((p) => !list.includes(p - 1));
  const ends = list.filter((p) => !list.includes(p + 1));
  const ranges = starts.map((start, i) =>
    start === ends[i]
      ? ops.compare("eq", position, start)
      : ops.and(ops.compare("ge", position, start), ops.compare("le", position, at(ends, i))),
  );
  return ops.broadcastInDim(ranges.reduce(ops.or), shape, []);
}
