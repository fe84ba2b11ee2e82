import type { CompileOptions } from "../../ir/engine.js";
import type { Precision } from "../../ir/ops.js";
import type { Program } from "../../ir/program.js";
import { OutOfMemoryError } from "../errors.js";
import type { XlaClient, XlaProgram } from "./client.js";
import { locateError } from "./errors.js";
import { Pending } from "./pending.js";
import { lowerToStableHlo } from "./stablehlo/lower.js";
import { type WriteOut, writtenOutFlags } from "./stablehlo/writeOut.js";
import type { FusedKernel } from "./stablehlo/writer.js";

/** How programs are written for the devices. */
export interface Lowering {
  /** The kernels to use of those that the devices have; all by default. */
  readonly kernels?: readonly FusedKernel[];
  /** That of products of float32 which do not say it themselves; `highest` by default. */
  readonly precision?: Precision;
  /** Which loops are written out; none by default. */
  readonly writeOut?: WriteOut | undefined;
}

/** A way to write programs. */
interface Form {
  readonly kernels: readonly FusedKernel[];
  readonly writeOut: WriteOut | undefined;
}

/** So many compilations run at the same time: each holds a thread of the pool that everything shares. */
const MAX_COMPILES = 2;

/** Has programs written and compiled, in the fastest way that works on this machine. */
export class Builder<A> {
  /** The ways to write programs, the fastest first, without those that do not compile on this machine. */
  private forms: readonly Form[];
  private readonly precision: Precision;
  private readonly compiling: Promise<unknown>[] = [];
  private readonly builds = new Pending();

  constructor(
    private readonly client: XlaClient<A>,
    { kernels = client.platform.kernels, writeOut, precision = "highest" }: Lowering,
  ) {
    const plain = { kernels: [], writeOut: undefined };
    this.forms = [{ kernels, writeOut }, { kernels, writeOut: undefined }, plain];
    this.precision = precision;
  }

  /** Whether programs use a kernel of the devices. */
  fuses(kernel: FusedKernel): boolean {
    return this.forms[0]?.kernels.includes(kernel) ?? false;
  }

  /** Has a program compiled; what does not compile on this machine is written in a plainer way, from then on. */
  build(program: Program, options: CompileOptions): Promise<XlaProgram<A>> {
    return this.builds.add(this.compile(program, options));
  }

  /** Settles when nothing is being built any more. */
  async settled(): Promise<void> {
    await this.builds.settled();
  }

  private async compile(program: Program, options: CompileOptions): Promise<XlaProgram<A>> {
    const { devices, name = "program" } = options;
    const { forms, precision } = this;
    const failures: unknown[] = [];
    let previous: string | undefined;
    for (const form of forms) {
      const { text, origins, isWrittenOut } = lowerToStableHlo(program, { ...options, ...form, precision });
      if (text === previous) continue;
      previous = text;
      try {
        const flags = isWrittenOut ? writtenOutFlags : {};
        const compiled = await this.limited(() => this.client.compile(text, devices, flags));
        if (failures.length > 0) this.giveUp(form, failures[0]);
        return compiled;
      } catch (error) {
        failures.push(locateError(error, name, origins));
        if (error instanceof OutOfMemoryError) break;
      }
    }
    throw failures[0];
  }

  /** Writes all programs in a plainer way from now on. */
  private giveUp(form: Form, reason: unknown): void {
    const [first] = this.forms;
    const index = this.forms.indexOf(form);
    if (first === undefined || index <= 0) return;
    this.forms = this.forms.slice(index);
    const what =
      first.kernels.length > form.kernels.length
        ? "the devices' own attention does not compile here, so products and a softmax are used"
        : "loops that are written out do not compile here, so they stay loops";
    process.emitWarning(`${what}: ${reason instanceof Error ? reason.message : String(reason)}`);
  }

  /** Starts a compilation when fewer than the most are on their way. */
  private async limited<T>(compile: () => Promise<T>): Promise<T> {
    while (this.compiling.length >= MAX_COMPILES) {
      await Promise.race(this.compiling.map((one) => one.catch(() => {})));
    }
    const started = compile();
    this.compiling.push(started);
    const forget = () => void this.compiling.splice(this.compiling.indexOf(started), 1);
    started.then(forget, forget);
    return started;
  }
}
