import { InternalError } from "../../ir/errors.js";
import { at, range, rowMajorStrides, sizeOf } from "../../ir/shape.js";
import type {
  InputPlan,
  LoopPlan,
  LoopTerm,
  OutputPlan,
  Reduce,
  SectionPlan,
  Stream,
} from "../kernel/loopPlan.js";
import { combine, constant, type ShaderRegister, WgslWriter, writeProgram } from "./registers.js";
import { ShaderArguments, shaderCode, type WgslShader } from "./shaderMemory.js";

/** What a plan has to know about the vectors of a GPU: a thread computes one element at a time. */
export const gpuTarget = { widths: [1], copies: () => 1 } as const;

/** Threads of a workgroup that reduces nothing, and how many points each of them computes. */
interface PointDivision {
  readonly threads: number;
  readonly points: number;
}

/** Instructions of a program that is written once for each point of a thread, so that their loads overlap. */
const SHORT_PROGRAM = 48;

/**
 * Few points are spread over as many workgroups as there can be; starting millions would take longer than their work.
 * Software adapters start threads for nothing, and their compiler does not end with a loop over points.
 */
function dividePoints(total: number, isSoftware: boolean): PointDivision {
  if (total < 2 ** 20 || isSoftware) return { threads: 64, points: 1 };
  return { threads: 256, points: 4 };
}

/**
 * Writes a kernel as a shader. Points that do not depend on each other are computed side by side: all of them where
 * nothing is reduced, otherwise rows, each by one or several threads that combine their results in shared memory.
 *
 * @param slabs the slab of each argument
 * @param isSoftware whether the GPU is a program on the CPU
 */
export function kernelShader(plan: LoopPlan, slabs: readonly number[], isSoftware: boolean): WgslShader {
  if (plan.fills.length > 0)
    throw new InternalError("[wgsl] a kernel of a GPU adds nothing up over its rows");
  const reduces = plan.sections.some(({ outputs }) => outputs.some(({ kind }) => kind === "reduce"));
  return reduces ? new RowShader(plan, slabs).write() : new PointShader(plan, slabs).write(isSoftware);
}

const GROUP_BUILTINS = ["workgroup_id", "num_workgroups", "local_invocation_index"];

/** What both kinds of shaders have in common. */
abstract class KernelShader {
  protected readonly w = new WgslWriter();
  protected readonly args: ShaderArguments;
  /** The values of nodes that belong to a row, or to the whole kernel. */
  protected readonly kept = new Map<number, ShaderRegister>();
  protected readonly last: number;
  /** What the names of counters end with, where several points are computed side by side. */
  protected suffix = "";

  constructor(
    protected readonly plan: LoopPlan,
    slabs: readonly number[],
  ) {
    const stored = plan.sections.flatMap(({ outputs }) =>
      outputs.flatMap((output) => (output.kind === "store" ? [output.stream.arg] : [])),
    );
    this.args = new ShaderArguments(plan.args, slabs, stored);
    this.last = plan.dims.length - 1;
  }

  /** The variable that counts along a dim. */
  protected counter(dim: number): string {
    return `i${dim}${this.suffix}`;
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
      uniform: (slot) => ({ ...this.uniform(at(section.uniforms, slot)) }),
    });
    section.outputs.forEach((plan, i) => {
      output(plan, at(results, i));
    });
  }

  private uniform(node: number): ShaderRegister {
    const register = this.kept.get(node);
    if (register === undefined)
      throw new InternalError("[wgsl] a value of the row is read before it is known");
    return register;
  }

  private input(plan: InputPlan, isRow: boolean): ShaderRegister {
    if (plan.kind === "iota") return { bits: this.w.let(this.element(plan.terms, plan.step, isRow)) };
    return this.args.load(this.w, plan.arg, this.elementOf(plan, isRow));
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

/** A kernel that reduces nothing: a thread for each point, or for each group of points that must run in order. */
class PointShader extends KernelShader {
  write(isSoftware: boolean): WgslShader {
    const { w, plan } = this;
    const ordered = this.orderedDims();
    const parallel = range(plan.dims.length).filter((d) => !ordered.includes(d));
    const total = sizeOf(parallel.map((d) => at(plan.dims, d)));
    const { threads, points } = dividePoints(total, isSoftware);
    this.args.open(w);
    const first = w.let(`(workgroup_id.x + workgroup_id.y * num_workgroups.x) * ${threads * points}u`);
    const shader = () => ({
      code: shaderCode(this.args.declarations(), w, threads, GROUP_BUILTINS),
      workgroups: Math.ceil(total / (threads * points)),
    });
    if (points > 1 && total % (threads * points) === 0 && this.isShort()) {
      // There may be more workgroups than it takes, to fill a grid.
      w.line(`if (${first} >= ${total}u) { return; }`);
      const stores: (() => void)[] = [];
      for (const part of range(points)) {
        this.suffix = `_${part}`;
        this.counters(parallel, w.let(`${first} + ${part * threads}u + local_invocation_index`));
        for (const section of plan.sections) stores.push(...this.section(section, parallel));
      }
      for (const store of stores) store();
      return shader();
    }
    const point = (id: string) => {
      w.line(`let id = ${id};`);
      w.line(`if (id >= ${total}u) { return; }`);
      this.counters(parallel, "id");
      this.inOrder(ordered, () => {
        for (const section of plan.sections) for (const store of this.section(section, parallel)) store();
      });
    };
    // Neighbouring threads compute neighbouring points.
    if (points === 1) point(`${first} + local_invocation_index`);
    else {
      w.block(`for (var part = 0u; part < ${points}u; part++)`, () =>
        point(`${first} + part * ${threads}u + local_invocation_index`),
      );
    }
    return shader();
  }

  /** Whether the program is so short that it may be written once for each point, all loads before all stores. */
  private isShort(): boolean {
    const { sections } = this.plan;
    const isIndexed = sections.some(({ outputs }) =>
      outputs.some((output) => output.kind === "store" && output.stream.index !== undefined),
    );
    const length = sections.reduce((sum, { program }) => sum + program.instructions.length, 0);
    return !isIndexed && length <= SHORT_PROGRAM;
  }

  private inOrder([dim, ...rest]: readonly number[], body: () => void): void {
    if (dim === undefined) body();
    else {
      const count = at(this.plan.dims, dim);
      const counter = this.counter(dim);
      this.w.block(`for (var ${counter} = 0u; ${counter} < ${count}u; ${counter}++)`, () =>
        this.inOrder(rest, body),
      );
    }
  }

  /** Dims along which an indexed store may write the same element again: they run one after the other. */
  private orderedDims(): number[] {
    const indexed = this.plan.sections.flatMap(({ outputs }) =>
      outputs.flatMap((output) => (output.kind === "store" && output.stream.index ? [output.stream] : [])),
    );
    return range(this.plan.dims.length).filter((d) =>
      indexed.some(({ terms, step }) => (d === this.last ? step === 0 : !terms.some(({ dim }) => dim === d))),
    );
  }

  /** Computes a section of a point; gives what writes its results. */
  private section(section: SectionPlan, parallel: readonly number[]): (() => void)[] {
    const { w, last, suffix } = this;
    const isFirst = this.plan.dims[last] !== 1 && parallel.includes(last);
    const stores: (() => void)[] = [];
    this.compute(section, (output, value) => {
      if (output.kind === "keep") this.kept.set(output.node, value);
      if (output.kind !== "store") return;
      w.bits(value);
      stores.push(() => {
        this.suffix = suffix;
        const store = () => this.store(output.stream, output.combine, { ...value }, section.isRow);
        if (section.isRow && isFirst) w.block(`if (${this.counter(last)} == 0u)`, store);
        else store();
      });
    });
    return stores;
  }
}

/** How the threads of a workgroup are divided between rows and the elements of each. */
interface Division {
  /** Rows of a workgroup, and threads of a row. */
  readonly rows: number;
  readonly lanes: number;
  /** Whether neighbouring threads have neighbouring rows, because these are neighbours in memory. */
  readonly byRows: boolean;
}

/** A kernel that reduces over the inner dims of each row. */
class RowShader extends KernelShader {
  private readonly division: Division;
  private readonly inner: readonly number[];
  private readonly rowDims: readonly number[];
  private readonly numRows: number;

  constructor(plan: LoopPlan, slabs: readonly number[]) {
    super(plan, slabs);
    const numRowDims = plan.loops.length;
    this.rowDims = range(numRowDims);
    this.inner = range(plan.dims.length).slice(numRowDims);
    this.numRows = sizeOf(plan.dims.slice(0, numRowDims));
    this.division = divideThreads(plan);
  }

  write(): WgslShader {
    const { w, plan, division } = this;
    const { rows, lanes, byRows } = division;
    const size = rows * lanes;
    const total = this.numRows;
    w.line("let group = workgroup_id.x + workgroup_id.y * num_workgroups.x;");
    const [row, lane] = byRows
      ? [`local_invocation_index % ${rows}u`, `local_invocation_index / ${rows}u`]
      : [`local_invocation_index / ${lanes}u`, `local_invocation_index % ${lanes}u`];
    w.line(`let x = ${row};`);
    w.line(`let y = ${lane};`);
    w.line(`let row = group * ${rows}u + x;`);
    w.line(`let isRow = row < ${total}u;`);
    w.line(`let number = select(0u, row, isRow);`);
    this.args.open(w);
    this.counters(this.rowDims, "number");
    for (const section of plan.sections) {
      if (section.isRow) this.row(section);
      else this.elements(section);
    }
    const shared = lanes > 1 ? `\nvar<workgroup> shared_words: array<u32, ${size}>;` : "";
    return {
      code: shaderCode(this.args.declarations() + shared, w, size, GROUP_BUILTINS),
      workgroups: Math.ceil(total / rows),
    };
  }

  private row(section: SectionPlan): void {
    const { w } = this;
    this.compute(section, (output, value) => {
      if (output.kind === "keep") this.kept.set(output.node, value);
      else if (output.kind === "store") {
        w.bits(value);
        w.block("if (isRow && y == 0u)", () => this.store(output.stream, output.combine, { ...value }, true));
      }
    });
  }

  private elements(section: SectionPlan): void {
    const { w, plan } = this;
    const reductions = section.outputs.filter((output): output is Reduce => output.kind === "reduce");
    const sums = new Map(reductions.map((output) => [output, w.name()]));
    for (const [{ identity }, name] of sums) w.line(`var ${name} = ${constant(identity[0]).bits};`);
    const count = sizeOf(this.inner.map((d) => at(plan.dims, d)));
    const index = w.name();
    const { lanes, rows } = this.division;
    // A loop whose length is known is unrolled by drivers, so that several elements are on their way at once.
    const isWhole = count % lanes === 0 && this.numRows % rows === 0;
    const head = isWhole
      ? `for (var step = 0u; step < ${count / lanes}u; step++)`
      : `for (var ${index} = select(${count}u, y, isRow); ${index} < ${count}u; ${index} += ${lanes}u)`;
    w.block(head, () => {
      if (isWhole) w.line(`let ${index} = y + step * ${lanes}u;`);
      this.counters(this.inner, index);
      this.compute(section, (output, value) => {
        if (output.kind === "store") this.store(output.stream, output.combine, value, false);
        else if (output.kind === "reduce") {
          const name = sums.get(output) ?? "";
          w.line(`${name} = ${w.bits(combine(w, output.combine, { bits: name }, value))};`);
        }
      });
    });
    for (const [output, name] of sums) this.kept.set(output.node, this.together(output, name));
  }

  /** Combines the results of a row's threads. */
  private together({ combine: op }: Reduce, name: string): ShaderRegister {
    const { w } = this;
    const { rows, lanes, byRows } = this.division;
    if (lanes === 1) return { bits: w.let(name) };
    const place = (lane: string) => (byRows ? `(${lane}) * ${rows}u + x` : `x * ${lanes}u + ${lane}`);
    w.line(`shared_words[local_invocation_index] = ${name};`);
    w.line("workgroupBarrier();");
    w.block(`for (var half = ${lanes / 2}u; half > 0u; half >>= 1u)`, () => {
      w.block("if (y < half)", () => {
        const [own, other] = [
          w.let(`shared_words[${place("y")}]`),
          w.let(`shared_words[${place("y + half")}]`),
        ];
        w.line(`shared_words[${place("y")}] = ${w.bits(combine(w, op, { bits: own }, { bits: other }))};`);
      });
      w.line("workgroupBarrier();");
    });
    const result = w.let(`shared_words[${place("0u")}]`);
    w.line("workgroupBarrier();");
    return { bits: result };
  }
}

/** Divides threads so that neighbours read neighbouring elements, and short rows do not leave threads idle. */
function divideThreads(plan: LoopPlan): Division {
  const numRows = plan.loops.length;
  const streams = plan.sections
    .filter(({ isRow }) => !isRow)
    .flatMap(({ inputs, outputs }) => [
      ...inputs.filter((input) => input.kind === "stream"),
      ...outputs.flatMap((output) => (output.kind === "store" ? [output.stream] : [])),
    ]);
  const alongRows = streams.filter(
    ({ step, terms }) => step !== 1 && terms.some(({ dim, factor }) => dim === numRows - 1 && factor === 1),
  ).length;
  const along = streams.filter(({ step }) => step === 1).length;
  const count = sizeOf(plan.dims.slice(numRows));
  const numRowsTotal = sizeOf(plan.dims.slice(0, numRows));
  if (alongRows > along) {
    const rows = Math.min(32, powerOfTwo(numRowsTotal));
    return { rows, lanes: Math.min(256 / rows, powerOfTwo(Math.ceil(count / 8))), byRows: true };
  }
  const lanes = Math.min(256, powerOfTwo(Math.ceil(count / 4)));
  return { rows: Math.min(Math.max(1, 64 / lanes), powerOfTwo(numRowsTotal)), lanes, byRows: false };
}

/** The smallest power of two that is at least `value`. */
function powerOfTwo(value: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, value)));
}
