import { at, range, sizeOf } from "../../ir/shape.js";
import type { LoopPlan, SectionPlan } from "../kernel/loopPlan.js";
import { GROUP_BUILTINS, type KernelSetting, KernelWriter, programLength, WIDTH } from "./kernelWriter.js";
import { shaderCode, type WgslShader } from "./shaderMemory.js";
import type { ShaderSlabs } from "./shaderSlabs.js";

/** Threads of a workgroup that reduces nothing, and how many points each of them computes. */
interface PointDivision {
  readonly threads: number;
  readonly points: number;
}

/** Instructions of a program that is written once for each point of a thread, so that their loads overlap. */
const SHORT_PROGRAM = 48;
/** The same for the points of a vector, and of two, all together. */
const MAX_INSTRUCTIONS = 512;
const MAX_OF_TWO = 768;
/** Points below which vectors would leave threads idle. */
const FEWEST_POINTS = 2 ** 16;

/**
 * Few points are spread over as many workgroups as there can be; starting millions would take longer than their work.
 * Software adapters start threads for nothing, and their compiler does not end with a loop over points.
 */
function dividePoints(total: number, isSoftware: boolean): PointDivision {
  if (total < 2 ** 20 || isSoftware) return { threads: 64, points: 1 };
  return { threads: 256, points: 4 };
}

/** A kernel that reduces nothing: a thread for each point, or for each group of points that must run in order. */
export class PointShader extends KernelWriter {
  constructor(plan: LoopPlan, slabs: ShaderSlabs, setting: KernelSetting) {
    const isLarge = sizeOf(plan.dims) >= FEWEST_POINTS;
    super(plan, slabs, setting, isLarge && WIDTH * programLength(plan) <= MAX_INSTRUCTIONS);
  }

  write(): WgslShader {
    const { w, plan } = this;
    const ordered = this.orderedDims();
    const parallel = range(plan.dims.length).filter((d) => !ordered.includes(d));
    const total = sizeOf(parallel.map((d) => at(plan.dims, d)));
    this.args.open(w);
    if (this.inVectors && ordered.length === 0) return this.vectors(parallel, total / WIDTH);
    const { threads, points } = dividePoints(total, this.setting.isSoftware);
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

  /** A thread for one or several vectors, all loads before all stores. */
  private vectors(parallel: readonly number[], total: number): WgslShader {
    const { w, plan } = this;
    const threads = 256;
    const parts = total % (2 * threads) === 0 && 2 * WIDTH * programLength(plan) <= MAX_OF_TWO ? 2 : 1;
    const first = w.let(`(workgroup_id.x + workgroup_id.y * num_workgroups.x) * ${threads * parts}u`);
    w.line(`if (${first} + local_invocation_index >= ${total}u) { return; }`);
    const stores: (() => void)[] = [];
    for (const part of range(parts)) {
      this.suffix = `_${part}`;
      this.counters(parallel, w.let(`(${first} + ${part * threads}u + local_invocation_index) * ${WIDTH}u`));
      for (const section of plan.sections) {
        if (section.isRow) stores.push(...this.section(section, parallel));
        else stores.push(...this.computeVector(section, () => {}));
      }
    }
    for (const store of stores) store();
    return {
      code: shaderCode(this.args.declarations(), w, threads, GROUP_BUILTINS),
      workgroups: Math.ceil(total / (threads * parts)),
    };
  }

  /** Whether the program is so short that it may be written once for each point, all loads before all stores. */
  private isShort(): boolean {
    const isIndexed = this.plan.sections.some(({ outputs }) =>
      outputs.some((output) => output.kind === "store" && output.stream.index !== undefined),
    );
    return !isIndexed && programLength(this.plan) <= SHORT_PROGRAM;
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
