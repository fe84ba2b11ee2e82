import { at, range } from "../../ir/shape.js";
import type { InputPlan, LoopPlan } from "../kernel/loopPlan.js";
import { type KernelSetting, KernelWriter, programLength, WIDTH } from "./kernelWriter.js";
import type { ShaderRegister, WgslWriter } from "./registers.js";
import type { ShaderSlabs } from "./shaderSlabs.js";

/** The argument of an epilogue that is the product: operands come first. */
const PRODUCT = 2;

/** Instructions of all elements of a thread up to which they are written one after the other, else as a loop. */
const MAX_INSTRUCTIONS = 1024;

/** Writes what a kernel computes from elements of a product that are in registers. */
export class EpilogueWriter extends KernelWriter {
  /** The elements of the product that are computed with, as floats. */
  private product: readonly string[] = [];

  constructor(
    plan: LoopPlan,
    slabs: ShaderSlabs,
    setting: KernelSetting,
    wantsVectors: boolean,
    w: WgslWriter,
  ) {
    super(plan, slabs, setting, wantsVectors, w);
  }

  /** Whether memory is read and written in vectors, which the product then does as well. */
  get usesVectors(): boolean {
    return this.inVectors;
  }

  /** The arguments of the whole shader. */
  get shaderArguments() {
    return this.args;
  }

  /** Whether it is short enough to be written for this many elements. */
  isShort(elements: number): boolean {
    return elements * programLength(this.plan) <= MAX_INSTRUCTIONS;
  }

  /**
   * Computes and stores the points of neighbouring elements.
   *
   * @param number that of the first point
   * @param product the elements of the product there: one, or as many as a vector has
   */
  points(number: string, product: readonly string[]): void {
    const { plan, w } = this;
    this.product = product;
    this.counters(range(plan.dims.length), number);
    for (const section of plan.sections) {
      if (product.length === WIDTH && !section.isRow) {
        for (const store of this.computeVector(section, () => {})) store();
        continue;
      }
      this.compute(section, (output, value) => {
        if (output.kind === "keep") this.kept.set(output.node, value);
        else if (output.kind === "store") {
          w.bits(value);
          this.store(output.stream, output.combine, { ...value }, section.isRow);
        }
      });
    }
  }

  protected override input(plan: InputPlan, isRow: boolean): ShaderRegister {
    if (plan.kind === "iota" || plan.arg !== PRODUCT) return super.input(plan, isRow);
    return { float: at(this.product, this.lane) };
  }
}
