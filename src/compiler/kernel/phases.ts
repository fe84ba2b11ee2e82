/**
 * Afterwards a kernel is a sequence of sections for every row, and each uses only what it loads itself or what an
 * earlier section has left: a value of the row, a finished reduction, or a kept row of an inner value. Every store
 * and every reduction happens in exactly one section. An expensive inner value is kept for later passes, a cheap
 * one is recomputed.
 *
 * Unchanged are the values and where they are stored.
 */

import { byteSize, type DType } from "../../ir/dtype.js";
import { opFacts, type Price } from "../../ir/opFacts.js";
import { at, range, sizeOf } from "../../ir/shape.js";
import type { WasmFeatures } from "../wasm/features.js";
import { type Analysis, type Section, SectionBuilder } from "./section.js";
import type { KernelNode, KernelSpec, KernelStore } from "./spec.js";

/** One run through the inner dims of a row, and the row's own code before it. */
export interface Phase {
  readonly row: Section;
  readonly inner: Section;
}

/** A kernel as sections, in the order in which they run for every row. */
export interface KernelPlan {
  readonly spec: KernelSpec;
  readonly features: WasmFeatures;
  readonly phases: readonly Phase[];
  /** The code after the last run, which uses the results of the last reductions. */
  readonly last: Section;
  /** Inner values that are kept in memory from one phase to the next; each takes one row of scratch memory. */
  readonly spills: readonly number[];
}

/** The data types of a kernel's arguments, the scratch rows of its spilled values included. */
export function kernelArgs(plan: KernelPlan): DType[] {
  return [...plan.spec.args, ...plan.spills.map((node) => spillType(plan, node))];
}

/** The bytes of scratch that each spilled value needs. */
export function spillBytes(plan: KernelPlan): number[] {
  const { dims, numRows } = plan.spec;
  const row = sizeOf(dims.slice(numRows));
  return plan.spills.map((node) => row * byteSize(spillType(plan, node)));
}

function spillType(plan: KernelPlan, node: number): "float64" | "float32" {
  return at(plan.spec.nodes, node).dtype === "float64" ? "float64" : "float32";
}

/** Roughly how many instructions an op takes. */
const instructions: { readonly [P in Price]: number } = { trivial: 1, short: 1, long: 6, heavy: 6 };

/** Determines which values belong to a row and which to its elements, and in which phase each is known. */
export function planKernel(spec: KernelSpec, features: WasmFeatures): KernelPlan {
  const analysis: Analysis = { spec, features, inner: innerNodes(spec), phaseOf: phases(spec.nodes) };
  const roots = rootsOf(analysis);
  const spills = features.gpu ? new Set<number>() : findSpills(analysis, roots);
  const inner = roots.map((phaseRoots, p) => innerSection(analysis, p, phaseRoots, spills));
  const row = (p: number) => rowSection(analysis, p, inner.slice(p));
  return {
    spec,
    features,
    phases: inner.map((section, p) => ({ row: row(p), inner: section })),
    last: row(roots.length),
    spills: [...spills],
  };
}

/** What one run through the inner dims computes. */
interface Roots {
  readonly stores: readonly KernelStore[];
  readonly reduces: readonly ReduceRoot[];
}

/** A reduction and its operand. */
interface ReduceRoot {
  readonly node: number;
  readonly arg: number;
}

/** Whether a store happens for every element, not once a row. */
function isInnerStore({ spec, inner }: Analysis, store: KernelStore): boolean {
  return store.index !== undefined || at(inner, store.node) || strided(store.access.strides, spec);
}

/** The roots of every phase: a reduction is known in the phase after the one that runs it. */
function rootsOf(analysis: Analysis): Roots[] {
  const { spec, phaseOf } = analysis;
  const stores = spec.stores.filter((store) => isInnerStore(analysis, store));
  const reduces = spec.nodes.flatMap((node, i) =>
    node.kind === "reduce" ? [{ node: i, arg: node.arg }] : [],
  );
  const numPhases = Math.max(
    0,
    ...stores.map(({ node }) => at(phaseOf, node) + 1),
    ...reduces.map(({ node }) => at(phaseOf, node)),
  );
  return range(numPhases).map((p) => ({
    stores: stores.filter(({ node }) => at(phaseOf, node) === p),
    reduces: reduces.filter(({ node }) => at(phaseOf, node) === p + 1),
  }));
}

/** The expensive inner values of earlier phases that a later one needs again. */
function findSpills({ spec, inner, phaseOf }: Analysis, roots: readonly Roots[]): Set<number> {
  const spills = new Set<number>();
  roots.forEach(({ stores, reduces }, p) => {
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
    for (const { arg } of reduces) visit(arg);
  });
  return spills;
}

/** The code inside the loops of a phase. */
function innerSection(
  analysis: Analysis,
  p: number,
  { stores, reduces }: Roots,
  spills: ReadonlySet<number>,
): Section {
  const body = new SectionBuilder(analysis, p, (i) => !at(analysis.inner, i), spills);
  for (const store of stores) body.store(store);
  for (const { node, arg } of reduces) body.output({ kind: "reduce", node }, arg);
  for (const i of spills) if (at(analysis.phaseOf, i) === p) body.output({ kind: "spill", node: i }, i);
  return body.finish();
}

/**
 * The code of a row before the loops of a phase, or after the last: its stores, and the values that a section
 * after it reads.
 *
 * @param later the sections inside the loops of this phase and those after it
 */
function rowSection(analysis: Analysis, p: number, later: readonly Section[]): Section {
  const { spec, inner, phaseOf } = analysis;
  const isKnown = (i: number) => at(phaseOf, i) < p || at(spec.nodes, i).kind === "reduce";
  const body = new SectionBuilder(analysis, p, isKnown, new Set());
  const kept = new Set<number>();
  const keep = (i: number): void => {
    if (at(inner, i) || at(phaseOf, i) !== p || kept.has(i)) return;
    const { kind } = at(spec.nodes, i);
    if (kind === "reduce" || kind === "literal") return;
    kept.add(i);
    body.output({ kind: "keep", node: i }, i);
  };
  for (const { uniforms } of later) uniforms.forEach(keep);
  // Later row code and row stores read these too.
  spec.nodes.forEach((node, i) => {
    if (!at(inner, i) && at(phaseOf, i) > p && node.kind === "op") node.args.forEach(keep);
  });
  for (const store of spec.stores) {
    if (!isInnerStore(analysis, store) && at(phaseOf, store.node) === p) body.store(store);
  }
  return body.finish();
}

/** Minimum number of instructions of an inner value that is kept instead of recomputed. */
const SPILL_COST = 6;

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

/** Roughly how many instructions it takes to recompute an inner value. */
function costOf(spec: KernelSpec, inner: readonly boolean[], i: number): number {
  const seen = new Set<number>();
  const visit = (k: number): number => {
    if (seen.has(k) || !at(inner, k)) return 0;
    seen.add(k);
    const node = at(spec.nodes, k);
    if (node.kind !== "op") return node.kind === "load" && node.index ? 4 : 1;
    const instructionCount = instructions[opFacts[node.call.op].price];
    return instructionCount + node.args.reduce((sum, arg) => sum + visit(arg), 0);
  };
  return at(spec.nodes, i).kind === "op" ? visit(i) : 0;
}
