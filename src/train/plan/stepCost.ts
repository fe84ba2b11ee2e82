/** Predicts the time of a compiled training step on a machine, and where it goes, from the prices of its step list. */
import type { CompiledProgram, CondStep, LoopStep, Step } from "../../compiler/steps.js";
import { InternalError } from "../../ir/errors.js";
import type { ControlRole } from "../../ir/ops.js";
import { at } from "../../ir/shape.js";
import { endsOf } from "../../parallel/schedule/check.js";
import type { PipelineAction, PipelineSchedule } from "../../parallel/schedule/schedule.js";
import { simulateSchedule } from "../../parallel/schedule/simulate.js";
import { type Branch, type SlotTable, slotTable } from "../../parallel/schedule/slots.js";
import { type PricedWork, type Prices, partOfStep } from "./prices.js";

/** Where the time of a step goes, in seconds. */
export interface TimeParts {
  /** Matrix products. */
  readonly products: number;
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
}

/** Sums times by kind. */
class Ledger {
  readonly work: { [P in PricedWork]: number } = { products: 0, kernels: 0, moves: 0 };
  readonly communication = new Map<string, number>();
  bubble = 0;
  overhead = 0;

  add(other: Ledger, times: number): void {
    for (const part of ["products", "kernels", "moves"] as const) this.work[part] += other.work[part] * times;
    for (const [axes, seconds] of other.communication) this.communicate(axes, seconds * times);
    this.bubble += other.bubble * times;
    this.overhead += other.overhead * times;
  }

  communicate(axes: string, seconds: number): void {
    this.communication.set(axes, (this.communication.get(axes) ?? 0) + seconds);
  }

  get computing(): number {
    return this.work.products + this.work.kernels + this.work.moves;
  }

  get seconds(): number {
    const sent = [...this.communication.values()].reduce((sum, seconds) => sum + seconds, 0);
    return this.computing + sent + this.bubble + this.overhead;
  }
}

/** The time of one run of a program on all devices at the same time. */
export function stepTime(program: CompiledProgram, prices: Prices, setting: ProgramSetting): StepTime {
  const walk = new Walk(program, prices, setting);
  const ledger = walk.list(program.steps);
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
    private readonly program: CompiledProgram,
    private readonly prices: Prices,
    private readonly setting: ProgramSetting,
  ) {
    this.turns = Math.max(1, setting.numDevices / prices.numCores);
  }

  /** The time of a list of steps, once. */
  list(steps: readonly Step[], turns = this.turns): Ledger {
    const ledger = new Ledger();
    // When pending collectives complete, on the clock of this list.
    const underway = new Map<number, number>();
    for (const step of steps) this.add(ledger, step, underway, turns);
    return ledger;
  }

  private add(ledger: Ledger, step: Step, underway: Map<number, number>, turns: number): void {
    switch (step.op) {
      case "loop": {
        if (this.roleOf(step)?.kind === "slots") this.addPipeline(ledger, step);
        else ledger.add(this.list(step.body, turns), step.count);
        return;
      }
      case "while":
        ledger.add(this.list([...step.condition, ...step.body], turns), 1);
        return;
      case "cond": {
        const branches = step.branches.map((branch) => this.list(branch, turns));
        const [dearest] = branches.sort((a, b) => b.seconds - a.seconds);
        if (dearest) ledger.add(dearest, 1);
        return;
      }
      case "start": {
        const seconds = this.prices.collective(at(this.program.collectives, step.collective));
        const isFree = this.prices.takesTurns ? Math.max(...underway.values(), 0) : 0;
        underway.set(step.collective, Math.max(ledger.seconds, isFree) + seconds);
        return;
      }
      case "done": {
        const spec = at(this.program.collectives, step.collective);
        const whole = this.prices.collective(spec);
        const left = Math.max(0, (underway.get(step.collective) ?? 0) - ledger.seconds);
        const axes = spec.axes.map(({ name }) => name).join(", ");
        const { overlaps, takesTurns } = this.prices;
        const most = takesTurns ? left : Math.min(whole, left);
        ledger.communicate(axes, overlaps ? most : whole);
        return;
      }
      default:
        ledger.work[partOfStep[step.op]] += this.prices.step(step, at(this.program.infos, step.info)) * turns;
    }
  }

  private roleOf({ info }: LoopStep | CondStep): ControlRole | undefined {
    return at(this.program.infos, info).role;
  }

  /** A loop over slots: the work of all stages in every slot, and the longest of the stages' actions. */
  private addPipeline(ledger: Ledger, loop: LoopStep): void {
    this.hasSlots = true;
    const { schedule } = this.setting;
    if (!schedule) throw new InternalError("[plan] the time of a loop over slots needs its schedule");
    const table = slotTable(schedule, false);
    const choices = loop.body.flatMap((step) => {
      const role = step.op === "cond" ? this.roleOf(step) : undefined;
      return step.op === "cond" && role ? [{ role, step }] : [];
    });
    const choice = choices.find(({ role }) => role.kind === "action")?.step;
    if (loop.count !== table.slots.length || choice?.branches.length !== table.branches.length + 1) {
      throw new InternalError(
        `[plan] a loop over ${loop.count} slots with ${choice?.branches.length ?? 0} actions does not follow the schedule, which has ${table.slots.length} slots and ${table.branches.length + 1} actions: was it made for other messages or another schedule?`,
      );
    }
    const messages = choices.flatMap(({ role, step }) => {
      const counts = messageCounts(table, role);
      return counts ? [{ found: step, counts }] : [];
    });
    const apart = new Set<Step>([choice, ...messages.map(({ found }) => found)]);
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
