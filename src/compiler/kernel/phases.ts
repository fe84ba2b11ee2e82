/**
 * Afterwards a kernel is a sequence of sections for every row, and each takes only what it loads itself or
 * what an earlier section has left: a row's value, a finished reduction, or a kept row of an inner value.
 * Every store and every reduction happens in exactly one section. An inner value that is dear is kept for
 * later runs, a cheap one is computed again.
 *
 * Unchanged are the values and where they are stored.
 */

import type { DType } from "../../ir/dtype.js";
import { opFacts, type Price } from "../../ir/opFacts.js";
import { at, range } from "../../ir/shape.js";
import type { WasmFeatures } from "../wasm/features.js";
import * as math from "../wasm/math.js";
import { type Vec, VecBuilder, type VecProgram } from "../wasm/vectorProgram.js";
import type { KernelNode, KernelSpec, KernelStore } from "./spec.js";
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

/** One run through the inner dims of a row, and the row's own code before it. */
export interface Phase {
  readonly row: Section;
  readonly inner: Section;
}

/** A kernel as sections, in the order in which they run for every row. */
export interface KernelPlan {
  readonly spec: KernelSpec;
  readonly phases: readonly Phase[];
  /** The code after the last run, for what the last reductions give. */
  readonly last: Section;
  /** Inner values that are kept in memory from one phase to the next; each takes one row of scratch. */
  readonly spills: readonly number[];
}

/** Roughly how many instructions an op takes. */
const instructions: { readonly [P in Price]: number } = { trivial: 1, short: 1, long: 6, heavy: 6 };

/** Finds out which values belong to a row and which to its elements, and in which phase each is known. */
export function planKernel(spec: KernelSpec, features: WasmFeatures): KernelPlan {
  const inner = innerNodes(spec);
  const phaseOf = phases(spec.nodes);
  const isInnerStore = (store: KernelStore) =>
    store.index !== undefined || at(inner, store.node) || strided(store.access.strides, spec);
  const reduces = range(spec.nodes.length).filter((i) => at(spec.nodes, i).kind === "reduce");
  const argOf = (i: number) => {
    const node = at(spec.nodes, i);
    return node.kind === "reduce" ? node.arg : i;
  };
  const numPhases = Math.max(
    0,
    ...spec.stores.filter(isInnerStore).map((s) => at(phaseOf, s.node) + 1),
    ...reduces.map((i) => at(phaseOf, i)),
  );
  // Roots of every phase, then which inner values of earlier phases a later one needs again.
  const roots = range(numPhases).map((p) => ({
    stores: spec.stores.filter((s) => isInnerStore(s) && at(phaseOf, s.node) === p),
    reduces: reduces.filter((i) => at(phaseOf, i) === p + 1),
  }));
  const spills = new Set<number>();
  roots.forEach(({ stores, reduces: sums }, p) => {
    const seen = new Set<number>();
    const visit = (i: number): void => {
      if (seen.has(i) || !at(inner, i)) return;
      seen.add(i);
      if (at(phaseOf, i) < p && costOf(spec, inner, i) >= SPILL_COST) {
        spills.add(i);
        return;
      }
      operands(at(spec.nodes, i)).forEach(visit);
    };
    for (const { node } of stores) visit(node);
    for (const i of sums) visit(argOf(i));
  });
  // Row values that some section after the one that computes them reads.
  const sections: Phase[] = roots.map(({ stores, reduces: sums }, p) => {
    const body = new SectionBuilder(spec, features, (i) => !at(inner, i), spills, phaseOf, p);
    for (const store of stores) body.store(store);
    for (const i of sums) body.output({ kind: "reduce", node: i }, argOf(i));
    for (const i of spills) if (at(phaseOf, i) === p) body.output({ kind: "spill", node: i }, i);
    return { inner: body.finish(), row: emptySection };
  });
  const rowStores = spec.stores.filter((s) => !isInnerStore(s));
  const rows = range(numPhases + 1).map((p) => {
    const isKnown = (i: number) => at(phaseOf, i) < p || at(spec.nodes, i).kind === "reduce";
    const body = new SectionBuilder(spec, features, isKnown, new Set(), phaseOf, p);
    const kept = new Set<number>();
    const keep = (i: number): void => {
      if (at(inner, i) || at(phaseOf, i) !== p || kept.has(i)) return;
      const kind = at(spec.nodes, i).kind;
      if (kind === "reduce" || kind === "literal") return;
      kept.add(i);
      body.output({ kind: "keep", node: i }, i);
    };
    sections.slice(p).forEach((phase) => {
      phase.inner.uniforms.forEach(keep);
    });
    // Later row code and row stores read these too.
    spec.nodes.forEach((node, i) => {
      if (!at(inner, i) && at(phaseOf, i) > p && node.kind === "op") node.args.forEach(keep);
    });
    for (const store of rowStores) if (at(phaseOf, store.node) === p) body.store(store);
    return body.finish();
  });
  return {
    spec,
    phases: sections.map((phase, p) => ({ ...phase, row: at(rows, p) })),
    last: at(rows, numPhases),
    spills: [...spills],
  };
}

const SPILL_COST = 6;

const emptySection: Section = {
  program: { instructions: [], outputs: [] },
  inputs: [],
  uniforms: [],
  outputs: [],
};

function strided(strides: readonly number[], spec: KernelSpec): boolean {
  return strides.some((stride, d) => d >= spec.numRows && stride !== 0);
}

/** For every node whether it changes along the inner dims. */
export function innerNodes(spec: KernelSpec): boolean[] {
  const inner: boolean[] = [];
  for (const node of spec.nodes) {
    switch (node.kind) {
      case "load":
        inner.push(
          strided(node.access.strides, spec) ||
            (node.index !== undefined && strided(node.index.access.strides, spec)),
        );
        break;
      case "iota":
        inner.push(strided(node.coefficients, spec));
        break;
      case "op":
        inner.push(node.args.some((arg) => at(inner, arg)));
        break;
      default:
        inner.push(false);
    }
  }
  return inner;
}

function operands(node: KernelNode): readonly number[] {
  return node.kind === "op" ? node.args : [];
}

function phases(nodes: readonly KernelNode[]): number[] {
  const phase: number[] = [];
  for (const node of nodes) {
    if (node.kind === "op") phase.push(Math.max(0, ...node.args.map((arg) => at(phase, arg))));
    else if (node.kind === "reduce") phase.push(at(phase, node.arg) + 1);
    else phase.push(0);
  }
  return phase;
}

/** Roughly how many instructions it takes to compute an inner value again. */
function costOf(spec: KernelSpec, inner: readonly boolean[], i: number): number {
  const seen = new Set<number>();
  const visit = (k: number): number => {
    if (seen.has(k) || !at(inner, k)) return 0;
    seen.add(k);
    const node = at(spec.nodes, k);
    if (node.kind !== "op") return node.kind === "load" && node.index ? 4 : 1;
    const own = instructions[opFacts[node.call.op].price];
    return own + node.args.reduce((sum, arg) => sum + visit(arg), 0);
  };
  return at(spec.nodes, i).kind === "op" ? visit(i) : 0;
}

/** Writes the nodes that some outputs need as one vector program. */
class SectionBuilder {
  private readonly builder: VecBuilder;
  private readonly values = new Map<number, Vec>();
  private readonly opResults = new Map<string, readonly Vec[]>();
  private readonly inputs: SectionInput[] = [];
  private readonly uniforms: number[] = [];
  private readonly outputs: SectionOutput[] = [];
  private readonly results: Vec[] = [];

  constructor(
    private readonly spec: KernelSpec,
    features: WasmFeatures,
    /** Whether a row value is at hand already. */
    private readonly isKnown: (node: number) => boolean,
    private readonly spills: ReadonlySet<number>,
    private readonly phaseOf: readonly number[],
    private readonly phase: number,
  ) {
    this.builder = new VecBuilder(features);
  }

  store(store: KernelStore): void {
    const { dtype } = at(this.spec.nodes, store.node);
    this.outputs.push({ kind: "store", store });
    this.results.push(toStorage(this.builder, dtype, this.value(store.node)));
  }

  output(output: SectionOutput, node: number): void {
    this.outputs.push(output);
    this.results.push(this.value(node));
  }

  finish(): Section {
    const { inputs, uniforms, outputs } = this;
    return { program: this.builder.finish(this.results), inputs, uniforms, outputs };
  }

  private value(i: number): Vec {
    let vec = this.values.get(i);
    if (vec === undefined) {
      vec = this.compute(i);
      this.values.set(i, vec);
    }
    return vec;
  }

  /** A sum with a product that this section computes anyway is one instruction where the host has it. */
  private multiplyAdd(node: Extract<KernelNode, { kind: "op" }>): Vec | undefined {
    const b = this.builder;
    if (!b.features.fma || node.dtype !== "float32") return undefined;
    const [x, y] = [at(node.args, 0), node.args[1] ?? 0];
    const factors = (i: number): readonly number[] | undefined => {
      const product = at(this.spec.nodes, i);
      if (product.kind !== "op" || product.call.op !== "mul" || product.dtype !== "float32") return undefined;
      const isElsewhere = this.isKnown(i) || (this.spills.has(i) && at(this.phaseOf, i) < this.phase);
      return isElsewhere ? undefined : product.args;
    };
    const [left, right] = [factors(x), factors(y)];
    if (node.call.op === "add" && left)
      return b.madd(this.value(at(left, 0)), this.value(at(left, 1)), this.value(y));
    if (node.call.op === "add" && right)
      return b.madd(this.value(at(right, 0)), this.value(at(right, 1)), this.value(x));
    if (node.call.op === "sub" && right)
      return b.nmadd(this.value(at(right, 0)), this.value(at(right, 1)), this.value(x));
    return undefined;
  }

  private compute(i: number): Vec {
    const b = this.builder;
    const node = at(this.spec.nodes, i);
    if (node.kind === "literal") return literal(b, node.dtype, node.value);
    if (this.isKnown(i)) {
      this.uniforms.push(i);
      return b.uniform(this.uniforms.length - 1);
    }
    if (this.spills.has(i) && at(this.phaseOf, i) < this.phase) {
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
        const fused = this.multiplyAdd(node);
        if (fused !== undefined) return fused;
        const key = `${JSON.stringify(node.call)}:${node.args.join()}`;
        let results = this.opResults.get(key);
        if (!results) {
          const args = node.args.map((arg) => this.value(arg));
          results = emitVectorOp(b, node.call, args);
          this.opResults.set(key, results);
        }
        return at(results, node.result);
      }
      default:
        throw new Error("[planKernel] a reduction is read before it is known");
    }
  }
}

function literal(b: VecBuilder, dtype: DType, value: number): Vec {
  switch (dtype) {
    case "float64":
      return b.f64(value);
    case "int32":
    case "uint32":
      return b.i32(value);
    case "bool":
      return b.i32(value ? -1 : 0);
    default:
      return b.f32(value);
  }
}

function fromStorage(b: VecBuilder, dtype: DType, x: Vec): Vec {
  if (dtype === "bfloat16") return math.fromBfloat16(b, x);
  return dtype === "float16" ? math.fromFloat16(b, x) : x;
}

function toStorage(b: VecBuilder, dtype: DType, x: Vec): Vec {
  if (dtype === "bfloat16") return math.toBfloat16(b, x);
  return dtype === "float16" ? math.toFloat16(b, x) : x;
}
