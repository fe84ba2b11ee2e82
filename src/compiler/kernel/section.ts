import { getOrInsert } from "../../ir/collections.js";
import type { DType } from "../../ir/dtype.js";
import { at } from "../../ir/shape.js";
import type { WasmFeatures } from "../wasm/features.js";
import * as math from "../wasm/math.js";
import { type Vec, VecBuilder, type VecProgram } from "../wasm/vectorProgram.js";
import { laneOf, toBits } from "./lanes.js";
import type { KernelSpec, KernelStore } from "./spec.js";
import { emitVectorOp } from "./vectorOps.js";

/** The straight-line code between two loops, or inside one. */
export interface Section {
  readonly program: VecProgram;
  /** For every input slot the node that is loaded, or the spilled node that is loaded again. */
  readonly inputs: readonly SectionInput[];
  /** For every uniform slot the row value it holds. */
  readonly uniforms: readonly number[];
  /** What becomes of every output. */
  readonly outputs: readonly SectionOutput[];
}

/** What an input slot of a section reads. */
export type SectionInput =
  | { readonly kind: "node"; readonly node: number }
  | { readonly kind: "spill"; readonly node: number };

/** What becomes of a value that a section computes. */
export type SectionOutput =
  | { readonly kind: "store"; readonly store: KernelStore }
  | { readonly kind: "reduce"; readonly node: number }
  | { readonly kind: "spill"; readonly node: number }
  | { readonly kind: "keep"; readonly node: number };

/** What is known about a kernel's nodes before its sections are written. */
export interface Analysis {
  readonly spec: KernelSpec;
  readonly features: WasmFeatures;
  /** For every node whether it changes along the inner dims. */
  readonly inner: readonly boolean[];
  /** For every node the first phase in which it is known. */
  readonly phaseOf: readonly number[];
}

/** Writes the nodes that some outputs need as one vector program. */
export class SectionBuilder {
  private readonly builder: VecBuilder;
  private readonly values = new Map<number, Vec>();
  private readonly opResults = new Map<string, readonly Vec[]>();
  private readonly inputs: SectionInput[] = [];
  private readonly uniforms: number[] = [];
  private readonly outputs: SectionOutput[] = [];
  private readonly results: Vec[] = [];

  private readonly spec: KernelSpec;

  constructor(
    private readonly analysis: Analysis,
    /** The phase to which the section belongs. */
    private readonly phase: number,
    /** Whether a row value is already computed. */
    private readonly isKnown: (node: number) => boolean,
    /** Inner values that are kept in memory from the phase that knows them. */
    private readonly spills: ReadonlySet<number>,
  ) {
    this.spec = analysis.spec;
    this.builder = new VecBuilder(analysis.features);
  }

  store(store: KernelStore): void {
    const { dtype } = at(this.spec.nodes, store.node);
    this.outputs.push({ kind: "store", store });
    this.results.push(toBits(this.builder, this.value(store.node), dtype));
  }

  output(output: SectionOutput, node: number): void {
    this.outputs.push(output);
    this.results.push(this.value(node));
  }

  finish(): Section {
    const { inputs, uniforms, outputs } = this;
    return { program: this.builder.finish(this.results), inputs, uniforms, outputs };
  }

  /** Whether an earlier phase has left an inner value in memory. */
  private isSpilled(i: number): boolean {
    return this.spills.has(i) && at(this.analysis.phaseOf, i) < this.phase;
  }

  private value(i: number): Vec {
    return getOrInsert(this.values, i, () => this.compute(i));
  }

  private compute(i: number): Vec {
    const b = this.builder;
    const node = at(this.spec.nodes, i);
    if (node.kind === "literal") return literal(b, node.dtype, node.value);
    if (this.isKnown(i)) {
      this.uniforms.push(i);
      return b.uniform(this.uniforms.length - 1);
    }
    if (this.isSpilled(i)) {
      this.inputs.push({ kind: "spill", node: i });
      return b.input(this.inputs.length - 1);
    }
    switch (node.kind) {
      case "load":
      case "iota": {
        this.inputs.push({ kind: "node", node: i });
        const raw = b.input(this.inputs.length - 1);
        if (node.kind === "load") return fromStorage(b, node.dtype, raw);
        const call = { op: "convert", from: "int32", to: node.dtype } as const;
        return at(emitVectorOp(b, call, [raw]), 0);
      }
      case "op": {
        const key = `${JSON.stringify(node.call)}:${node.args.join()}`;
        const results = getOrInsert(this.opResults, key, () => {
          const args = node.args.map((arg) => this.value(arg));
          return emitVectorOp(b, node.call, args);
        });
        return at(results, node.result);
      }
      default:
        throw new Error("[planKernel] a reduction is read before it is known");
    }
  }
}

function literal(b: VecBuilder, dtype: DType, value: number): Vec {
  switch (laneOf(dtype)) {
    case "double":
      return b.f64(value);
    case "signed":
    case "unsigned":
      return b.i32(value);
    case "mask":
      return b.i32(value ? -1 : 0);
    case "float":
      return b.f32(value);
  }
}

function fromStorage(b: VecBuilder, dtype: DType, x: Vec): Vec {
  if (dtype === "bfloat16") return math.fromBfloat16(b, x);
  return dtype === "float16" ? math.fromFloat16(b, x) : x;
}
