/** Predicts the time of a compiled training step on a machine, and where it goes, from the prices of its step list. */
import type { CompiledProgram } from "../../compiler/steps.js";
import { InternalError } from "../../ir/errors.js";
import type { ControlRole } from "../../ir/ops.js";
import { at } from "../../ir/shape.js";
import { endsOf } from "../../parallel/schedule/check.js";
import type { PipelineAction, PipelineSchedule } from "../../parallel/schedule/schedule.js";
import { simulateSchedule } from "../../parallel/schedule/simulate.js";
import { type Branch, type SlotTable, slotTable } from "../../parallel/schedule/slots.js";
import type { ExpertLoad } from "./expertLoad.js";
import { type PricedWork, type Prices, partNames } from "./prices.js";
import { type TimedCollective, type TimedLoop, type TimedStep, timedSteps } from "./timedSteps.js";

/** Where the time of a step goes, in seconds. */
export interface TimeParts {
  /** Matrix products. */
  readonly products: number;
  /** Attention that is one kernel. */
  readonly attention: number;
  /** Everything else that computes. */
  readonly kernels: number;
  /** Copies. */
  readonly moves: number;
  /** Communication that does not overlap with computation, by mesh axes. */
  readonly communication: Readonly<Record<string, number>>;
  /** Idle stages of a pipeline. */
  readonly bubble: number;
  /** Starting the program. */
  readonly overhead: number;
}

/** The time of a step. */
export interface StepTime {
  readonly seconds: number;
  readonly parts: TimeParts;
}

/** What a prediction needs besides the program. */
export interface ProgramSetting {
  /** How many devices run it. */
  readonly numDevices: number;
  /** The schedule that its stages follow, if they select actions from a table. */
  readonly schedule?: PipelineSchedule | undefined;
  /** The load of the fullest device along `expert`. */
  readonly load?: ExpertLoad | undefined;
}

/** Sums times by kind. */
class Ledger {
  readonly work: { [P in PricedWork]: number } = { products: 0, attention: 0, kernels: 0, moves: 0 };
  readonly communication = new Map<string, number>();
  /** The seconds of what is sent during an iteration of a loop, by mesh axes. */
  readonly background = new Map<string, number>();
  bubble = 0;
  overhead = 0;

  add(other: Ledger, times: number): void {
    for (const part of partNames) this.work[part] += other.work[part] * times;
    for (const [axes, seconds] of other.communication) this.communicate(axes, seconds * times);
    this.bubble += other.bubble * times;
    this.overhead += other.overhead * times;
  }

  communicate(axes: string, seconds: number): void {
    this.communication.set(axes, (this.communication.get(axes) ?? 0) + seconds);
  }

  send(axes: string, seconds: number): void {
    this.background.set(axes, (this.background.get(axes) ?? 0) + seconds);
  }

  get computing(): number {
    return partNames.reduce((sum, part) => sum + this.work[part], 0);
  }

  get seconds(): number {
    const sent = [...this.communication.values()].reduce((sum, seconds) => sum + seconds, 0);
    return this.computing + sent + this.bubble + this.overhead;
  }
}

/** The time of one run of a compiled program on all devices at the same time. */
export function stepTime(program: CompiledProgram, prices: Prices, setting: ProgramSetting): StepTime {
  return timeOf(timedSteps(program, prices, setting.load), prices, setting);
}

/** The time of one run of some steps on all devices at the same time. */
export function timeOf(steps: readonly TimedStep[], prices: Prices, setting: ProgramSetting): StepTime {
  const walk = new Walk(prices, setting);
  const ledger = walk.list(steps);
  if (setting.schedule && !walk.hasSlots) {
    throw new InternalError(
      "[plan] a step that follows a schedule has no loop over the slots of the schedule",
    );
  }
  ledger.overhead += prices.call;
  return {
    seconds: ledger.seconds,
    parts: {
      ...ledger.work,
      communication: Object.fromEntries(ledger.communication),
      bubble: ledger.bubble,
      overhead: ledger.overhead,
    },
  };
}

class Walk {
  /** Whether it came to a loop over the slots of a schedule. */
  hasSlots = false;
  /** How many devices share a core. */
  private readonly turns: number;

  constructor(
    private readonly prices: Prices,
    private readonly setting: ProgramSetting,
  ) {
    this.turns = Math.max(1, setting.numDevices / prices.numCores);
  }

  /** The time of a list of steps, once. */
  list(steps: readonly TimedStep[], turns = this.turns): Ledger {
    const ledger = new Ledger();
    // When pending collectives complete, on the clock of this list.
    const underway = new Map<TimedCollective, number>();
    for (const step of steps) this.add(ledger, step, underway, turns);
    return ledger;
  }

  private add(ledger: Ledger, step: TimedStep, underway: Map<TimedCollective, number>, turns: number): void {
    switch (step.op) {
      case "loop":
        if (step.role?.kind === "slots") this.addPipeline(ledger, step);
        else this.addLoop(ledger, step, turns);
        return;
      case "cond": {
        const branches = step.branches.map((branch) => this.list(branch, turns));
        const [dearest] = branches.sort((a, b) => b.seconds - a.seconds);
        if (dearest) ledger.add(dearest, 1);
        return;
      }
      case "start": {
        const { collective } = step;
        if (collective.isBackground) return;
        const isRival = ({ axes }: TimedCollective) => this.prices.takesTurns || axes === collective.axes;
        const rivals = [...underway].flatMap(([other, end]) => (isRival(other) ? [end] : []));
        underway.set(collective, Math.max(ledger.seconds, ...rivals) + collective.seconds);
        return;
      }
      case "done": {
        const { axes, seconds, isBackground } = step.collective;
        if (isBackground) ledger.send(axes, seconds);
        else if (!this.prices.overlaps) ledger.communicate(axes, seconds);
        else ledger.communicate(axes, Math.max(0, (underway.get(step.collective) ?? 0) - ledger.seconds));
        return;
      }
      case "work":
        ledger.work[step.part] += step.seconds * turns;
    }
  }

  /** Iterations, each as long as its steps or as what is sent in the background along one axis. */
  private addLoop(ledger: Ledger, { body, count }: TimedLoop, turns: number): void {
    const once = this.list(body, turns);
    const [axes, sent] = [...once.background].sort((a, b) => b[1] - a[1])[0] ?? ["", 0];
    if (sent > once.seconds) once.communicate(axes, sent - once.seconds);
    ledger.add(once, count);
  }

  /** A loop over slots: the work of all stages in every slot, and the longest of the stages' actions. */
  private addPipeline(ledger: Ledger, loop: TimedLoop): void {
    this.hasSlots = true;
    const { schedule } = this.setting;
    if (!schedule) throw new InternalError("[plan] the time of a loop over slots needs its schedule");
    const table = slotTable(schedule, false);
    const choices = loop.body.flatMap((step) => (step.op === "cond" && step.role ? [step] : []));
    const choice = choices.find(({ role }) => role?.kind === "action");
    if (loop.count !== table.slots.length || choice?.branches.length !== table.branches.length + 1) {
      throw new InternalError(
        `[plan] a loop over ${loop.count} slots with ${choice?.branches.length ?? 0} actions does not follow the schedule, which has ${table.slots.length} slots and ${table.branches.length + 1} actions: was it made for other messages or another schedule?`,
      );
    }
    const messages = choices.flatMap((found) => {
      const counts = found.role && messageCounts(table, found.role);
      return counts ? [{ found, counts }] : [];
    });
    const apart = new Set<TimedStep>([choice, ...messages.map(({ found }) => found)]);
    ledger.add(this.list(loop.body.filter((step) => !apart.has(step))), loop.count);
    for (const { found, counts } of messages) {
      found.branches.forEach((branch, i) => {
        ledger.add(this.list(branch), at(counts, i) / schedule.stages.length);
      });
    }
    const branches = choice.branches.map((branch) => this.list(branch, 1));
    const number = branchNumber(schedule);
    const times = (action: PipelineAction, stage: number) => at(branches, number(action, stage)).seconds;
    const numStages = schedule.stages.length;
    const numCores = (this.prices.numCores * numStages) / this.setting.numDevices;
    const { timeline } = simulateSchedule(schedule, { times, inSlots: true, numCores });
    const work = new Ledger();
    timeline.stages.forEach((actions, stage) => {
      for (const action of actions) work.add(at(branches, number(action, stage)), 1 / numStages);
    });
    // More stages than cores share them, which is not a bubble.
    const busy = Math.max(work.seconds, (work.seconds * numStages) / numCores);
    ledger.add(work, work.seconds === 0 ? 0 : busy / work.seconds);
    ledger.bubble += Math.max(0, timeline.length - busy);
  }
}

/** How often all stages together take each branch of a choice that passes messages on; undefined for others. */
function messageCounts({ links, slots }: SlotTable, role: ControlRole): readonly number[] | undefined {
  if (role.kind === "message" && role.from === "fromSelf") {
    return [0, slots.flat().filter(({ fromSelf }) => fromSelf >= 0).length];
  }
  if (role.kind !== "link") return undefined;
  const { exchanges, bySlot } = at(links, role.link);
  // Both ends of a link are busy with an exchange.
  return [0, ...exchanges.map((_, e) => 2 * bySlot.filter((exchange) => exchange === e + 1).length)];
}

/** The branch index of a stage's action. */
function branchNumber(schedule: PipelineSchedule): (action: PipelineAction, stage: number) => number {
  const { branches } = slotTable(schedule, false);
  const { first, last } = endsOf(schedule);
  return ({ kind, chunk }, stage) => {
    const isAt = (place: { stage: number; chunk: number }) => place.stage === stage && place.chunk === chunk;
    const same = (b: Branch) =>
      b.kind === kind && b.chunk === chunk && b.isFirst === isAt(first) && b.isLast === isAt(last);
    return branches.findIndex(same) + 1;
  };
}
