/** Simulates a scheduled training step: seconds and bytes, from the costs of its actions and links. */
import { need } from "../../ir/arguments.js";
import { ValueError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import { activationsOf, bubbleOf, checkActions, most } from "./check.js";
import { needSchedule, type PipelineAction, type PipelineSchedule } from "./schedule.js";
import { actionsInSlots, meetingsInSlots } from "./slots.js";
import { type CostOf, type PairCostOf, runActions, type TimedAction, type Timeline } from "./timeline.js";

/** How long the actions of a stage take in seconds; without `B`, a whole backward pass takes as long as its halves. */
export interface ActionSeconds {
  readonly F: number;
  readonly I: number;
  readonly W: number;
  readonly B?: number;
}

/** What stages send each other, and over what. */
export interface PipelineLink {
  /** The bytes that one stage sends to the next for a microbatch. */
  readonly bytes: number;
  /** Bytes a second, in each direction. */
  readonly bandwidth: number;
  /** Latency of a message in seconds; 0 by default. */
  readonly latency?: number;
  /** Whether a stage computes while its messages travel; true by default. */
  readonly overlapped?: boolean;
}

/** The bytes that a chunk keeps for a microbatch, by how long it keeps them. */
export interface KeptBytes {
  /** From `F` to `I`. */
  readonly input: number;
  /** From `F` to `W`. */
  readonly weight: number;
  /** From `I` to `W`. */
  readonly postponed?: number;
}

/** Options of {@link simulateSchedule}. */
export interface SimulationOptions {
  /** The seconds of every kind of action, or a function of the action and its stage. */
  readonly times: ActionSeconds | CostOf;
  /** The link between stages; by default messages arrive at once. */
  readonly link?: PipelineLink;
  /** Seconds of the optimiser, which begins when all stages are done; 0 by default. */
  readonly optimizer?: number;
  /** What chunks keep; nothing by default. */
  readonly kept?: KeptBytes;
  /** Other bytes of every stage, such as weights and optimiser state; 0 by default. */
  readonly fixedBytes?: number;
  /**
   * Whether stages exchange messages at the ends of slots, as `pipelineTrainStep` does: the receiver waits until its
   * neighbour has reached that slot. By default false: stages wait only for messages that they read, when they read
   * them.
   */
  readonly inSlots?: boolean;
  /**
   * With `inSlots`, how many cores the stages share; if more of them work than there are cores, they share them. No
   * limit by default.
   */
  readonly numCores?: number;
  /**
   * How many seconds a forward action and the whole backward pass right behind it take if a stage computes them at the
   * same time, as in DualPipe; they run one after the other by default, or if it returns undefined.
   */
  readonly pairSeconds?: PairCostOf;
}

/** What a stage does with its time and its memory. */
export interface SimulatedStage {
  /** Seconds of actions. */
  readonly busy: number;
  /** Idle seconds between its first action and its last. */
  readonly idle: number;
  /** The maximum number of pairs of a chunk and a microbatch whose activations are alive at one time. */
  readonly activations: number;
  /** The peak memory in bytes. */
  readonly peakBytes: number;
}

/** The result of {@link simulateSchedule}. */
export interface Simulation {
  /** The seconds of the whole step. */
  readonly seconds: number;
  /** The share of the stages' time in which they are idle, from 0 to 1; the optimiser counts as work. */
  readonly bubble: number;
  /**
   * The share of the time of the stage that takes longest, from its first action to its last, in which it is idle: the
   * bubble if no stage waits for the others at the end.
   */
  readonly longestStageBubble: number;
  readonly stages: readonly SimulatedStage[];
  readonly timeline: Timeline;
}

/**
 * Simulates a training step.
 *
 * @example
 * ```ts
 * const schedule = parallel.scheduleOf("one", [["0F0", "0B0"]]);
 * parallel.simulateSchedule(schedule, { times: { F: 0.01, I: 0.01, W: 0.01 } }).seconds; // 0.03
 * ```
 */
export function simulateSchedule(schedule: PipelineSchedule, options: SimulationOptions): Simulation {
  needSchedule(schedule, "simulateSchedule");
  need("object", options, "the options", "simulateSchedule");
  const { link, optimizer = 0, inSlots = false, pairSeconds } = options;
  checkOptions(options);
  checkActions(schedule);
  const activations = activationsOf(schedule);
  const costOf = costs(options.times);
  const times = inSlots
    ? runInSlots(schedule, costOf, options)
    : runActions(schedule, {
        costOf,
        arrival: link ? arrivals(link) : (_from, _to, ready) => ready,
        isBlocking: link?.overlapped === false,
        ...(pairSeconds ? { pairCost: pairSeconds } : {}),
      });
  const stages = times.stages.map((actions, stage): SimulatedStage => {
    const busy = busySeconds(actions);
    return {
      busy,
      idle: span(actions) - busy,
      activations: at(activations, stage),
      peakBytes: (options.fixedBytes ?? 0) + peakKept(at(schedule.stages, stage), options.kept),
    };
  });
  const seconds = times.length + optimizer;
  const longest = most(times.stages.map(span));
  const busiest = Math.max(0, ...stages.map(({ busy }) => busy));
  return {
    seconds,
    bubble: seconds === 0 ? 0 : (bubbleOf(times) * times.length) / seconds,
    longestStageBubble: longest === 0 ? 0 : (longest - busiest) / longest,
    stages,
    timeline: times,
  };
}

function costs(times: ActionSeconds | CostOf): CostOf {
  if (typeof times === "function") return times;
  const { F, I, W, B = I + W } = times;
  const seconds = { F, I, W, B };
  return ({ kind }) => seconds[kind];
}

/** The seconds of a message by itself. */
function messageSeconds({ bytes, bandwidth, latency = 0 }: PipelineLink): number {
  return latency + bytes / bandwidth;
}

/** When messages arrive: those over one link in one direction are sent one after the other. */
function arrivals({ bytes, bandwidth, latency = 0 }: PipelineLink) {
  const free = new Map<string, number>();
  return (from: number, to: number, ready: number): number => {
    const link = `${from} ${to}`;
    const sent = Math.max(ready, free.get(link) ?? 0) + bytes / bandwidth;
    free.set(link, sent);
    return sent + latency;
  };
}

/**
 * Stages run an action in every slot and exchange messages after it: receivers wait until a message arrives. If
 * messages travel while the next slot is computed, or stages share fewer cores, all stages start the next slot
 * together.
 */
function runInSlots(
  schedule: PipelineSchedule,
  costOf: CostOf,
  { link, numCores = Number.POSITIVE_INFINITY }: SimulationOptions,
): Timeline {
  const overlap = link !== undefined && (link.overlapped ?? true);
  const slots = actionsInSlots(schedule, overlap);
  const send = link ? messageSeconds(link) : 0;
  const stages: TimedAction[][] = schedule.stages.map(() => []);
  const meetings = meetingsInSlots(schedule);
  const isInStep = overlap || numCores < schedule.stages.length;
  let clocks = schedule.stages.map(() => 0);
  slots.forEach((slot, i) => {
    const lengths = slot.map((action, stage) => (action ? costOf(action, stage) : 0));
    const ends = lengths.map((length, stage) => at(clocks, stage) + length);
    slot.forEach((action, stage) => {
      if (action) at(stages, stage).push({ ...action, begin: at(clocks, stage), end: at(ends, stage) });
    });
    const pairs = meetings[i] ?? [];
    if (isInStep) {
      const longest = Math.max(lengths.reduce((sum, length) => sum + length, 0) / numCores, ...lengths);
      const sent = overlap ? Math.max(longest, send) : longest + (pairs.length > 0 ? send : 0);
      clocks = clocks.map((clock) => clock + sent);
      return;
    }
    clocks = [...ends];
    for (const [from, to] of pairs) clocks[to] = Math.max(at(clocks, to), at(ends, from) + send);
  });
  return { stages, length: Math.max(...clocks) };
}

function busySeconds(actions: readonly TimedAction[]): number {
  // Two actions at the same time count once.
  let [busy, until] = [0, 0];
  for (const { begin, end } of actions) {
    busy += Math.max(0, end - Math.max(begin, until));
    until = Math.max(until, end);
  }
  return busy;
}

function span(actions: readonly TimedAction[]): number {
  return (actions.at(-1)?.end ?? 0) - (actions[0]?.begin ?? 0);
}

/** The peak number of bytes that a stage keeps for its microbatches. */
function peakKept(actions: readonly PipelineAction[], kept: KeptBytes = { input: 0, weight: 0 }): number {
  const { input, weight, postponed = 0 } = kept;
  // The inputs and the results of an action are alive at the same time.
  const made = { F: input + weight, I: postponed, W: 0, B: 0 };
  const left = { F: 0, I: input, W: weight + postponed, B: input + weight };
  let [alive, peak] = [0, 0];
  for (const { kind } of actions) {
    alive += made[kind];
    peak = Math.max(peak, alive);
    alive -= left[kind];
  }
  return peak;
}

function checkOptions({ times, link, optimizer, kept, fixedBytes }: SimulationOptions): void {
  const numbers: [string, number | undefined][] = [
    ...(typeof times === "function" ? [] : Object.entries(times).map(entry("times"))),
    ...Object.entries(kept ?? {}).map(entry("kept")),
    ["link.bytes", link?.bytes],
    ["link.latency", link?.latency],
    ["optimizer", optimizer],
    ["fixedBytes", fixedBytes],
  ];
  for (const [name, value] of numbers) {
    if (value === undefined || (Number.isFinite(value) && value >= 0)) continue;
    throw new ValueError(`[simulateSchedule] ${name} is ${value}: use a number of at least 0`);
  }
  if (link && !(link.bandwidth > 0)) {
    throw new ValueError(
      `[simulateSchedule] link.bandwidth is ${link.bandwidth}: use bytes a second above 0`,
    );
  }
}

const entry =
  (group: string) =>
  ([name, value]: [string, number | undefined]): [string, number | undefined] => [`${group}.${name}`, value];
