import type {
  CallbackStep,
  CondStep,
  DoneStep,
  LoopStep,
  SlotAddress,
  Step,
  WhileStep,
} from "../../compiler/steps.js";
import { at } from "../../ir/shape.js";
import type { PreparedCollective } from "../collectives/collectives.js";
import type { LimitLoop } from "../loopLimit.js";
import { PART, recordPart } from "../protocol/deviceTrace.js";
import type { WaitListener } from "../protocol/signals.js";
import { type ActionHost, type CollectivePlaces, StepActions } from "./stepActions.js";

/** What the steps of a loaded program work with. */
export interface StepHost extends ActionHost {
  readonly collectives: readonly {
    readonly spec: CollectivePlaces;
    readonly collective: PreparedCollective;
  }[];
  /** Makes a call of the host ready, which is given where the places of the step are by then. */
  prepareCall(step: CallbackStep): (addressOf: (place: SlotAddress) => number) => void;
  /** Where the number of the running step is published. */
  readonly status: {
    readonly words: Int32Array;
    readonly step: number;
    readonly progress: number;
    readonly loops: number;
  };
  /** Milliseconds since the main thread's origin of time. */
  now(): number;
  /** Says who is told of waits for peers; nobody with `undefined`. */
  tellWaits(listener: WaitListener | undefined): void;
  /** Moves messages to and from other processes on, between steps; undefined where there are none. */
  readonly progress: (() => void) | undefined;
  /** Ends loops without end where no watchdog looks; undefined where one does. */
  readonly limitLoop?: LimitLoop;
  /** Replaces the action of a step, for tests. */
  wrap(index: number, action: () => void): () => void;
}

/** Steps that take long enough for messages to arrive meanwhile. */
const COMPUTES: ReadonlySet<Step["op"]> = new Set(["kernel", "gemm", "copy", "host"]);

/** A step made ready: its number and what it does. */
interface Action {
  readonly index: number;
  readonly run: () => void;
}

/**
 * Runs the step list of one loaded program on one device. Preparing turns every step into a closure with
 * everything looked up ({@link StepActions}), so that running a step costs a call and allocates nothing.
 */
export class StepRunner {
  private readonly actions: readonly Action[];
  private numSteps = 0;
  private progress = 0;
  /** How many loops without a fixed end are around the running step. */
  private depth = 0;
  private trace: Float64Array | undefined;
  private readonly steps: StepActions;
  /** While steps are prepared: the collectives of the ends that come one after the other. */
  private readonly unsettled: PreparedCollective[] = [];

  constructor(
    private readonly id: number,
    steps: readonly Step[],
    private readonly host: StepHost,
  ) {
    this.steps = new StepActions(host);
    this.actions = this.prepareList(steps);
  }

  /** Runs the program once; the address table is filled. */
  run(trace: Float64Array | undefined): void {
    this.trace = trace;
    if (trace === undefined) {
      this.runList(this.actions);
      return;
    }
    const { words, step } = this.host.status;
    this.host.tellWaits({
      now: this.host.now,
      waited: (begin, end) => recordPart(trace, this.id, words[step] ?? 0, PART.wait, begin, end),
    });
    this.runList(this.actions);
    this.host.tellWaits(undefined);
  }

  private runList(actions: readonly Action[]): void {
    const { words, step, progress } = this.host.status;
    const { trace } = this;
    for (let i = 0; i < actions.length; i++) {
      const action = actions[i];
      if (action === undefined) continue;
      words[step] = action.index;
      words[progress] = ++this.progress;
      if (trace === undefined) {
        action.run();
      } else {
        const begin = this.host.now();
        action.run();
        recordPart(trace, this.id, action.index, PART.whole, begin, this.host.now());
      }
    }
  }

  /** Runs the body of the loop with this step number once more. */
  private runIteration(index: number, iteration: number, actions: readonly Action[]): void {
    const { trace } = this;
    if (trace === undefined) {
      this.runList(actions);
      return;
    }
    const begin = this.host.now();
    this.runList(actions);
    recordPart(trace, this.id, index, iteration, begin, this.host.now());
  }

  private prepareList(steps: readonly Step[]): Action[] {
    return steps.map((step, i) => {
      const index = this.numSteps++;
      const action = this.prepare(step, index, steps[i + 1]);
      return { index, run: this.host.wrap(index, this.withProgress(step, action)) };
    });
  }

  /** The action of a step that computes, followed by a look at messages that are on their way. */
  private withProgress(step: Step, action: () => void): () => void {
    const { progress } = this.host;
    if (progress === undefined || !COMPUTES.has(step.op)) return action;
    return () => {
      action();
      progress();
    };
  }

  /** @param next the step that comes after it */
  private prepare(step: Step, index: number, next: Step | undefined): () => void {
    switch (step.op) {
      case "callback":
        return this.prepareCallback(step);
      case "loop":
        return this.prepareLoop(step, index);
      case "while":
        return this.prepareWhile(step, index);
      case "cond":
        return this.prepareCond(step);
      case "start": {
        const { spec, collective } = at(this.host.collectives, step.collective);
        return this.steps.prepareStart(spec, (source, target, tables) =>
          collective.start(source, target, tables),
        );
      }
      case "done":
        return this.prepareDone(step, next);
      default:
        return this.steps.prepare(step);
    }
  }

  /** The last of several collectives that end one after the other settles all of them. */
  private prepareDone(step: DoneStep, next: Step | undefined): () => void {
    const { collective } = at(this.host.collectives, step.collective);
    this.unsettled.push(collective);
    if (next?.op === "done") return () => collective.work();
    const all = this.unsettled.splice(0);
    return () => {
      collective.work();
      for (const one of all) one.settle();
    };
  }

  private prepareCallback(step: CallbackStep): () => void {
    if (!at(step.calls, this.host.position)) return this.steps.prepareNoCall(step);
    const call = this.host.prepareCall(step);
    const addressOf = (place: SlotAddress) => this.steps.address(place);
    return () => call(addressOf);
  }

  private prepareLoop({ count, sets, body, advances, swaps }: LoopStep, index: number): () => void {
    const { steps } = this;
    const actions = this.prepareList(body);
    return () => {
      steps.set(sets);
      for (let i = 0; i < count; i++) {
        this.runIteration(index, i, actions);
        steps.advance(advances);
        steps.swap(swaps);
      }
    };
  }

  private prepareWhile({ sets, condition, predicate, body, swaps }: WhileStep, index: number): () => void {
    const { steps } = this;
    const conditionActions = this.prepareList(condition);
    const actions = this.prepareList(body);
    return () => {
      steps.set(sets);
      if (this.depth++ === 0) this.countLoop();
      const look = this.host.limitLoop?.();
      for (let i = 0; ; i++) {
        look?.();
        this.runList(conditionActions);
        if (!steps.isTrue(predicate)) break;
        this.runIteration(index, i, actions);
        steps.swap(swaps);
      }
      if (--this.depth === 0) this.countLoop();
    };
  }

  /** Tells that an outermost loop without a fixed end begins or ends. */
  private countLoop(): void {
    const { words, loops } = this.host.status;
    words[loops] = (words[loops] ?? 0) + 1;
  }

  private prepareCond({ index, branches }: CondStep): () => void {
    const lists = branches.map((branch) => this.prepareList(branch));
    return () => this.runList(at(lists, this.steps.branch(index, lists.length)));
  }
}
