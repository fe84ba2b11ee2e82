import type { CallbackStep, Step } from "../../compiler/steps.js";
import { at } from "../../ir/shape.js";
import type { Meeting } from "../collectives/meeting.js";
import { DesyncError, type DevicePosition } from "../errors.js";
import type { LimitLoop } from "../loopLimit.js";
import { type ActionHost, StepActions } from "./stepActions.js";

/** What devices that take turns work with. */
export interface TurnsHost {
  /** For every position of the mesh what its steps compute with. */
  readonly devices: readonly ActionHost[];
  readonly meetings: readonly Meeting[];
  /**
   * Calls a host callback for the device at a position; its operands and results lie at these addresses. A promise
   * where that takes longer.
   */
  call(step: CallbackStep, addresses: readonly number[], position: number): Promise<void> | undefined;
  readonly limitLoop: LimitLoop;
  /** What a collective is in the user's program, for messages. */
  describe(meeting: Meeting): Pick<DevicePosition, "what" | "source">;
}

/** Why a device cannot continue yet: others have not come to a collective, or the host has not answered a call. */
type Wait = { readonly meeting: Meeting } | { readonly answer: Promise<void> };

/** The steps of one device, which stop wherever it has to wait. */
type Steps = () => Generator<Wait, void>;

/** How far a device is in a run. */
interface Progress {
  readonly position: number;
  readonly steps: Generator<Wait, void>;
  wait: Wait | undefined;
  /** How many collectives it has passed. */
  sequence: number;
}

/**
 * Runs the step lists of several devices in one thread: each device runs up to its next collective, and when all
 * members of a group are there, the collective happens and they go on.
 */
export class Turns {
  /** The position whose turn it is, or was last. */
  position = 0;
  private readonly devices: readonly Steps[];
  private run = 0;

  constructor(
    private readonly name: string,
    steps: readonly Step[],
    private readonly host: TurnsHost,
  ) {
    this.devices = host.devices.map((device) => new DeviceSteps(device, host).prepare(steps));
  }

  /** Runs the program once; a promise only if host callbacks take longer. The address tables are filled. */
  start(): Promise<void> | undefined {
    this.run++;
    const devices = this.devices.map(
      (steps, position): Progress => ({ position, steps: steps(), wait: undefined, sequence: 0 }),
    );
    for (const device of devices) this.advance(device);
    return this.continue(devices);
  }

  private continue(devices: readonly Progress[]): Promise<void> | undefined {
    while (devices.some((device) => this.meet(device, devices))) {}
    const waiting = devices.filter(({ wait }) => wait !== undefined);
    if (waiting.length === 0) return undefined;
    const calling = waiting.filter(({ wait }) => wait && "answer" in wait);
    if (calling.length === 0) throw this.diverged(devices);
    return this.afterCalls(calling, devices);
  }

  private async afterCalls(calling: readonly Progress[], devices: readonly Progress[]): Promise<void> {
    // Also after one has failed: what the others answer is written to where the run computes.
    const answers = calling.map(({ wait }) => (wait && "answer" in wait ? wait.answer : undefined));
    const outcomes = await Promise.allSettled(answers);
    for (const [i, outcome] of outcomes.entries()) {
      if (outcome.status === "fulfilled") continue;
      this.position = at(calling, i).position;
      throw outcome.reason;
    }
    for (const device of calling) this.advance(device);
    await this.continue(devices);
  }

  /** Lets the collective happen that a device waits for, if all members are there; returns whether they were. */
  private meet({ wait, position }: Progress, devices: readonly Progress[]): boolean {
    if (wait === undefined || !("meeting" in wait)) return false;
    const { meeting } = wait;
    const group = meeting.groupOf(position);
    const members = group.map((member) => at(devices, member));
    if (!members.every(({ wait: other }) => other && "meeting" in other && other.meeting === meeting))
      return false;
    this.position = position;
    meeting.work(group);
    for (const member of members) {
      member.sequence++;
      this.advance(member);
    }
    return true;
  }

  /** Lets a device run until it has to wait. */
  private advance(device: Progress): void {
    this.position = device.position;
    const { done, value } = device.steps.next();
    device.wait = done ? undefined : value;
  }

  private diverged(devices: readonly Progress[]): DesyncError {
    const positions = devices.map(({ position, wait, sequence }) => {
      const what =
        wait && "meeting" in wait ? this.host.describe(wait.meeting) : { what: "has ended the run" };
      return { device: position, run: this.run, sequence: sequence + (wait ? 1 : 0), ...what };
    });
    return new DesyncError(this.name, positions);
  }
}

/** Makes the step lists of one device ready. */
class DeviceSteps {
  private readonly actions: StepActions;

  constructor(
    private readonly device: ActionHost,
    private readonly host: TurnsHost,
  ) {
    this.actions = new StepActions(device);
  }

  prepare(steps: readonly Step[]): Steps {
    const prepared = steps.map((step) => this.prepareStep(step));
    return function* () {
      for (const step of prepared) {
        const waits = step();
        if (waits) yield* waits;
      }
    };
  }

  /** A step as a function that runs it, or returns what is left of it where it may have to wait. */
  private prepareStep(step: Step): () => Generator<Wait, void> | undefined {
    const { actions, host } = this;
    switch (step.op) {
      case "start": {
        const meeting = at(host.meetings, step.collective);
        const { position } = this.device;
        const start = actions.prepareStart(meeting.spec, (source, target, tables) =>
          meeting.start(position, source, target, tables),
        );
        return done(start);
      }
      case "done": {
        const wait = { meeting: at(host.meetings, step.collective) };
        return function* () {
          yield wait;
        };
      }
      case "callback": {
        if (!at(step.calls, this.device.position)) return done(actions.prepareNoCall(step));
        const { position } = this.device;
        return function* () {
          const addresses = step.places.map((place) => actions.address(place));
          const answer = host.call(step, addresses, position);
          if (answer) yield { answer };
        };
      }
      case "loop": {
        const body = this.prepare(step.body);
        return function* () {
          actions.set(step.sets);
          for (let i = 0; i < step.count; i++) {
            yield* body();
            actions.advance(step.advances);
            actions.swap(step.swaps);
          }
        };
      }
      case "while": {
        const [condition, body] = [this.prepare(step.condition), this.prepare(step.body)];
        return function* () {
          actions.set(step.sets);
          const look = host.limitLoop();
          for (;;) {
            look();
            yield* condition();
            if (!actions.isTrue(step.predicate)) break;
            yield* body();
            actions.swap(step.swaps);
          }
        };
      }
      case "cond": {
        const branches = step.branches.map((branch) => this.prepare(branch));
        return () => at(branches, actions.branch(step.index, branches.length))();
      }
      default:
        return done(actions.prepare(step));
    }
  }
}

/** A step that never waits. */
function done(action: () => void): () => undefined {
  return () => {
    action();
    return undefined;
  };
}
