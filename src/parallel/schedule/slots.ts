/**
 * A schedule as a device runs it: slots of one action each, in which all stages act at the same time and then send
 * their results to their neighbours, with a row of memory for every pending message and kept value.
 */
import { describe } from "../../ir/describe.js";
import { InternalError } from "../../ir/errors.js";
import type { PipelineLoop } from "../../ir/ops.js";
import { at, range } from "../../ir/shape.js";
import { type Lifetime, mapLifetimes } from "./parts.js";
import {
  type ActionKind,
  layoutOf,
  numParts,
  type PipelineAction,
  type PipelineSchedule,
  partOf,
  placeOf,
} from "./schedule.js";
import { type TimedAction, timeline, unitCosts } from "./timeline.js";

/** What a device does in a slot. */
export interface Branch {
  readonly kind: ActionKind;
  readonly chunk: number;
  /** Whether the chunk is the first or the last part of the model. */
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

/** The functions whose values are kept: every part runs `stage`, the first part also `first`, the last also `last`. */
export type PartName = "first" | "stage" | "last";

/** A number for every function and lifetime. */
export type KeptRows<T = number> = { readonly [P in PartName]: { readonly [L in Lifetime]: T } };

/** The origin of a message: the stage before, the one after, or the stage itself. */
export type Direction = "fromLeft" | "fromRight" | "fromSelf";

/** The directions of messages from other stages. */
export const neighbours = ["fromLeft", "fromRight"] as const satisfies readonly Direction[];

/** A stage that sends, and the one that reads. */
export type Pair = readonly [from: number, to: number];

/** Two neighbours that send each other messages. */
export interface StageLink {
  /** The left one of the two stages. */
  readonly left: number;
  readonly right: number;
  /** The sets of messages that they exchange at the same time: one to the right, one to the left, or both. */
  readonly exchanges: readonly (readonly Pair[])[];
  /** The exchange after each slot: 0 for none, otherwise one more than its index in `exchanges`. */
  readonly bySlot: readonly number[];
}

/** What a stage does in a slot, in numbers: `branch` 0 is nothing, others are one more than their place in the list. */
export interface SlotCell<T = number> {
  readonly branch: T;
  readonly microbatch: T;
  /** The row of what has arrived that the action reads; 0 where it reads none. */
  readonly arrived: T;
  /** The rows of what is kept; 0 for functions that the action does not call, and for what its microbatch does not postpone. */
  readonly kept: KeptRows<T>;
  /** The row of the message from the left, from the right and from the stage itself after the slot, -1 for none. */
  readonly fromLeft: T;
  readonly fromRight: T;
  readonly fromSelf: T;
}

/** A schedule slot by slot. */
export interface SlotTable {
  /** What the loop over the slots is called in compiled steps. */
  readonly role: PipelineLoop;
  readonly branches: readonly Branch[];
  /** By slot and stage. */
  readonly slots: readonly (readonly SlotCell[])[];
  /** How many rows everything that is kept needs; exactly as many as are alive at one time on some stage. */
  readonly rows: KeptRows;
  /** The maximum number of messages that wait on a stage. */
  readonly numArrived: number;
  /** The neighbours that ever send each other anything. */
  readonly links: readonly StageLink[];
}

/** From the slot in which a value is written to the slot in which it is last read. */
interface Span {
  readonly stage: number;
  readonly from: number;
  readonly to: number;
}

/** A forward pass, a backward pass or one half of it, and its slot. */
interface Act extends Branch {
  readonly stage: number;
  readonly microbatch: number;
  readonly slot: number;
  /** The slot after which its result is sent. */
  readonly sent: number;
}

/**
 * Every action of a schedule with its slot. A whole backward pass takes as long as two other actions: nothing is in the
 * slot after it. Where messages are delayed, all stages end a slot together, so there it is two halves.
 *
 * @param delay number of slots by which messages are delayed
 */
function actsOf(schedule: PipelineSchedule, delay: number): Act[] {
  const layout = layoutOf(schedule);
  const { stages } = timeline(schedule, { ...unitCosts, send: delay });
  return stages.flatMap((actions, stage) =>
    actions.flatMap(({ kind, chunk, microbatch, begin, end }: TimedAction): Act[] => {
      const part = partOf(layout, stage, chunk);
      const act = {
        stage,
        chunk,
        microbatch,
        isFirst: part === 0,
        isLast: part === numParts(layout) - 1,
        slot: begin,
        sent: end - 1,
      };
      if (kind !== "B" || delay === 0) return [{ ...act, kind }];
      return [
        { ...act, kind: "I" },
        { ...act, kind: "W", slot: begin + 1 },
      ];
    }),
  );
}

/**
 * By slot, what every stage does in it.
 *
 * @param overlap whether messages travel while the next slot is computed, and arrive a slot later
 */
export function actionsInSlots(
  schedule: PipelineSchedule,
  overlap: boolean,
): readonly (readonly (PipelineAction | undefined)[])[] {
  const acts = actsOf(schedule, overlap ? 1 : 0);
  const rows = range(numSlotsOf(acts)).map(() =>
    schedule.stages.map((): PipelineAction | undefined => undefined),
  );
  for (const { kind, chunk, microbatch, slot, stage } of acts)
    at(rows, slot)[stage] = { kind, chunk, microbatch };
  return rows;
}

function numSlotsOf(acts: readonly Act[]): number {
  return Math.max(0, ...acts.map(({ slot }) => slot + 1));
}

/**
 * Assigns a row of its stage to every span such that overlapping spans have different rows; uses as few rows as
 * possible.
 *
 * @param isFree whether a row whose last reader is in one slot can be written in another
 */
function assignRows<S extends Span>(
  spans: readonly S[],
  isFree: (lastRead: number, written: number) => boolean,
): { readonly rowOf: ReadonlyMap<S, number>; readonly numRows: number } {
  const rowOf = new Map<S, number>();
  const busy = new Map<number, number[]>();
  let numRows = 0;
  for (const span of [...spans].sort((a, b) => a.from - b.from || a.to - b.to)) {
    const own = busy.get(span.stage) ?? [];
    busy.set(span.stage, own);
    const found = own.findIndex((last) => isFree(last, span.from));
    const row = found < 0 ? own.length : found;
    own[row] = span.to;
    numRows = Math.max(numRows, own.length);
    rowOf.set(span, row);
  }
  return { rowOf, numRows };
}

const key = ({ stage, chunk, microbatch }: Pick<Act, "stage" | "chunk" | "microbatch">) =>
  `${stage} ${chunk} ${microbatch}`;

/** What a map must hold. */
function lookUp<K, V>(map: ReadonlyMap<K, V>, entry: K): V {
  const value = map.get(entry);
  if (value === undefined) throw new InternalError(`[slotTable] nothing is known about ${describe(entry)}`);
  return value;
}

/** Whether an action calls a function of the pipeline. */
function calls({ isFirst, isLast }: Act, part: PartName): boolean {
  return part === "stage" || (part === "first" ? isFirst : isLast);
}

/** Whether an action reads what another stage sent. */
function readsMessage({ kind, isFirst, isLast }: Act): boolean {
  return kind !== "W" && !(kind === "F" ? isFirst : isLast);
}

/** A name for the reader of a message: a microbatch passes each part once in each direction. */
const readerName = (kind: ActionKind, place: Pick<Act, "stage" | "chunk" | "microbatch">) =>
  `${kind === "F" ? "forward" : "backward"} ${key(place)}`;

/** The rows of what is kept of one function, for one lifetime. */
function keptRows(
  acts: readonly Act[],
  lifetime: Lifetime,
): { readonly rows: ReadonlyMap<string, number>; readonly numRows: number } {
  const slotOf = (...kinds: ActionKind[]) =>
    new Map(acts.filter(({ kind }) => kinds.includes(kind)).map((act) => [key(act), act.slot]));
  const F = slotOf("F");
  const [from, to] = {
    input: [F, slotOf("I", "B")],
    weight: [F, slotOf("W", "B")],
    postponed: [slotOf("I"), slotOf("W")],
  }[lifetime] as [typeof F, typeof F];
  const spans = acts
    .filter((act) => act.kind === "F" && from.has(key(act)))
    .map((act) => ({
      stage: act.stage,
      key: key(act),
      from: lookUp(from, key(act)),
      to: lookUp(to, key(act)),
    }));
  const { rowOf, numRows } = assignRows(spans, (lastRead, written) => lastRead < written);
  return { rows: new Map(spans.map((span) => [span.key, lookUp(rowOf, span)])), numRows };
}

/** A message: which action of which stage reads it, and from where it comes. */
interface Message extends Span {
  readonly reader: string;
  readonly sender: number;
  readonly direction: Direction;
}

/**
 * The messages of a schedule; they are stored at the end of their first slot. That is right before the action that
 * reads a message, since waiting earlier would only idle, or before the sender's next action that others wait for: only
 * weight gradients may come between.
 */
function messagesOf(schedule: PipelineSchedule, acts: readonly Act[], delay: number): Message[] {
  const layout = layoutOf(schedule);
  const readers = new Map(
    acts.filter(({ kind }) => kind !== "W").map((act) => [readerName(act.kind, act), act]),
  );
  const senders = acts.filter(
    ({ kind, isFirst, isLast }) => kind !== "W" && !(kind === "F" ? isLast : isFirst),
  );
  const urgent = schedule.stages.map((_, stage) =>
    acts.filter((act) => act.stage === stage && act.kind !== "W"),
  );
  return senders.map((act): Message => {
    const { kind, stage, chunk, microbatch, sent } = act;
    const to = placeOf(layout, partOf(layout, stage, chunk) + (kind === "F" ? 1 : -1));
    const reader = readerName(kind, { ...to, microbatch });
    const numStages = layout.numStages;
    // With two stages each is both neighbours of the other, so the order of the stages determines the direction of a
    // message.
    const isNext = to.stage === stage + 1 || (numStages > 2 && to.stage === (stage + 1) % numStages);
    const direction = to.stage === stage ? "fromSelf" : isNext ? "fromLeft" : "fromRight";
    const read = lookUp(readers, reader).slot;
    const later = at(urgent, stage).filter(({ slot }) => slot > act.slot);
    const latest = Math.min(read, ...later.map(({ slot }) => slot)) - 1;
    // Messages within a stage are stored at once, and those that travel during a slot arrive at its end.
    const from = direction === "fromSelf" ? sent : delay > 0 ? sent + delay : Math.max(sent, latest);
    return { stage: to.stage, from, to: read, reader, sender: stage, direction };
  });
}

/**
 * Lays a schedule out in slots.
 *
 * @param overlap whether messages travel while the next slot is computed, and arrive a slot later
 */
export function slotTable(schedule: PipelineSchedule, overlap: boolean): SlotTable {
  const delay = overlap ? 1 : 0;
  const acts = actsOf(schedule, delay);
  const numSlots = numSlotsOf(acts);
  const messages = messagesOf(schedule, acts, delay);
  const arrived = assignRows(messages, (lastRead, written) => lastRead <= written);
  const arrivedRow = new Map(messages.map((message) => [message.reader, lookUp(arrived.rowOf, message)]));
  const kept = mapParts((part) => {
    const own = acts.filter((act) => calls(act, part));
    return mapLifetimes((lifetime) => keptRows(own, lifetime));
  });
  const branches: Branch[] = [];
  const branchOf = ({ kind, chunk, isFirst, isLast }: Act): number => {
    const found = branches.findIndex(
      (b) => b.kind === kind && b.chunk === chunk && b.isFirst === isFirst && b.isLast === isLast,
    );
    if (found >= 0) return found + 1;
    return branches.push({ kind, chunk, isFirst, isLast });
  };
  const slots = range(numSlots).map(() =>
    range(schedule.stages.length).map((): { -readonly [K in keyof SlotCell]: SlotCell[K] } => {
      return {
        branch: 0,
        microbatch: 0,
        arrived: 0,
        kept: mapParts(() => mapLifetimes(() => 0)),
        fromLeft: -1,
        fromRight: -1,
        fromSelf: -1,
      };
    }),
  );
  for (const act of acts) {
    const cell = at(at(slots, act.slot), act.stage);
    cell.branch = branchOf(act);
    cell.microbatch = act.microbatch;
    cell.arrived = readsMessage(act) ? lookUp(arrivedRow, readerName(act.kind, act)) : 0;
    cell.kept = mapParts((part) =>
      mapLifetimes((lifetime) => (calls(act, part) ? (kept[part][lifetime].rows.get(key(act)) ?? 0) : 0)),
    );
  }
  for (const message of messages) {
    at(at(slots, message.from), message.stage)[message.direction] = lookUp(arrived.rowOf, message);
  }
  return {
    role: {
      kind: "slots",
      numStages: schedule.stages.length,
      numMicrobatches: schedule.numMicrobatches,
      numRepeats: schedule.numChunks,
    },
    branches,
    slots,
    rows: mapParts((part) => mapLifetimes((lifetime) => kept[part][lifetime].numRows)),
    numArrived: arrived.numRows,
    links: linksOf(messages, numSlots),
  };
}

/** The neighbours that send each other messages, and when. */
function linksOf(messages: readonly Message[], numSlots: number): StageLink[] {
  const links = new Map<
    string,
    { readonly ends: readonly [left: number, right: number]; readonly slots: Pair[][] }
  >();
  for (const { sender, stage, direction, from } of messages) {
    if (direction === "fromSelf") continue;
    const ends: Pair = direction === "fromLeft" ? [sender, stage] : [stage, sender];
    const link = links.get(`${ends}`) ?? { ends, slots: range(numSlots).map(() => []) };
    links.set(`${ends}`, link);
    at(link.slots, from).push([sender, stage]);
  }
  return [...links.values()].map(({ ends: [left, right], slots }) => {
    const names = slots.map((pairs) => pairs.map(String).sort().join(" "));
    const kinds = [...new Set(names)].filter((name) => name !== "");
    return {
      left,
      right,
      exchanges: kinds.map((name) => at(slots, names.indexOf(name))),
      bySlot: names.map((name) => kinds.indexOf(name) + 1),
    };
  });
}

/** By slot, the pairs of stages of which the second waits for the first when the slot ends. */
export function meetingsInSlots(schedule: PipelineSchedule): readonly (readonly Pair[])[] {
  const acts = actsOf(schedule, 0);
  const numSlots = numSlotsOf(acts);
  const links = linksOf(messagesOf(schedule, acts, 0), numSlots);
  return range(numSlots).map((slot) =>
    links.flatMap(({ exchanges, bySlot }) => exchanges[at(bySlot, slot) - 1] ?? []),
  );
}

/** A record with an entry for every function of a pipeline. */
export function mapParts<T>(make: (part: PartName) => T): { readonly [P in PartName]: T } {
  return { first: make("first"), stage: make("stage"), last: make("last") };
}

/** A cell with other values, made from its own one after the other. */
export function mapCell<A, B>(cell: SlotCell<A>, change: (value: A, index: number) => B): SlotCell<B> {
  let index = 0;
  const next = (value: A) => change(value, index++);
  return {
    branch: next(cell.branch),
    microbatch: next(cell.microbatch),
    arrived: next(cell.arrived),
    fromLeft: next(cell.fromLeft),
    fromRight: next(cell.fromRight),
    fromSelf: next(cell.fromSelf),
    kept: mapParts((part) => mapLifetimes((lifetime) => next(cell.kept[part][lifetime]))),
  };
}

/** The numbers of a cell in the order of {@link mapCell}. */
export function cellNumbers(cell: SlotCell): number[] {
  const numbers: number[] = [];
  mapCell(cell, (number) => numbers.push(number));
  return numbers;
}
