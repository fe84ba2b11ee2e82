import { getOrInsert } from "../../../ir/collections.js";
import { type MeshShape, type Spec, splitCount } from "../../../ir/mesh.js";
import { at, range, sizeOf } from "../../../ir/shape.js";
import * as ops from "../../../trace/ops.js";
import type { Tensor } from "../../../trace/tensor.js";
import { namedAxes } from "../placement/reshard.js";
import type { DeviceBlocks, Moves, RowIndex, Term } from "../placement/rowValues.js";
import { maxAndMin, specOfMoves } from "./moves.js";
import type { Origin } from "./origins.js";
import {
  type Box,
  cut,
  endOf,
  hull,
  isAmong,
  isDense,
  overlay,
  type Strip,
  spread,
  stripOf,
  stripsOf,
  trim,
  volume,
  within,
} from "./strips.js";

/** A box of one term. */
interface TermBox {
  readonly term: Term;
  readonly box: Box;
}

/** What is known about the values on this device. */
export interface PlaceContext {
  readonly mesh: MeshShape;
  readonly originOf: (block: Tensor) => Origin | undefined;
  /** Rows that were received already, by the tensor that they come from: overlapping windows ask for the same ones. */
  readonly received: WeakMap<Tensor, Map<string, Tensor>>;
}

/**
 * Makes moves by exchanging rows with neighbours; `undefined` if the result does not split evenly, or if gathers would
 * send less.
 */
export function placeMoves(moves: Moves, context: PlaceContext): DeviceBlocks | undefined {
  const { mesh } = context;
  const spec = specOfMoves(moves);
  const dims = [...new Set(moves.terms.flatMap(({ rows }) => [...rows.keys()]))].sort((a, b) => a - b);
  const counts = new Map(dims.map((d) => [d, splitCount(mesh, spec[d] ?? [])]));
  const isEven = ([d, n]: [number, number]) => at(moves.type.shape, d) % n === 0;
  if (![...counts].every(isEven)) return undefined;
  const place = new Placing(dims, counts, spec, context);
  const parts = moves.terms.flatMap((term) => place.partsOf(term));
  const isPlain = isDisjoint(moves, dims) && parts.every(({ box }) => [...box.values()].every(isDense));
  const { sent, gathered } = place.cost(parts, moves.terms, isPlain);
  if (sent > gathered) return undefined;
  const moved = isPlain ? place.window(moves.terms) : place.sum(moves, parts);
  return { kind: "blocks", block: moves.base ? ops.add(moves.base.block, moved) : moved, spec };
}

/** Whether no two terms bring the same rows, and the same happens to all of them afterwards. */
function isDisjoint(moves: Moves, dims: readonly number[]): boolean {
  const [first, ...others] = moves.terms;
  if (!first || others.length === 0) return first !== undefined;
  return dims.length === 1 && others.every(({ after }) => after === first.after) && maxAndMin(moves)[0] <= 1;
}

/** What each device does to put the rows of values in their place. */
class Placing {
  constructor(
    private readonly dims: readonly number[],
    /** Over how many devices each dim is split. */
    private readonly counts: ReadonlyMap<number, number>,
    private readonly spec: Spec,
    private readonly context: PlaceContext,
  ) {}

  /** All boxes of a term, by their origin. */
  partsOf(term: Term): TermBox[] {
    return this.dims
      .reduce<ReadonlyMap<number, Strip>[]>(
        (boxes, d) =>
          boxes.flatMap((box) => this.strips(term, d).map((strip) => new Map([...box, [d, strip]]))),
        [new Map()],
      )
      .map((box) => ({ term, box }));
  }

  /** The elements that a device sends, and those that it would send for gathers of all sources. */
  cost(
    parts: readonly TermBox[],
    terms: readonly Term[],
    isPlain: boolean,
  ): { sent: number; gathered: number } {
    const travelling = parts.filter(({ box }) => this.travels(box));
    const sent = isPlain
      ? travelling.reduce((sum, { term, box }) => sum + volume(term.source.block, box), 0)
      : this.groups(travelling).reduce((sum, group) => sum + this.plan(group).elements, 0);
    const devices = [...this.counts.values()].reduce((a, b) => a * b, 1);
    const split = terms.filter(({ source }) => this.dims.some((d) => (source.spec[d] ?? []).length > 0));
    const sources = new Set(split.map(({ source }) => source.block));
    const gathered = [...sources].reduce((sum, block) => sum + sizeOf(block.shape) * (devices - 1), 0);
    return { sent, gathered };
  }

  /** Rows of which no two are in the same place: pieces of values side by side. */
  window(terms: readonly Term[]): Tensor {
    const first = at(terms, 0);
    const build = (own: readonly Term[], depth: number, box: Box): Tensor => {
      const d = this.dims[depth];
      if (d === undefined) return this.received(at(own, 0).source.block, box);
      const strips = own.flatMap((term) => this.strips(term, d).map((strip) => ({ term, strip })));
      const ends = strips.flatMap(({ strip }) => [strip.to, endOf(strip)]);
      const bounds = [...new Set([0, this.sizeOf(first, d), ...ends])].sort((a, b) => a - b);
      const pieces = bounds.slice(1).map((end, i) => {
        const start = at(bounds, i);
        const here = strips.filter(({ strip }) => strip.to <= start && endOf(strip) >= end);
        const ownLast = here.toSorted((a, b) => b.strip.shift - a.strip.shift);
        const parts = ownLast.map(({ term, strip }) => {
          const own = new Map([...box, [d, trim(strip, start, end)]]);
          return { value: build([term], depth + 1, own), strip };
        });
        return this.overlaid(parts, d) ?? this.zeros(first, box, d, end - start);
      });
      return ops.concatenate(pieces, d);
    };
    const rows = build(terms, 0, new Map());
    return first.after?.(rows) ?? rows;
  }

  /** What devices get of several values, their own last: each gets at most one, and zeros of the others. */
  private overlaid(
    parts: readonly { readonly value: Tensor; readonly strip: Strip }[],
    dim: number,
  ): Tensor | undefined {
    return parts.reduce<Tensor | undefined>((rows, { value, strip: { shift, receivers } }) => {
      // Devices without a sender have zeros already.
      if (shift !== 0) return rows ? overlay(rows, value) : value;
      if (receivers.length === this.counts.get(dim)) return value;
      const position = ops.axisIndex(namedAxes(this.context.mesh, this.spec[dim] ?? []));
      return ops.select(isAmong(position, receivers, value.shape), value, rows ?? ops.zeros(value.type));
    }, undefined);
  }

  /** The sum of all parts: those for the same neighbour are added before they are sent. */
  sum(moves: Moves, parts: readonly TermBox[]): Tensor {
    const shape = moves.type.shape.map((n, d) => n / splitCount(this.context.mesh, this.spec[d] ?? []));
    const placed = this.groups(parts).flatMap((group) =>
      this.plan(group)
        .emit()
        .map(({ value, box }) => spread(value, box, shape)),
    );
    const [first, ...rest] = placed;
    if (!first) return ops.zeros({ dtype: moves.type.dtype, shape });
    return rest.reduce(overlay, first);
  }

  /** Parts with the same senders and receivers. */
  private groups(parts: readonly TermBox[]): TermBox[][] {
    const groups = new Map<string, TermBox[]>();
    for (const part of parts) {
      const key = [...part.box.values()].map(({ shift, receivers }) => `${shift} ${receivers}`).join(";");
      getOrInsert(groups, key, () => []).push(part);
    }
    return [...groups.values()];
  }

  /** How the parts of a group are sent: added up, separately, or as the rows that they are computed from. */
  private plan(group: readonly TermBox[]): Plan {
    const { box } = at(group, 0);
    if (!this.travels(box)) return { elements: 0, emit: () => group.map((part) => this.own(part)) };
    const plans = [this.together(group), this.apart(group), this.byOrigin(group)].filter(
      (plan) => plan !== undefined,
    );
    return plans.reduce((best, plan) => (plan.elements < best.elements ? plan : best));
  }

  /** A part that stays where it is. */
  private own({ term, box }: TermBox): Placed {
    return { value: this.masked(cut(applied(term), box), box), box };
  }

  /** All parts of a group in the smallest box around them. */
  private together(group: readonly TermBox[]): Plan {
    const around = new Map(this.dims.map((d) => [d, hull(group.map(({ box }) => stripOf(box, d)))]));
    const first = at(group, 0);
    return {
      elements: volume(applied(first.term), around),
      emit: () => {
        const values = group.map(({ term, box }) => within(cut(applied(term), box), box, around));
        return [{ value: this.masked(this.sent(values.reduce(overlay), first.box), first.box), box: around }];
      },
    };
  }

  /** Every part separately, after adding those for the same rows. */
  private apart(group: readonly TermBox[]): Plan {
    const targets = new Map<string, TermBox[]>();
    for (const part of group) {
      const key = [...part.box.values()]
        .map(({ to, toStep, length }) => `${to} ${toStep} ${length}`)
        .join(";");
      getOrInsert(targets, key, () => []).push(part);
    }
    const lists = [...targets.values()];
    return {
      elements: lists.reduce((sum, [part]) => (part ? sum + volume(applied(part.term), part.box) : sum), 0),
      emit: () =>
        lists.map((list) => {
          const { box } = at(list, 0);
          const sum = list.map((part) => cut(applied(part.term), part.box)).reduce(overlay);
          return { value: this.masked(this.sent(sum, box), box), box };
        }),
    };
  }

  /** The rows that the parts are computed from, if every receiver can compute the parts. */
  private byOrigin(group: readonly TermBox[]): Plan | undefined {
    const origins = group.map(({ term, box }) => {
      const origin = this.context.originOf(term.source.block);
      const there = origin && [...box].map(([d, s]) => [origin.dims[d], s] as const);
      const known = there?.flatMap(([d, s]) => (d === undefined ? [] : [[d, s] as const]));
      return origin && known?.length === box.size ? { origin, box: new Map(known) } : undefined;
    });
    const found = origins.filter((origin) => origin !== undefined);
    if (found.length < group.length) return undefined;
    const asked = new Map<Tensor, Map<string, Box>>();
    for (const { origin, box } of found) {
      const key = [...box].map(([d, { from, step, length }]) => `${d} ${from} ${step} ${length}`).join(";");
      getOrInsert(asked, origin.operand, () => new Map()).set(key, box);
    }
    const elements = [...asked].reduce(
      (sum, [operand, boxes]) => [...boxes.values()].reduce((n, box) => n + volume(operand, box), sum),
      0,
    );
    return {
      elements,
      emit: () =>
        group.map(({ term, box }, i) => {
          const { origin, box: rows } = at(found, i);
          const made = origin.apply(this.sent(cut(origin.operand, rows), box));
          return { value: this.masked(term.after?.(made) ?? made, box), box };
        }),
    };
  }

  private travels(box: Box): boolean {
    return [...box.values()].some(({ shift }) => shift !== 0);
  }

  /** What a neighbour sends of a value. */
  private sent(value: Tensor, box: Box): Tensor {
    const dims = this.dims.filter((d) => stripOf(box, d).shift !== 0);
    if (dims.length === 0) return value;
    const axes = dims.flatMap((d) => this.spec[d] ?? []);
    const pairs = dims.reduce<(readonly [number, number])[]>(
      (list, d) => {
        const { receivers, shift } = stripOf(box, d);
        const n = this.counts.get(d) ?? 1;
        return list.flatMap(([from, to]) =>
          receivers.map((p) => [from * n + ((p + shift) % n), to * n + p] as const),
        );
      },
      [[0, 0]],
    );
    return ops.ppermute(value, namedAxes(this.context.mesh, axes), pairs);
  }

  /** The rows of a box that a neighbour sends of a block, which it sends once. */
  private received(block: Tensor, box: Box): Tensor {
    if (!this.travels(box)) return cut(block, box);
    const rows = getOrInsert(this.context.received, block, () => new Map());
    const key = JSON.stringify([[...box], this.spec]);
    return getOrInsert(rows, key, () => this.sent(cut(block, box), box));
  }

  /** Zeros on the devices that get nothing; devices without a sender have zeros already. */
  private masked(value: Tensor, box: Box): Tensor {
    return this.dims.reduce((x, d) => {
      const { receivers, shift } = stripOf(box, d);
      if (shift !== 0 || receivers.length === this.counts.get(d)) return x;
      const position = ops.axisIndex(namedAxes(this.context.mesh, this.spec[d] ?? []));
      return ops.select(isAmong(position, receivers, x.shape), x, ops.zeros(x.type));
    }, value);
  }

  private zeros(term: Term, box: Box, dim: number, length: number): Tensor {
    const shape = term.source.block.shape.map((n, d) => {
      if (d === dim) return length;
      const chosen = box.get(d);
      if (chosen) return chosen.length;
      return this.dims.includes(d) ? this.sizeOf(term, d) : n;
    });
    return ops.zeros({ dtype: term.source.block.dtype, shape });
  }

  /** How many rows each device gets of a term along a dim. */
  private sizeOf(term: Term, dim: number): number {
    return this.indexOf(term, dim).length / (this.counts.get(dim) ?? 1);
  }

  private indexOf({ rows, source }: Term, dim: number): RowIndex {
    return rows.get(dim) ?? range(at(source.block.shape, dim) * (this.counts.get(dim) ?? 1));
  }

  private strips(term: Term, dim: number): Strip[] {
    const { block, spec } = term.source;
    const isEverywhere = (spec[dim] ?? []).length === 0;
    const n = this.counts.get(dim) ?? 1;
    return stripsOf(this.indexOf(term, dim), n, at(block.shape, dim), isEverywhere);
  }
}

/** A value and its place in the result. */
interface Placed {
  readonly value: Tensor;
  readonly box: Box;
}

interface Plan {
  /** How many elements a device sends for it. */
  readonly elements: number;
  readonly emit: () => readonly Placed[];
}

const applied = ({ source, after }: Term): Tensor => after?.(source.block) ?? source.block;
