import { type MeshShape, type Spec, splitCount } from "../../../ir/mesh.js";
import { at, range, sizeOf } from "../../../ir/shape.js";
import * as ops from "../../../trace/ops.js";
import type { Tensor } from "../../../trace/tensor.js";
import { namedAxes } from "../placement/reshard.js";
import type { Blocks, Moves, RowIndex, Term } from "../placement/rowValues.js";
import { specOfMoves } from "./moves.js";
import type { Origin } from "./origins.js";
import { isAmong, overlay } from "./segments.js";
import {
  type Box,
  cut,
  endOf,
  hull,
  isDense,
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
}

/**
 * Carries out moves by exchange with neighbours; `undefined` when the result does not split evenly or more would have
 * to be sent than by gathers.
 */
export function placeMoves(moves: Moves, context: PlaceContext): Blocks | undefined {
  const { mesh } = context;
  const spec = specOfMoves(moves);
  const dims = [...new Set(moves.terms.flatMap(({ rows }) => [...rows.keys()]))].sort((a, b) => a - b);
  const counts = new Map(dims.map((d) => [d, splitCount(mesh, spec[d] ?? [])]));
  const isEven = ([d, n]: [number, number]) => at(moves.type.shape, d) % n === 0;
  if (![...counts].every(isEven)) return undefined;
  const place = new Placing(dims, counts, spec, context);
  const parts = moves.terms.flatMap((term) => place.partsOf(term));
  const [only] = moves.terms;
  const isPlain = moves.terms.length === 1 && parts.every(({ box }) => [...box.values()].every(isDense));
  const { sent, gathered } = place.cost(parts, moves.terms, isPlain);
  if (sent > gathered) return undefined;
  const moved = isPlain && only ? place.window(only) : place.sum(moves, parts);
  return { kind: "blocks", block: moves.base ? ops.add(moves.base.block, moved) : moved, spec };
}

/** What each device does to put the rows of one value in their place. */
class Placing {
  constructor(
    private readonly dims: readonly number[],
    /** Over how many devices each dim is split. */
    private readonly counts: ReadonlyMap<number, number>,
    private readonly spec: Spec,
    private readonly context: PlaceContext,
  ) {}

  /** Everything that a term brings, by where it comes from. */
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
    const sources = new Set(terms.map(({ source }) => source.block));
    const gathered = [...sources].reduce((sum, block) => sum + sizeOf(block.shape) * (devices - 1), 0);
    return { sent, gathered };
  }

  /** The rows of a single value: pieces of it side by side. */
  window(term: Term): Tensor {
    const { block } = term.source;
    const build = (depth: number, box: Box): Tensor => {
      const d = this.dims[depth];
      if (d === undefined) return this.masked(this.sent(cut(block, box), box), box);
      const strips = this.strips(term, d);
      const bounds = [0, this.sizeOf(term, d), ...strips.flatMap((strip) => [strip.to, endOf(strip)])];
      const sorted = [...new Set(bounds)].sort((a, b) => a - b);
      const pieces = sorted.slice(1).map((end, i) => {
        const start = at(sorted, i);
        const here = strips.filter((strip) => strip.to <= start && endOf(strip) >= end);
        const values = here.map((strip) => build(depth + 1, new Map([...box, [d, trim(strip, start, end)]])));
        return values.length > 0 ? values.reduce(overlay) : this.zeros(term, box, d, end - start);
      });
      return ops.concatenate(pieces, d);
    };
    const rows = build(0, new Map());
    return term.after?.(rows) ?? rows;
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
      const group = groups.get(key);
      if (group) group.push(part);
      else groups.set(key, [part]);
    }
    return [...groups.values()];
  }

  /** How the parts of a group are sent: added up, each by itself, or as the rows that they are made of. */
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

  /** Every part by itself, after those for the same rows were added. */
  private apart(group: readonly TermBox[]): Plan {
    const targets = new Map<string, TermBox[]>();
    for (const part of group) {
      const key = [...part.box.values()]
        .map(({ to, toStep, length }) => `${to} ${toStep} ${length}`)
        .join(";");
      targets.set(key, [...(targets.get(key) ?? []), part]);
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

  /** The rows that the parts are made of, where each device can make the parts itself. */
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
      asked.set(origin.operand, (asked.get(origin.operand) ?? new Map<string, Box>()).set(key, box));
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
    return stripsOf(this.indexOf(term, dim), this.counts.get(dim) ?? 1, at(term.source.block.shape, dim));
  }
}

/** What a plan puts where. */
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
