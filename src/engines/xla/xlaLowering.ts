import type { CompileOptions } from "../../ir/engine.js";
import { reasonOf } from "../../ir/errors.js";
import type { Precision } from "../../ir/ops.js";
import type { Program } from "../../ir/program.js";
import { at } from "../../ir/shape.js";
import { OutOfMemoryError } from "../errors.js";
import { locateError } from "./errors.js";
import { Pending } from "./pending.js";
import { lowerToStableHlo } from "./stablehlo/lower.js";
import { float8Flags, gpuFlags, noGraphFlags, type Unrolling, unrolledFlags } from "./stablehlo/unroll.js";
import type { FusedKernel } from "./stablehlo/writer.js";
import { SteadyProgram, smallMovingParts } from "./steadyProgram.js";
import type { XlaClient, XlaProgram } from "./xlaClient.js";

/** How programs are written for the devices. */
export interface XlaLowering {
  /** Which of the devices' kernels to use; all by default. */
  readonly kernels?: readonly FusedKernel[];
  /** Precision of float32 products that do not specify one; `highest` by default. */
  readonly precision?: Precision;
  /** Which loops to unroll; none by default. */
  readonly unrolling?: Unrolling | undefined;
}

/** XLA settings for a module. */
type Flags = Parameters<XlaClient<unknown>["compile"]>[2];

/** A way of lowering programs. */
interface Form {
  readonly kernels: readonly FusedKernel[];
  readonly unrolling: Unrolling | undefined;
}

/** Maximum number of concurrent compilations: each occupies a thread of the shared thread pool. */
const MAX_COMPILES = 2;

/** Lowers and compiles programs in the fastest way that works on this machine. */
export class XlaBuilder<A> {
  /** The ways of lowering programs, fastest first, without those that fail to compile on this machine. */
  private forms: readonly Form[];
  private readonly precision: Precision;
  private readonly compiling: Promise<unknown>[] = [];
  private readonly builds = new Pending();

  constructor(
    private readonly client: XlaClient<A>,
    { kernels = client.platform.kernels, unrolling, precision = "highest" }: XlaLowering,
  ) {
    const plain = { kernels: [], unrolling: undefined };
    this.forms = [{ kernels, unrolling }, { kernels, unrolling: undefined }, plain];
    this.precision = precision;
  }

  /** Whether programs use a kernel of the devices. */
  fuses(kernel: FusedKernel): boolean {
    return this.forms[0]?.kernels.includes(kernel) ?? false;
  }

  /**
   * Compiles a program. If a way of lowering fails to compile on this machine, this and all later programs use a
   * plainer one.
   */
  build(program: Program, options: CompileOptions): Promise<XlaProgram<A>> {
    return this.builds.add(this.compile(program, options));
  }

  /** Settles when no compilation is in progress. */
  async settled(): Promise<void> {
    await this.builds.settled();
  }

  private async compile(program: Program, options: CompileOptions): Promise<XlaProgram<A>> {
    const { devices, name = "program" } = options;
    const { forms, precision } = this;
    const failures: unknown[] = [];
    let previous: string | undefined;
    for (const form of forms) {
      const lower = (overwritesAll: boolean) =>
        lowerToStableHlo(program, { ...options, ...form, precision, overwritesAll });
      const plain = lower(false);
      if (plain.text === previous) continue;
      previous = plain.text;
      const { isUnrolled, hasFloat8 } = plain;
      const moving =
        isUnrolled && devices.length === 1 ? smallMovingParts(program, options.donated ?? []) : undefined;
      const { text, origins } = moving ? lower(true) : plain;
      try {
        const own = {
          ...(isUnrolled && unrolledFlags),
          ...(isUnrolled && !moving && noGraphFlags),
          ...(hasFloat8 && float8Flags),
        };
        const flags = form.unrolling ? { ...gpuFlags, ...own } : {};
        const compileWith = (flags: Flags) => (text: string) =>
          this.limited(() => this.client.compile(text, devices, flags));
        const compiled = moving
          ? await SteadyProgram.compile(this.client, at(devices, 0), moving, text, {
              main: compileWith(flags),
              copy: compileWith({ ...gpuFlags, ...noGraphFlags }),
            })
          : await compileWith(flags)(text);
        if (failures.length > 0) this.giveUp(form, failures[0]);
        return compiled;
      } catch (error) {
        failures.push(locateError(error, name, origins));
        if (error instanceof OutOfMemoryError) break;
      }
    }
    throw failures[0];
  }

  /** Lowers all programs in a plainer way from now on. */
  private giveUp(form: Form, reason: unknown): void {
    const [first] = this.forms;
    const index = this.forms.indexOf(form);
    if (first === undefined || index <= 0) return;
    this.forms = this.forms.slice(index);
    const what =
      first.kernels.length > form.kernels.length
        ? "the devices' attention kernel does not compile here, so products and a softmax are used"
        : "unrolled loops do not compile here, so they stay loops";
    process.emitWarning(`${what}: ${reasonOf(reason)}`);
  }

  /** Starts a compilation if fewer than the maximum are in progress. */
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
