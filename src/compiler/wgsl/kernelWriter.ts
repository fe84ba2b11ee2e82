import { byteSize } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { at, range, rowMajorStrides } from "../../ir/shape.js";
import type {
  InputPlan,
  LoopPlan,
  LoopTerm,
  OutputPlan,
  SectionPlan,
  Store,
  Stream,
} from "../kernel/loopPlan.js";
import { combine, type ShaderRegister, WgslWriter, writeProgram } from "./registers.js";
import { ShaderArguments } from "./shaderMemory.js";
import type { ShaderSlabs } from "./shaderSlabs.js";

/** What the shader of a kernel depends on besides its plan. */
export interface KernelSetting {
  /** Whether the GPU is a program on the CPU. */
  readonly isSoftware: boolean;
  /** Whether each argument begins at a multiple of 16 bytes. */
  readonly aligned: readonly boolean[];
  /** Neighbouring threads that can pass each other values without shared memory, if they can. */
  readonly subgroupSize?: number | undefined;
}

/** Elements of a vector in memory. */
export const WIDTH = 4;

export const GROUP_BUILTINS = ["workgroup_id", "num_workgroups", "local_invocation_index"];

/** What writes results. */
type Stores = (() => void)[];

/** What the shaders of all kernels have in common. */
export abstract class KernelWriter {
  protected readonly args: ShaderArguments;
  /** The values of nodes that belong to a row, or to the whole kernel. */
  protected readonly kept = new Map<number, ShaderRegister>();
  protected readonly last: number;
  /** What the names of counters end with, where several points are computed side by side. */
  protected suffix = "";
  /** Whether memory is read and written four elements at a time where these are neighbours. */
  protected readonly inVectors: boolean;
  /** Which element of a vector is computed. */
  protected lane = 0;

  /**
   * @param wantsVectors whether the kernel gains by vectors where it can have them
   * @param w the shader that it is a part of, unless it is all of it
   */
  constructor(
    protected readonly plan: LoopPlan,
    slabs: ShaderSlabs,
    protected readonly setting: KernelSetting,
    wantsVectors: boolean,
    protected readonly w = new WgslWriter(),
  ) {
    const stored = plan.sections.flatMap(({ outputs }) =>
      outputs.flatMap((output) => (output.kind === "store" ? [output.stream.arg] : [])),
    );
    this.last = plan.dims.length - 1;
    this.inVectors = wantsVectors && !setting.isSoftware && this.hasVectors(stored);
    this.args = new ShaderArguments(plan.args, slabs, stored, this.inVectors);
  }

  /** Whether every inner store writes whole vectors. */
  private hasVectors(stored: readonly number[]): boolean {
    const { dims, sections, args } = this.plan;
    const inner = sections.filter(({ isRow }) => !isRow);
    const stores = inner.flatMap(({ outputs }) =>
      outputs.filter((output): output is Store => output.kind === "store"),
    );
    const reads = inner.flatMap(({ inputs }) => inputs);
    return (
      (dims[this.last] ?? 1) % WIDTH === 0 &&
      stored.every((arg) => byteSize(at(args, arg)) >= 4) &&
      stores.every(({ stream }) => stream.index === undefined && this.isVector(stream)) &&
      (stores.length > 0 || reads.some((input) => this.isVector(input)))
    );
  }

  /** Whether four neighbouring elements are a vector in memory. */
  private isVector(plan: InputPlan): boolean {
    if (plan.kind === "iota") return false;
    const { arg, step, terms, index } = plan;
    return (
      step === 1 &&
      byteSize(at(this.plan.args, arg)) === 4 &&
      at(this.setting.aligned, arg) &&
      terms.every(({ factor }) => factor % WIDTH === 0) &&
      (index === undefined || (index.stream.step === 0 && index.factor % WIDTH === 0))
    );
  }

  /** The variable that counts along a dim. */
  protected counter(dim: number): string {
    const name = `i${dim}${this.suffix}`;
    return dim === this.last && this.lane > 0 ? `(${name} + ${this.lane}u)` : name;
  }

  /** The counters of some dims, from a number that counts their points in row-major order. */
  protected counters(dims: readonly number[], number: string): void {
    const strides = rowMajorStrides(dims.map((d) => at(this.plan.dims, d)));
    dims.forEach((d, i) => {
      const whole = at(strides, i) === 1 ? number : `(${number}) / ${at(strides, i)}u`;
      this.w.line(`let ${this.counter(d)} = ${i === 0 ? whole : `(${whole}) % ${at(this.plan.dims, d)}u`};`);
    });
  }

  /** The program of a section on one element; `output` receives its results. */
  protected compute(section: SectionPlan, output: (plan: OutputPlan, value: ShaderRegister) => void): void {
    const results = writeProgram(this.w, section.program, {
      input: (slot) => this.input(at(section.inputs, slot), section.isRow),
      // A copy: other forms of the value that are made here cannot be seen elsewhere.
      uniform: (slot) => ({ ...this.uniform(at(section.uniforms, slot)), isUniform: true }),
    });
    section.outputs.forEach((plan, i) => {
      output(plan, at(results, i));
    });
  }

  /**
   * The program of a section on four neighbouring elements, of which the counters are those of the first; gives what
   * writes its results. What several elements or sections compute in the same way is computed once.
   *
   * @param output receives the other results
   */
  protected computeVector(
    section: SectionPlan,
    output: (plan: OutputPlan, value: ShaderRegister, lane: number) => void,
  ): Stores {
    const { w } = this;
    const stored = new Map<Store, string[]>();
    w.reuses = true;
    for (const lane of range(WIDTH)) {
      this.lane = lane;
      this.compute(section, (plan, value) => {
        if (plan.kind !== "store") output(plan, value, lane);
        else stored.set(plan, [...(stored.get(plan) ?? []), w.bits(value)]);
      });
    }
    this.lane = 0;
    w.reuses = false;
    const { suffix } = this;
    return [...stored].map(([{ stream }, words]) => () => {
      this.suffix = suffix;
      w.line(
        this.args.storeVector(stream.arg, this.elementOf(stream, false), `vec4<u32>(${words.join(", ")})`),
      );
    });
  }

  private uniform(node: number): ShaderRegister {
    const register = this.kept.get(node);
    if (register === undefined)
      throw new InternalError("[wgsl] a value of the row is read before it is known");
    return register;
  }

  protected input(plan: InputPlan, isRow: boolean): ShaderRegister {
    const { w, lane } = this;
    if (plan.kind === "iota") return { bits: w.let(this.element(plan.terms, plan.step, isRow)) };
    if (!w.reuses || isRow || !this.isVector(plan))
      return this.args.load(w, plan.arg, this.elementOf(plan, isRow));
    this.lane = 0;
    const vector = w.let(this.args.vector(plan.arg, this.elementOf(plan, false)));
    this.lane = lane;
    return { bits: w.let(`${vector}[${lane}]`) };
  }

  protected store(
    stream: Stream,
    op: Parameters<typeof combine>[1] | undefined,
    value: ShaderRegister,
    isRow: boolean,
  ) {
    const { w } = this;
    if (stream.index === undefined) {
      if (op !== undefined) throw new InternalError("[wgsl] a store that combines needs an index");
      this.args.store(w, stream.arg, this.elementOf(stream, isRow), value);
      return;
    }
    const { limit, factor, stream: from } = stream.index;
    const index = w.bits(this.args.load(w, from.arg, this.elementOf(from, isRow)));
    w.block(`if (${index} < ${limit}u)`, () => {
      const element = w.let(`${this.element(stream.terms, stream.step, isRow)} + ${index} * ${word(factor)}`);
      const copy = { ...value };
      const stored = op ? combine(w, op, this.args.load(w, stream.arg, element), copy) : copy;
      this.args.store(w, stream.arg, element, stored);
    });
  }

  /** The number of a stream's element. */
  private elementOf({ terms, step, index }: Stream, isRow: boolean): string {
    const element = this.element(terms, step, isRow);
    if (index === undefined) return element;
    const { stream, factor, limit } = index;
    const read = this.w.int(this.args.load(this.w, stream.arg, this.elementOf(stream, isRow)));
    return `${element} + u32(clamp(${read}, 0, ${limit - 1})) * ${word(factor)}`;
  }

  private element(terms: readonly LoopTerm[], step: number, isRow: boolean): string {
    const all = isRow || step === 0 ? terms : [...terms, { dim: this.last, factor: step }];
    const parts = all
      .filter(({ dim }) => this.plan.dims[dim] !== 1)
      .map(({ dim, factor }) => this.counter(dim) + (factor === 1 ? "" : ` * ${word(factor)}`));
    return parts.length === 0 ? "0u" : `(${parts.join(" + ")})`;
  }
}

/** An integer as an unsigned word: addresses are computed modulo 2^32, so negative distances work. */
function word(value: number): string {
  return `${value >>> 0}u`;
}

/** What a function of the library counts as: drivers write it out wherever it is called. */
const FUNCTION_LENGTH = 32;

/** Roughly how many instructions all sections of a plan have, which decides how long drivers compile them. */
export function programLength({ sections }: LoopPlan): number {
  const all = sections.flatMap(({ program }) => program.instructions);
  const called = all.filter(
    (instruction) =>
      instruction.kind === "host" ||
      (instruction.kind === "vector" && (instruction.op === "f32x4.div" || instruction.op === "f32x4.sqrt")),
  );
  return all.length + FUNCTION_LENGTH * called.length;
}
