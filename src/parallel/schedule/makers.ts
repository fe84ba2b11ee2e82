/** The named schedules, as tables of actions. */

import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ValueError } from "../../ir/errors.js";
import { range } from "../../ir/shape.js";
import type { ActionKind, PipelineAction, PipelinePlacement, PipelineSchedule } from "./schedule.js";

/** The sizes of a schedule. */
export interface ScheduleSizes {
  readonly numStages: number;
  readonly numMicrobatches: number;
  /** How many parts of the model every stage has; 1 by default, 2 in V-shaped schedules. */
  readonly numChunks?: number;
}

/** Maximum number of actions of a kind. */
const maxSize = 2 ** 20;

type Row = readonly PipelineAction[];

function checkSizes(sizes: ScheduleSizes, caller: string): void {
  need("object", sizes, "sizes", caller);
  const { numStages, numMicrobatches, numChunks = 1 } = sizes;
  for (const [what, value] of Object.entries({ numStages, numMicrobatches, numChunks })) {
    if (Number.isInteger(value) && value >= 1) continue;
    throw new ValueError(`[${caller}] ${what} is ${describe(value)}: use an integer of at least 1`);
  }
  if (numStages * numMicrobatches * numChunks > maxSize) {
    throw new ValueError(
      `[${caller}] ${numStages} stages x ${numMicrobatches} microbatches x ${numChunks} chunks are more than ${maxSize} actions: use smaller numbers`,
    );
  }
}

/** Makes a schedule from sizes that the caller has checked. */
function make(
  name: string,
  { numStages, numMicrobatches, numChunks = 1 }: ScheduleSizes,
  row: (stage: number) => Row,
  placement: PipelinePlacement = "loop",
): PipelineSchedule {
  return { name, numMicrobatches, numChunks, placement, stages: range(numStages).map(row) };
}

/** Throws if `numChunks` differs from the fixed number of a schedule. */
function withChunks(name: string, sizes: ScheduleSizes, wanted: number): ScheduleSizes {
  const { numChunks = wanted } = sizes;
  if (numChunks === wanted) return { ...sizes, numChunks };
  throw new ValueError(
    `[${name}] every stage has ${wanted} ${wanted === 1 ? "part" : "parts"} of the model, not ${describe(numChunks)}: ${
      wanted === 1 ? "use an interleaved schedule for more" : `leave numChunks out or set it to ${wanted}`
    }`,
  );
}

/**
 * All microbatches forward, then all backward in the opposite order; every stage keeps its activations of all of them.
 * (Huang et al. 2019.)
 *
 * @example
 * ```ts
 * const schedule = parallel.gpipe({ numStages: 2, numMicrobatches: 4 });
 * parallel.timeline(schedule).length; // 15
 * ```
 */
export function gpipe(sizes: ScheduleSizes): PipelineSchedule {
  checkSizes(sizes, "gpipe");
  return make("gpipe", withChunks("gpipe", sizes, 1), () => sweep(sizes, "last first"));
}

/**
 * Every microbatch passes through all stages once per chunk, then backward the same way.
 *
 * @example
 * ```ts
 * const schedule = parallel.circular({ numStages: 2, numMicrobatches: 2, numChunks: 2 });
 * parallel.scheduleToCsv(schedule).split("\n")[0]; // "0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0"
 * ```
 */
export function circular(sizes: ScheduleSizes): PipelineSchedule {
  checkSizes(sizes, "circular");
  return make("circular", sizes, () => sweep(sizes, "last first"));
}

/**
 * All microbatches through a chunk before the next one, forward and backward, both in ascending order: weights of a
 * chunk are needed once in each direction. (Lamy-Poirier 2022.)
 *
 * @example
 * ```ts
 * const schedule = parallel.breadthFirst({ numStages: 2, numMicrobatches: 2, numChunks: 2 });
 * parallel.scheduleToCsv(schedule).split("\n")[0]; // "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1"
 * ```
 */
export function breadthFirst(sizes: ScheduleSizes): PipelineSchedule {
  checkSizes(sizes, "breadthFirst");
  return make("breadth-first", sizes, () => sweep(sizes, "first first"));
}

function sweep(
  { numMicrobatches, numChunks = 1 }: ScheduleSizes,
  backward: "first first" | "last first",
): PipelineAction[] {
  const inOrder = range(numMicrobatches);
  const returning = backward === "first first" ? inOrder : [...inOrder].reverse();
  const rounds = (kind: ActionKind, chunks: readonly number[], microbatches: readonly number[]) =>
    chunks.flatMap((chunk) => microbatches.map((microbatch) => ({ kind, chunk, microbatch })));
  const chunks = range(numChunks);
  return [...rounds("F", chunks, inOrder), ...rounds("B", [...chunks].reverse(), returning)];
}

/**
 * One forward, one backward: a stage goes backward as soon as it can, so that it keeps no more than as many
 * microbatches as there are stages behind it. (Narayanan et al. 2019.)
 *
 * @example
 * ```ts
 * const schedule = parallel.oneForwardOneBackward({ numStages: 2, numMicrobatches: 4 });
 * parallel.timeline(schedule).length; // 15
 * ```
 */
export function oneForwardOneBackward(sizes: ScheduleSizes): PipelineSchedule {
  checkSizes(sizes, "oneForwardOneBackward");
  const { numStages } = sizes;
  return make("1f1b", withChunks("1f1b", sizes, 1), (stage) =>
    alternate(sizes, numStages - 1 - stage, groupsOf(sizes)),
  );
}

/**
 * One forward, one backward with several chunks a stage, microbatches in groups as large as the pipeline: the
 * bubble shrinks with the number of chunks. (Narayanan et al. 2021.)
 *
 * @example
 * ```ts
 * const schedule = parallel.interleaved({ numStages: 2, numMicrobatches: 2, numChunks: 2 });
 * parallel.scheduleToCsv(schedule).split("\n")[0]; // "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1"
 * ```
 */
export function interleaved(sizes: ScheduleSizes): PipelineSchedule {
  checkSizes(sizes, "interleaved");
  const { numStages, numChunks = 1 } = sizes;
  const groups = groupsOf(sizes);
  const first = groups[0]?.length ?? 0;
  return make("interleaved", sizes, (stage) => {
    const behind = numStages - 1 - stage;
    return alternate(sizes, numChunks === 1 ? behind : (numChunks - 1) * first + 2 * behind, groups);
  });
}

/** Microbatches in groups that go through the chunks together: as many groups as are at least as large as the pipeline. */
function groupsOf({ numStages, numMicrobatches }: ScheduleSizes): number[][] {
  const count = Math.max(1, Math.floor(numMicrobatches / numStages));
  const bound = (i: number) => Math.ceil((i * numMicrobatches) / count);
  return range(count).map((i) => range(bound(i + 1) - bound(i)).map((k) => bound(i) + k));
}

/** Forward actions before the first backward one, then one of each alternately, then the remaining backward ones. */
function alternate(
  { numChunks = 1 }: ScheduleSizes,
  numBefore: number,
  groups: readonly (readonly number[])[],
): PipelineAction[] {
  const tasks = (kind: ActionKind, chunks: readonly number[]) =>
    groups.flatMap((group) =>
      chunks.flatMap((chunk) => group.map((microbatch) => ({ kind, chunk, microbatch }))),
    );
  const forward = tasks("F", range(numChunks));
  const backward = tasks("B", range(numChunks).reverse());
  const before = Math.min(numBefore, forward.length);
  const turns = forward.slice(before).flatMap((action, i) => [action, ...backward.slice(i, i + 1)]);
  return [...forward.slice(0, before), ...turns, ...backward.slice(forward.length - before)];
}

/**
 * A row to which actions are added by kind and chunk; each takes the next microbatch, and is dropped after the last
 * one.
 */
class RowBuilder {
  readonly actions: PipelineAction[] = [];
  private readonly counts = new Map<string, number>();
  private readonly pending: { readonly chunk: number; readonly microbatch: number }[] = [];

  /** @param numMicrobatches actions of later microbatches are counted and dropped */
  constructor(private readonly numMicrobatches: number) {}

  /** How many actions of a kind and chunk there were. */
  count(kind: ActionKind, chunk: number): number {
    return this.counts.get(`${kind}${chunk}`) ?? 0;
  }

  /** Adds actions such as `F0`, `I1`: a kind and a chunk; `W` alone is the weight gradient that has waited longest. */
  add(...names: readonly (`${ActionKind}${0 | 1}` | "W")[]): void {
    for (const name of names) {
      if (name === "W") this.addOldest();
      else this.addNext(name[0] as ActionKind, Number(name[1]));
    }
  }

  private addNext(kind: ActionKind, chunk: number): void {
    // A whole backward pass and its first half count together.
    const counted = kind === "B" ? "I" : kind;
    const microbatch = this.count(counted, chunk);
    this.counts.set(`${counted}${chunk}`, microbatch + 1);
    if (kind === "I") this.pending.push({ chunk, microbatch });
    if (kind === "W") {
      const oldest = this.pending.findIndex((task) => task.chunk === chunk);
      const [task] = oldest < 0 ? [] : this.pending.splice(oldest, 1);
      if (task) this.push({ kind, ...task });
    } else this.push({ kind, chunk, microbatch });
  }

  private addOldest(): void {
    const task = this.pending.shift();
    if (task) this.push({ kind: "W", ...task });
  }

  /** Adds the remaining weight gradients, oldest first; with a chunk, only its own. */
  finish(chunk?: number): void {
    while (this.pending.some((task) => chunk === undefined || task.chunk === chunk)) {
      if (chunk === undefined) this.addOldest();
      else this.addNext("W", chunk);
    }
  }

  private push(action: PipelineAction): void {
    if (action.microbatch < this.numMicrobatches) this.actions.push(action);
  }
}

/**
 * The rows of ZB-H1 and ZB-H2, given the number of initial forward actions and the delay of weight gradients in
 * microbatches.
 */
function handcrafted(
  { numMicrobatches }: ScheduleSizes,
  numBefore: number,
  numLate: number,
): PipelineAction[] {
  const row = new RowBuilder(numMicrobatches);
  const forward = (upTo: number) => {
    while (row.count("F", 0) < Math.min(upTo, numMicrobatches)) row.add("F0");
  };
  forward(numBefore);
  for (const k of range(numMicrobatches)) {
    row.add("I0");
    if (k >= numLate) row.add("W0");
    forward(numBefore + k + 1);
  }
  row.finish();
  return row.actions;
}

/**
 * One forward, one backward with weight gradients postponed so that they fill the end of the pipeline: a third of the
 * bubble with no more memory. (Qi et al. 2023, ZB-H1.)
 *
 * @example
 * ```ts
 * const schedule = parallel.zeroBubbleH1({ numStages: 2, numMicrobatches: 2 });
 * parallel.scheduleToCsv(schedule).split("\n")[0]; // "0F0,0F1,0I0,0W0,0I1,0W1"
 * ```
 */
export function zeroBubbleH1(sizes: ScheduleSizes): PipelineSchedule {
  checkSizes(sizes, "zeroBubbleH1");
  const { numStages } = sizes;
  return make("zb-h1", withChunks("zb-h1", sizes, 1), (stage) =>
    handcrafted(sizes, numStages - stage, stage),
  );
}

/**
 * As {@link zeroBubbleH1} with more microbatches in flight at the start, which fill its bubble, too: no stage is idle
 * if the three kinds of action take equally long, for twice the memory. (Qi et al. 2023, ZB-H2.)
 *
 * @example
 * ```ts
 * const schedule = parallel.zeroBubbleH2({ numStages: 2, numMicrobatches: 2 });
 * parallel.scheduleToCsv(schedule).split("\n")[0]; // "0F0,0F1,0I0,0W0,0I1,0W1"
 * ```
 */
export function zeroBubbleH2(sizes: ScheduleSizes): PipelineSchedule {
  checkSizes(sizes, "zeroBubbleH2");
  const { numStages } = sizes;
  return make("zb-h2", withChunks("zb-h2", sizes, 1), (stage) =>
    handcrafted(sizes, 2 * (numStages - stage) - 1, 2 * stage),
  );
}

/**
 * Two chunks a stage in the shape of a V, so that the first stage is also the last: no idle time if the three kinds of
 * action take equally long, with the memory of 1F1B. (Qi et al. 2023, ZB-V.)
 *
 * @example
 * ```ts
 * const schedule = parallel.zeroBubbleV({ numStages: 2, numMicrobatches: 2 });
 * parallel.scheduleToCsv(schedule).split("\n")[0]; // "0F0,0F1,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,0I1,0W1"
 * ```
 */
export function zeroBubbleV(sizes: ScheduleSizes): PipelineSchedule {
  checkSizes(sizes, "zeroBubbleV");
  const { numStages, numMicrobatches } = sizes;
  // The phases need that many microbatches; the builder drops those beyond the real ones.
  const total = Math.max(numMicrobatches, 2 * numStages - 1);
  const name = "zb-v";
  const row = (stage: number) => {
    const behind = numStages - stage;
    const builder = new RowBuilder(numMicrobatches);
    for (const _ of range(2 * behind - 1)) builder.add("F0");
    for (const _ of range(stage)) builder.add("F1", "F0");
    for (const _ of range(behind)) builder.add("F1", "I1", "W1");
    while (builder.count("F", 1) < total) {
      if (builder.count("F", 0) < total) builder.add("F0");
      builder.add("I0", "W0", "F1", "I1", "W1");
    }
    for (const _ of range(stage)) builder.add("I0", "I1");
    for (const _ of range(behind)) builder.add("I0", "W0");
    builder.finish(1);
    builder.finish(0);
    return builder.actions;
  };
  return make(name, withChunks(name, sizes, 2), row, "v");
}

/**
 * Two chunks a stage in the shape of a V that alternate forward and backward, with split backward passes at both ends.
 * (DeepSeek-AI 2024, DualPipe cut in half.)
 *
 * @example
 * ```ts
 * const schedule = parallel.dualPipeV({ numStages: 2, numMicrobatches: 4 });
 * parallel.scheduleToCsv(schedule).startsWith("0F0,0F1,0F2,3F0,3I0,3W0"); // true
 * ```
 */
export function dualPipeV(sizes: ScheduleSizes): PipelineSchedule {
  checkSizes(sizes, "dualPipeV");
  const { numStages, numMicrobatches } = sizes;
  const name = "dualpipev";
  const row = (stage: number) => {
    const total = Math.max(numMicrobatches, 2 * numStages);
    const behind = numStages - 1 - stage;
    const builder = new RowBuilder(numMicrobatches);
    for (const _ of range(2 * behind)) builder.add("F0");
    for (const _ of range(stage + 1)) builder.add("F0", "F1");
    for (const _ of range(behind)) builder.add("I1", "W", "F1");
    for (const _ of range(total - 2 * numStages + stage + 1)) builder.add("F0", "B1", "F1", "B0");
    for (const _ of range(behind)) builder.add("B1", "F1", "B0");
    // In the second half of the rest, backward passes are split.
    const half = Math.floor((stage + 1) / 2);
    const isOdd = stage % 2 === 1;
    for (const i of range(stage + 1)) {
      builder.add(i > half || (i === half && isOdd) ? "I1" : "B1", i >= half ? "I0" : "B0");
    }
    for (const _ of range(behind)) builder.add("W", "I0");
    builder.finish();
    return builder.actions;
  };
  return make(name, withChunks(name, sizes, 2), row, "v");
}

/** The schedules by their names in configurations. */
const scheduleMakers = {
  gpipe,
  circular,
  "1f1b": oneForwardOneBackward,
  interleaved,
  "breadth-first": breadthFirst,
  "zb-h1": zeroBubbleH1,
  "zb-h2": zeroBubbleH2,
  "zb-v": zeroBubbleV,
  dualpipev: dualPipeV,
} as const;

/** The name of a known schedule. */
export type ScheduleName = keyof typeof scheduleMakers;

/** The names of all known schedules. */
export const scheduleNames = Object.keys(scheduleMakers) as readonly ScheduleName[];

/**
 * A known schedule by its name.
 *
 * @example
 * ```ts
 * const schedule = parallel.makeSchedule("1f1b", { numStages: 2, numMicrobatches: 2 });
 * parallel.scheduleToCsv(schedule).split("\n")[0]; // "0F0,0F1,0B0,0B1"
 * ```
 */
export function makeSchedule(name: ScheduleName, sizes: ScheduleSizes): PipelineSchedule {
  need("string", name, "name", "makeSchedule");
  need("object", sizes, "sizes", "makeSchedule");
  if (!Object.hasOwn(scheduleMakers, name)) {
    throw new ValueError(`[makeSchedule] unknown schedule "${name}": use ${scheduleNames.join(", ")}`);
  }
  return scheduleMakers[name](sizes);
}
