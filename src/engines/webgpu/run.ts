import { at } from "../../ir/shape.js";
import { DesyncError } from "../errors.js";
import type { LimitLoop } from "../loopLimit.js";
import type { MachineProgram } from "./gpuProgram.js";
import type { GpuTraces } from "./gpuTrace.js";
import { MachineRun, type RunBlocks, type Wait } from "./machineRun.js";

/** What a device is doing. */
interface Progress {
  readonly part: MachineRun;
  readonly steps: Generator<Wait, void, number>;
  wait: Wait | undefined;
  /** The collectives that it has passed. */
  sequence: number;
}

/**
 * Records one run of a program: the devices take turns, each up to its next collective. The host waits only for values
 * that decide which steps come next, for its own callbacks, and for what GPUs send each other, which passes through it.
 */
export class Run {
  private readonly parts: readonly MachineRun[];
  private readonly devices: readonly Progress[];
  private readonly program: MachineProgram;

  /** @param programs the program on each GPU; every position is one of theirs */
  constructor(
    programs: readonly MachineProgram[],
    blocks: readonly RunBlocks[],
    limitLoop: LimitLoop,
    private readonly runNumber: number,
    traces?: GpuTraces,
  ) {
    this.program = at(programs, 0);
    this.parts = programs.map(
      (program) => new MachineRun(program, blocks, limitLoop, traces?.get(program.machine)),
    );
    this.devices = blocks.map((_, position) => {
      const number = programs.findIndex(({ positions }) => positions.includes(position));
      const part = at(this.parts, number);
      const steps = part.steps(at(part.program.actions, position), position);
      return { part, steps, wait: undefined, sequence: 0 };
    });
  }

  /** Records and submits everything; a promise only where the host has to wait in between. */
  start(): Promise<void> | undefined {
    const compiling = this.parts.flatMap((part) => part.compile() ?? []);
    return compiling.length === 0 ? this.begin() : Promise.all(compiling).then(() => this.afterCompiling());
  }

  private async afterCompiling(): Promise<void> {
    for (const { machine } of this.parts) {
      await machine.settled();
      if (machine.failure) throw machine.failure;
    }
    await this.begin();
  }

  private begin(): Promise<void> | undefined {
    for (const part of this.parts) part.begin();
    for (const device of this.devices) this.advance(device, 0);
    return this.go();
  }

  private go(): Promise<void> | undefined {
    for (;;) {
      if (this.meet()) continue;
      const waiting = this.devices.filter(({ wait }) => wait !== undefined);
      if (waiting.length === 0) {
        for (const { machine } of this.parts) machine.submitSoon();
        return undefined;
      }
      const read = waiting.filter(({ wait }) => wait?.kind !== "collective");
      if (read.length === 0) throw this.diverged(waiting);
      return this.read(read);
    }
  }

  private advance(device: Progress, value: number): void {
    const { done, value: wait } = device.steps.next(value);
    device.wait = done ? undefined : wait;
  }

  /** Records collectives that all of their devices have reached; returns whether there were any. */
  private meet(): boolean {
    let met = false;
    this.devices.forEach(({ wait, part }, position) => {
      if (wait?.kind !== "collective") return;
      const { collective } = wait;
      const { groups } = at(this.program.program.compiled.collectives, collective);
      const group = groups.find((members) => members.includes(position)) ?? [];
      const all = group.map((member) => at(this.devices, member));
      const isMet = all.every(
        ({ wait: other }) => other?.kind === "collective" && other.collective === collective,
      );
      if (!isMet) return;
      met = true;
      for (const member of all) member.sequence++;
      if (all.every((member) => member.part === part)) {
        part.meet(collective, group);
        for (const member of all) this.advance(member, 0);
      } else {
        const done = async () => {};
        all.forEach((member, i) => {
          member.wait = { kind: "host", work: i === 0 ? () => this.exchange(collective, group) : done };
        });
      }
    });
    return met;
  }

  /** Runs a collective between GPUs. */
  private async exchange(collective: number, group: readonly number[]): Promise<void> {
    const parts = [...new Set(group.map((member) => at(this.devices, member).part))];
    const guests = parts.map((part) => part.guests(collective, group));
    const senders = new Set(guests.flat().map(({ position }) => position));
    // All sources are read before a target is written: it may be the memory of a source.
    const sent = await Promise.all(
      parts.map((part) => {
        const own = part.program.positions.filter((position) => senders.has(position));
        return part.sources(collective, own);
      }),
    );
    const bytes = new Map(sent.flat());
    parts.forEach((part, i) => {
      for (const guest of at(guests, i)) part.receive(guest, bytes.get(guest.position) ?? new Uint8Array(0));
      part.meet(collective, group);
    });
  }

  private diverged(waiting: readonly Progress[]): DesyncError {
    const positions = waiting.map((device) => ({
      device: at(this.program.devices, this.devices.indexOf(device)),
      run: this.runNumber,
      sequence: device.sequence,
      what:
        device.wait?.kind === "collective"
          ? at(this.program.program.compiled.collectives, device.wait.collective).kind
          : "the end of the program",
    }));
    return new DesyncError(this.program.program.compiled.name, positions);
  }

  /** Reads the values that devices wait for and lets the host do its part, then continues. */
  private async read(waiting: readonly Progress[]): Promise<void> {
    const values = new Map<Progress, number>();
    const readAll = this.parts.map(async (part) => {
      const slots = waiting.flatMap((device) =>
        device.part === part && device.wait?.kind === "value" ? [{ device, slot: device.wait.slot }] : [],
      );
      const read = await part.values(slots.map(({ slot }) => slot));
      slots.forEach(({ device }, i) => {
        values.set(device, at(read, i));
      });
    });
    await Promise.all(readAll);
    for (const { wait } of waiting) if (wait?.kind === "host") await wait.work();
    for (const device of waiting) this.advance(device, values.get(device) ?? 0);
    await this.go();
  }
}
