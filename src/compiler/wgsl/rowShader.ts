import { at, range, sizeOf } from "../../ir/shape.js";
import type { LoopPlan, Reduce, SectionPlan } from "../kernel/loopPlan.js";
import type { VectorOp } from "../wasm/opcodes.js";
import { argsOf } from "../wasm/vectorProgram.js";
import { GROUP_BUILTINS, type KernelSetting, KernelWriter, programLength, WIDTH } from "./kernelWriter.js";
import { combine, constant, type ShaderRegister } from "./registers.js";
import { shaderCode, type WgslShader } from "./shaderMemory.js";
import type { ShaderSlabs } from "./shaderSlabs.js";

/** How the threads of a workgroup are divided between rows and the elements of each. */
interface Division {
  /** Rows of a workgroup, and threads of a row. */
  readonly rows: number;
  readonly lanes: number;
  /** Whether neighbouring threads have neighbouring rows, because these are neighbours in memory. */
  readonly byRows: boolean;
  /** Vectors of a thread, where all elements of a row are in vectors. */
  readonly vectors?: number;
}

/** Maximum number of threads of a row, and how many vectors each of them had better have. */
const MAX_LANES = 256;
const VECTORS = 4;
/** Vectors of a thread that fit its registers. */
const MAX_VECTORS = 8;

/** Instructions of all vectors of a thread up to which they are written one after the other, else as a loop. */
const MAX_INSTRUCTIONS = 2048;

/** A kernel that reduces over the inner dims of each row. */
export class RowShader extends KernelWriter {
  private readonly division: Division;
  private readonly inner: readonly number[];
  private readonly rowDims: readonly number[];
  private readonly numRows: number;
  /** Elements of a row. */
  private readonly count: number;
  /** Reductions that shared memory has served so far. */
  private numShared = 0;

  constructor(plan: LoopPlan, slabs: ShaderSlabs, setting: KernelSetting) {
    const division = divideThreads(plan);
    super(plan, slabs, setting, division.vectors !== undefined);
    const numRowDims = plan.loops.length;
    this.rowDims = range(numRowDims);
    this.inner = range(plan.dims.length).slice(numRowDims);
    this.numRows = sizeOf(plan.dims.slice(0, numRowDims));
    this.count = sizeOf(this.inner.map((d) => at(plan.dims, d)));
    this.division = this.inVectors ? division : divideThreads(plan, false);
  }

  write(): WgslShader {
    const { w, plan, division } = this;
    const { rows, lanes, byRows, vectors } = division;
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
    if (this.isUnrolled) for (const part of range(vectors ?? 0)) this.place(`${part}`, `${part}u`);
    for (const section of plan.sections) {
      if (section.isRow) this.row(section);
      else if (vectors !== undefined) this.vectors(section);
      else this.elements(section);
    }
    const words = Math.min(2, this.numShared) * this.sharedWords;
    const shared = words > 0 ? `\nvar<workgroup> shared_words: array<u32, ${words}>;` : "";
    const head = this.subgroup > 1 ? "enable subgroups;\n" : "";
    return {
      code: head + shaderCode(this.args.declarations() + shared, w, size, GROUP_BUILTINS),
      workgroups: Math.ceil(total / rows),
    };
  }

  /** Whether all vectors of a thread are written one after the other, so that later sections find them in registers. */
  private get isUnrolled(): boolean {
    const { vectors } = this.division;
    return (
      vectors !== undefined &&
      vectors <= MAX_VECTORS &&
      vectors * WIDTH * programLength(this.plan) <= MAX_INSTRUCTIONS
    );
  }

  /** The counters of a thread's vector. */
  private place(part: string, number: string): void {
    this.suffix = `_${part}`;
    const first = this.w.fresh(`(y + ${number} * ${this.division.lanes}u) * ${WIDTH}u`);
    const names = this.rowDims.map((d) => `i${d}`);
    for (const name of names) this.w.line(`let ${name}_${part} = ${name};`);
    this.counters(this.inner, first);
    this.suffix = "";
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

  private vectors(section: SectionPlan): void {
    const { w } = this;
    const { vectors = 0 } = this.division;
    const reductions = section.outputs.filter((output): output is Reduce => output.kind === "reduce");
    // Each element of a vector has its own partial result, so that they do not wait for each other.
    const partials = new Map(reductions.map((output) => [output, this.partial(output, WIDTH)]));
    const vector = (part: string) => {
      this.suffix = `_${part}`;
      const values: [Reduce, number, string][] = [];
      const stores = this.computeVector(section, (output, value, lane) => {
        if (output.kind === "reduce") values.push([output, lane, w.bits(value)]);
      });
      for (const [output, lane, bits] of values) this.add(output, partials.get(output), lane, bits);
      this.suffix = "";
      return stores;
    };
    const inLoop = (part: string) =>
      w.block(`for (var step = 0u; step < ${vectors}u; step++)`, () => {
        this.place(part, "step");
        this.storeAll(vector(part));
      });
    if (!this.isUnrolled) inLoop("0");
    else if (reductions.length === 0 && dividesByRow(section)) {
      // Quotients that take long are rare: where there is one, all of the thread's are computed again.
      w.longQuotient = w.name();
      w.line(`var ${w.longQuotient} = false;`);
      const stores = range(vectors).flatMap((part) => vector(`${part}`));
      const isLong = w.longQuotient;
      w.longQuotient = undefined;
      w.block(`if (${isLong})`, () => inLoop("again"));
      w.block("else", () => this.storeAll(stores));
    } else for (const part of range(vectors)) this.storeAll(vector(`${part}`));
    for (const [output, partial] of partials) this.kept.set(output.node, this.together(output, partial));
  }

  /** Writes results, unless there are fewer rows than a workgroup has. */
  private storeAll(stores: readonly (() => void)[]): void {
    const write = () => {
      for (const store of stores) store();
    };
    if (stores.length > 0 && this.numRows % this.division.rows !== 0) this.w.block("if (isRow)", write);
    else write();
    this.suffix = "";
  }

  /** Declares the partial results of a reduction. */
  private partial(output: Reduce, count: number): Partial {
    const { w } = this;
    const identity = constant(output.identity[0]).bits ?? "";
    const names = range(count).map(() => w.name());
    const nan = output.combine in nanRanks ? w.name() : undefined;
    const first = nan === undefined ? identity : this.ranked(identity);
    for (const name of names) w.line(`var ${name} = ${first};`);
    if (nan !== undefined) w.line(`var ${nan} = 0u;`);
    return { names, nan };
  }

  /** Adds a value to one of the partial results. */
  private add(output: Reduce, { names, nan }: Partial = { names: [] }, index: number, bits: string): void {
    const { w } = this;
    const name = at(names, index);
    const value = { bits: nan === undefined ? bits : this.ranked(bits) };
    // Drivers that fuse products with sums fuse the left one: what is added, if what was added first is a product, too.
    w.line(`${name} = ${w.bits(combine(w, combinedBy(output), value, { bits: w.fresh(name) }))};`);
    const largest = nanRanks[output.combine]?.largest;
    if (nan !== undefined && largest !== undefined)
      w.line(`${nan} = ${w.bits(combine(w, largest, { bits: w.fresh(nan) }, { bits }))};`);
  }

  private elements(section: SectionPlan): void {
    const { w, count } = this;
    const reductions = section.outputs.filter((output): output is Reduce => output.kind === "reduce");
    const partials = new Map(reductions.map((output) => [output, this.partial(output, 1)]));
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
        else if (output.kind === "reduce") this.add(output, partials.get(output), 0, w.bits(value));
      });
    });
    for (const [output, partial] of partials) this.kept.set(output.node, this.together(output, partial));
  }

  /** Combines variables two by two. */
  private join(op: VectorOp, names: readonly string[]): string {
    const { w } = this;
    const [first = ""] = names;
    if (names.length === 1) return w.fresh(first);
    const half = names.length / 2;
    const [a, b] = [names.slice(0, half), names.slice(half)].map((part) => ({ bits: this.join(op, part) }));
    return w.bits(combine(w, op, a ?? {}, b ?? {}));
  }

  /** Neighbouring threads that combine their results without shared memory: those of a row, if they are neighbours. */
  private get subgroup(): number {
    const { lanes, byRows } = this.division;
    return byRows ? 1 : Math.min(lanes, this.setting.subgroupSize ?? 1);
  }

  /** Words of shared memory that a reduction takes. Two take turns: with one barrier each, none waits for readers. */
  private get sharedWords(): number {
    return (this.division.rows * this.division.lanes) / this.subgroup;
  }

  /** Combines the results of a row's threads. */
  private together(output: Reduce, { names, nan }: Partial): ShaderRegister {
    const { w, subgroup } = this;
    const { rows, lanes, byRows } = this.division;
    const op = combinedBy(output);
    const rank = nanRanks[output.combine];
    let own = this.join(op, names);
    if (nan !== undefined && rank !== undefined)
      own = w.fresh(`select(${own}, ${rank.rank}, ${rank.isNan(nan)})`);
    for (let mask = subgroup / 2; mask >= 1; mask /= 2) {
      const other = w.fresh(`subgroupShuffleXor(${own}, ${mask}u)`);
      own = w.bits(combine(w, op, { bits: own }, { bits: other }));
    }
    if (lanes === subgroup) return this.unranked(output, own);
    // Of each group of neighbours, the first has a place in shared memory.
    const left = lanes / subgroup;
    const first = (this.numShared++ % 2) * this.sharedWords;
    const place = (lane: string) =>
      `${first}u + ${byRows ? `(${lane}) * ${rows}u + x` : `x * ${left}u + ${lane}`}`;
    const store = `shared_words[${first}u + local_invocation_index${subgroup === 1 ? "" : ` / ${subgroup}u`}] = ${own};`;
    w.line(subgroup === 1 ? store : `if (y % ${subgroup}u == 0u) { ${store} }`);
    w.line("workgroupBarrier();");
    if (subgroup > 1 && left <= MAX_GROUPS) {
      own = this.join(
        op,
        range(left).map((i) => `shared_words[${place(`${i}u`)}]`),
      );
      return this.unranked(output, own);
    }
    w.block(`for (var half = ${left / 2}u; half > 0u; half >>= 1u)`, () => {
      w.block("if (y < half)", () => {
        const both = [place("y"), place("y + half")].map((at) => `shared_words[${at}]`);
        w.line(`shared_words[${place("y")}] = ${this.join(op, both)};`);
      });
      w.line("workgroupBarrier();");
    });
    own = w.fresh(`shared_words[${place("0u")}]`);
    return this.unranked(output, own);
  }

  /** Integers in the order of floats, and back. */
  private ranked(bits: string): string {
    this.w.used.add("ranked");
    return `ranked(${bits})`;
  }

  private unranked({ combine: op, identity }: Reduce, bits: string): ShaderRegister {
    if (op in nanRanks) return { bits: this.w.fresh(this.ranked(bits)) };
    // Drivers leave out the 0 that a sum begins with, although that of negative zeros is 0.
    return op === "f32x4.add" ? combine(this.w, op, { bits }, constant(identity[0])) : { bits };
  }
}

/** Subgroups of a row up to which every thread combines the results of all. */
const MAX_GROUPS = 16;

/**
 * Of ops that are combined as integers, how NaN gets its way: of the two signs that it can have, one is beyond all numbers
 * by itself, and the other is the largest pattern of bits.
 */
const nanRanks: {
  readonly [K in VectorOp]?: {
    readonly largest: VectorOp;
    readonly isNan: (largest: string) => string;
    readonly rank: string;
  };
} = {
  "f32x4.max": { largest: "i32x4.max_u", isNan: (u) => `${u} > 0xff800000u`, rank: "0x7fffffffu" },
  "f32x4.min": {
    ...{ largest: "i32x4.max_s", rank: "0x80000000u" },
    isNan: (u) => `bitcast<i32>(${u}) > 0x7f800000`,
  },
};

/** Variables that hold what a thread has reduced so far, and the largest bits where these tell of NaN. */
interface Partial {
  readonly names: readonly string[];
  readonly nan?: string | undefined;
}

/** Whether a section divides by a value of its row. */
function dividesByRow({ program }: SectionPlan): boolean {
  const { instructions } = program;
  return instructions.some(
    (instruction) =>
      instruction.kind === "vector" &&
      instruction.op === "f32x4.div" &&
      at(instructions, at(argsOf(instruction), 1)).kind === "uniform",
  );
}

/** The instruction that combines the results of a reduction, as integers where these are faster. */
function combinedBy({ combine: op }: Reduce): VectorOp {
  return op === "f32x4.max" ? "i32x4.max_s" : op === "f32x4.min" ? "i32x4.min_s" : op;
}

/** Divides threads so that neighbours read neighbouring elements, and short rows do not leave threads idle. */
function divideThreads(plan: LoopPlan, inVectors = true): Division {
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
  const rowsOf = (lanes: number) => Math.min(Math.max(1, 64 / lanes), powerOfTwo(numRowsTotal));
  if (inVectors) {
    let lanes = 1;
    while (lanes < MAX_LANES && count % (2 * lanes * WIDTH) === 0 && count / (lanes * WIDTH) > VECTORS)
      lanes *= 2;
    const vectors = count / (lanes * WIDTH);
    // A row of few lanes and many vectors would leave most of the GPU idle.
    if (Number.isInteger(vectors) && (vectors <= MAX_VECTORS || lanes === MAX_LANES))
      return { rows: rowsOf(lanes), lanes, byRows: false, vectors };
  }
  const lanes = Math.min(MAX_LANES, powerOfTwo(Math.ceil(count / 4)));
  return { rows: rowsOf(lanes), lanes, byRows: false };
}

/** The smallest power of two that is at least `value`. */
function powerOfTwo(value: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, value)));
}
