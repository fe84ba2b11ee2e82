import type { CallbackStep, CompiledProgram } from "../../compiler/steps.js";
import { InternalError, ValueError } from "../../ir/errors.js";
import { lazily } from "../../ir/identity.js";
import { at } from "../../ir/shape.js";
import { failureOf } from "../../platform/failures.js";
import { COLLECTIVE_SCRATCH_BYTES, type MoveHost } from "../collectives/collectiveWork.js";
import { Meeting } from "../collectives/meeting.js";
import { instantiateMoveKernels } from "../collectives/moveKernels.js";
import { moveModuleFor } from "../collectives/moveModule.js";
import { sharedPeers } from "../collectives/peers.js";
import type { ActionHost } from "../devices/stepActions.js";
import { Turns } from "../devices/turns.js";
import { DesyncError, OutOfMemoryError } from "../errors.js";
import { collectiveText } from "../flight/fingerprint.js";
import { InlineProgram } from "../inline/compiledProgram.js";
import { InlineMachine } from "../inline/inlineMachine.js";
import { InlineMemory } from "../inline/inlineMemory.js";
import type { MovableTensor } from "../localEngine.js";
import { limitLoops } from "../loopLimit.js";
import { chooseGemm } from "../products/gemmChoice.js";
import type { News, Order, Setup } from "./orders.js";

/** A program on its devices. */
interface Loaded {
  readonly program: InlineProgram<Promise<void> | undefined>;
  readonly devices: readonly number[];
}

/** What a run waits for after it has called the host. */
interface Call {
  readonly resolve: (results: readonly Uint8Array[] | undefined) => void;
}

/** All devices of an engine, in the worker: follows its orders one after the other. */
export class Devices {
  private readonly machine: InlineMachine<Promise<void> | undefined>;
  private readonly programs = new Map<number, Loaded>();
  private readonly tensors = new Map<number, MovableTensor>();
  private readonly waiting: Order[] = [];
  /** Calls of the host that are not answered yet; answers come in their order. */
  private readonly calls: Call[] = [];
  /** What runs, or ran last. */
  private turns: Turns | undefined;
  private running = 0;
  private isBusy = false;
  private hasFailed = false;

  constructor(
    private readonly setup: Setup,
    private readonly tell: (news: News) => void,
  ) {
    const memory = InlineMemory.reserve();
    if (memory === undefined)
      throw new OutOfMemoryError("the system grants a worker less than 64 MiB of address space");
    const gemm = lazily(() => chooseGemm(undefined));
    this.machine = new InlineMachine(memory, gemm, (compiled, devices) => this.prepare(compiled, devices));
  }

  /** Follows an order, or notes it while a run waits for the host. */
  take(order: Order): void {
    if (order.kind === "answer") this.calls.shift()?.resolve(order.results);
    else {
      this.waiting.push(order);
      if (!this.isBusy) void this.followAll();
    }
  }

  private async followAll(): Promise<void> {
    this.isBusy = true;
    for (let order = this.waiting.shift(); order !== undefined; order = this.waiting.shift()) {
      const later = this.follow(order);
      if (later) await later;
    }
    this.isBusy = false;
  }

  private follow(order: Order): Promise<void> | undefined {
    const { tensors, programs, machine } = this;
    const { memory } = machine;
    switch (order.kind) {
      case "load":
        this.attempt(order.program, () => {
          const program = InlineProgram.load(order.compiled, machine, order.devices.length);
          if (program === undefined) throw new OutOfMemoryError("no memory for its constants");
          programs.set(order.program, { program, devices: order.devices });
        });
        return undefined;
      case "unload":
        programs.get(order.program)?.program.release();
        programs.delete(order.program);
        return undefined;
      case "upload":
        tensors.set(order.buffer, { type: order.type, data: order.data });
        return undefined;
      case "copy": {
        const source = tensors.get(order.from);
        const data = source && (memory.moveIn(source.type, source.data) ?? source.data.slice());
        if (source && data) tensors.set(order.to, { type: source.type, data });
        return undefined;
      }
      case "release":
        for (const buffer of order.buffers) {
          const tensor = tensors.get(buffer);
          if (tensor) memory.free(tensor.data);
          tensors.delete(buffer);
        }
        return undefined;
      case "run":
        return this.run(order);
      case "read": {
        const data = order.buffer === undefined ? undefined : tensors.get(order.buffer)?.data.slice();
        this.tell({ kind: "read", request: order.request, data });
        return undefined;
      }
      case "answer":
        throw new InternalError("[oneThread] nobody waits for an answer");
    }
  }

  private run(order: Extract<Order, { kind: "run" }>): Promise<void> | undefined {
    return this.attempt(order.program, () => {
      const loaded = this.programs.get(order.program);
      if (loaded === undefined) throw new InternalError(`[oneThread] no program ${order.program}`);
      const { program } = loaded;
      this.running = order.program;
      const inputs = order.inputs.map((row) => row.map((buffer) => this.tensor(buffer)));
      const taken = program.begin(inputs);
      if (taken === undefined) throw new OutOfMemoryError("no memory for its values");
      const finish = () => {
        program.finish(taken).forEach((row, o) => {
          row.forEach((tensor, position) => {
            this.tensors.set(at(at(order.outputs, o), position), tensor);
          });
        });
      };
      const giveUp = (error: unknown): never => {
        program.giveUp(taken);
        throw error;
      };
      try {
        const later = program.steps();
        if (later) return later.then(finish, giveUp);
      } catch (error) {
        giveUp(error);
      }
      finish();
      return undefined;
    });
  }

  /** The steps of a program: its devices take turns. */
  private prepare(
    compiled: CompiledProgram,
    devices: readonly ActionHost[],
  ): () => Promise<void> | undefined {
    const host = this.moves();
    const turns = new Turns(compiled.name, compiled.steps, {
      devices,
      meetings: compiled.collectives.map((spec) => new Meeting(spec, host)),
      call: (step, addresses, position) => this.call(step, addresses, position),
      limitLoop: limitLoops(this.setup.deadlineMs),
      describe: ({ spec }) => ({
        what: collectiveText(spec),
        source: compiled.infos[spec.info]?.source?.text,
      }),
    });
    return () => {
      this.turns = turns;
      return turns.start();
    };
  }

  /** How collectives move elements. */
  private readonly moves = lazily((): MoveHost => {
    const { memory } = this.machine;
    const kernels = instantiateMoveKernels(moveModuleFor("i32"), memory.memory);
    const scratch = memory.allocate(COLLECTIVE_SCRATCH_BYTES);
    if (scratch === undefined) throw new OutOfMemoryError("no memory for collectives");
    return { kernels, memory: memory.memory, peers: sharedPeers(kernels), scratch: scratch.address };
  });

  /** Calls the host and waits for its results. */
  private async call(
    { callback, places, numOperands }: CallbackStep,
    addresses: readonly number[],
    position: number,
  ): Promise<void> {
    const { bytes } = this.machine.memory;
    const operands = places.slice(0, numOperands).map((place, i) => {
      const copy = new Uint8Array(place.bytes);
      copy.set(bytes.subarray(at(addresses, i), at(addresses, i) + place.bytes));
      return copy;
    });
    this.tell({ kind: "call", program: this.running, position, callback, operands });
    const results = await new Promise<readonly Uint8Array[] | undefined>((resolve) => {
      this.calls.push({ resolve });
    });
    if (results === undefined) throw new ValueError("a host callback threw");
    results.forEach((result, i) => {
      bytes.set(result, at(addresses, numOperands + i));
    });
  }

  /** Does something for a program, and tells if it fails; nothing is done after a failure. */
  private attempt(
    program: number,
    action: () => Promise<void> | undefined | void,
  ): Promise<void> | undefined {
    if (this.hasFailed) return undefined;
    try {
      return action()?.catch((error) => this.fail(program, error)) ?? undefined;
    } catch (error) {
      this.fail(program, error);
      return undefined;
    }
  }

  private fail(program: number, error: unknown): void {
    this.hasFailed = true;
    const { devices } = this.programs.get(program) ?? { devices: [] };
    const at = (position: number) => devices[position] ?? 0;
    this.tell({
      kind: "failed",
      program,
      device: at(this.turns?.position ?? 0),
      failure: failureOf(error),
      positions:
        error instanceof DesyncError
          ? error.positions.map((one) => ({ ...one, device: at(one.device) }))
          : undefined,
      isOutOfMemory: error instanceof OutOfMemoryError,
    });
  }

  private tensor(buffer: number): MovableTensor {
    const found = this.tensors.get(buffer);
    if (found === undefined) throw new InternalError(`[oneThread] no buffer ${buffer}`);
    return found;
  }
}
