/**
 * What the passes of the compiler hand to each other, as text: fused units, steps that name buffers, memory plans
 * and kernels. Tests compare these, and `docs/compiler.md` shows them.
 */

import { expand } from "../../src/compiler/fuse/dims.js";
import type { FusedProgram, Unit } from "../../src/compiler/fuse/fuse.js";
import type { KernelPlan } from "../../src/compiler/kernel/phases.js";
import type { Section } from "../../src/compiler/kernel/section.js";
import type { Access, Indirection, KernelNode, KernelSpec } from "../../src/compiler/kernel/spec.js";
import type { Buffer, Ref } from "../../src/compiler/plan/planBuffers.js";
import type { UnplacedStep } from "../../src/compiler/plan/plannedSteps.js";
import type { StepInfo } from "../../src/compiler/steps.js";
import { innerSteps } from "../../src/compiler/stepTree.js";
import type { Atom, Eqn, Program } from "../../src/ir/program.js";
import { at, formatType } from "../../src/ir/shape.js";
import { printProgram } from "../../src/ir/text/print.js";

/** Lines without the indentation that they share, so that tests can write them where they belong. */
export function text(template: TemplateStringsArray): string {
  const lines = (template.raw[0] ?? "")
    .replace(/^\n/, "")
    .replace(/\n\s*$/, "")
    .split("\n");
  const indents = lines.filter((line) => line.trim() !== "").map((line) => line.search(/\S/));
  const shared = Math.min(...indents);
  return lines.map((line) => line.slice(shared)).join("\n");
}

/** The name that {@link printProgram} gives to a value. */
export function nameOf(program: Program, atom: Atom): string {
  const last =
    printProgram({ ...program, outputs: [atom] })
      .split("\n")
      .at(-2) ?? "";
  return last.trim().replace(/^return /, "");
}

/** The lines that {@link printProgram} prints for each equation. */
export function eqnLines(program: Program): ReadonlyMap<Eqn, readonly string[]> {
  let before = 1;
  return new Map(
    program.eqns.map((eqn, i) => {
      const lines = printProgram({ ...program, eqns: program.eqns.slice(0, i + 1), outputs: [] }).split("\n");
      const own = lines.slice(before, -2).map((line) => line.slice(2));
      before = lines.length - 2;
      return [eqn, own] as const;
    }),
  );
}

/**
 * A fused program: every unit with its equations, a group with its loops, `|` before those that it reduces along.
 *
 * ```
 * group [4 | 8] reads %0
 *   %1:f32[4] = reduceSum %0 {dims: [1]}
 * step
 *   %2:f32[4,2] = dotGeneral …
 * ```
 */
export function printFused(fused: FusedProgram): string {
  const { program } = fused;
  const lines = eqnLines(program);
  const order = new Map(program.eqns.map((eqn, i) => [eqn, i]));
  const own = (eqn: Eqn) => (lines.get(eqn) ?? []).map((line) => `  ${line}`);
  const unit = (u: Unit): string[] => {
    if (u.kind === "eqn") return ["step", ...own(u.eqn)];
    const members = [...u.group.members].sort((a, b) => (order.get(a) ?? 0) - (order.get(b) ?? 0));
    return [unitHead(fused, u), ...members.flatMap(own)];
  };
  return fused.units.flatMap(unit).join("\n");
}

function unitHead({ program, definitions }: FusedProgram, unit: Extract<Unit, { kind: "group" }>): string {
  const { group } = unit;
  const inner = group.inner ? expand(group.inner) : [];
  const rows = group.loops().filter((dim) => !inner.includes(dim));
  const sizes = [rows, inner].map((list) => list.map((dim) => dim.size).join(" "));
  const loops = inner.length > 0 ? `${sizes[0]} | ${sizes[1]}`.trim() : sizes[0];
  const ofIds = (ids: Iterable<number>) =>
    [...ids].map((id) => {
      const out =
        definitions.get(id)?.outs.find((v) => v.id === id) ?? program.inputs.find((v) => v.id === id);
      return out ? nameOf(program, out) : "?";
    });
  const notes: (readonly [string, readonly string[]])[] = [
    ["reads", ofIds(group.reads.keys())],
    ["again", ofIds(group.inlined)],
    ["writes", group.materialised.map((v) => nameOf(program, v))],
    ["complete after it:", ofIds(group.late.keys())],
  ];
  const shown = notes
    .filter(([, names]) => names.length > 0)
    .map(([word, names]) => `${word} ${names.join(" ")}`);
  return [`group [${loops}]`, ...shown].join(", ");
}

/** Names of buffers: inputs and outputs by their index, temporary ones by the order in which they are named. */
export class BufferNames {
  private readonly temporaries = new Map<Buffer, number>();

  /** The name of the buffer whose memory a buffer uses. */
  of(buffer: Buffer): string {
    const root = buffer.root();
    switch (root.kind.kind) {
      case "input":
        return `in${root.kind.index}`;
      case "output":
        return `out${root.kind.index}`;
      case "constant":
        return "const";
      case "dynamic":
        return `slot${root.kind.slot}`;
      case "temporary": {
        const known = this.temporaries.get(root) ?? this.temporaries.size;
        this.temporaries.set(root, known);
        return `t${known}`;
      }
    }
  }

  ref({ buffer, offset }: Ref): string {
    return offset === 0 ? this.of(buffer) : `${this.of(buffer)}+${offset}`;
  }
}

/** Steps before the memory plan, one a line: what is read, `→`, what is written, and the ops. */
export function printPlanned(
  steps: readonly UnplacedStep[],
  infos: readonly StepInfo[],
  names = new BufferNames(),
): string {
  const lines = (list: readonly UnplacedStep[], indent: string): string[] =>
    list.flatMap((step) => [
      `${indent}${[plannedHead(step, names), infos[step.info]?.ops.join(" ")].filter(Boolean).join("  ")}`,
      ...innerSteps(step).flatMap((inner, i) => [
        ...(i > 0 ? [`${indent}and`] : []),
        ...lines(inner, `${indent}  `),
      ]),
    ]);
  return lines(steps, "").join("\n");
}

function plannedHead(step: UnplacedStep, names: BufferNames): string {
  const list = (refs: readonly Ref[]) => refs.map((ref) => names.ref(ref)).join(" ");
  switch (step.op) {
    case "kernel": {
      const pick = (indices: readonly number[]) => list(indices.map((i) => at(step.args, i)));
      return `kernel ${pick(step.reads)} → ${pick(step.writes)}`;
    }
    case "gemm":
      return `gemm ${step.m}×${step.n}×${step.k} ${list(step.beta === 0 ? [step.a, step.b] : [step.a, step.b, step.c])}${step.ragged ? ` by ${names.ref(step.ragged.sizes)}` : ""} → ${names.ref(step.c)}`;
    case "copy":
      return `copy ${names.ref(step.source)} → ${names.ref(step.target)}`;
    case "host":
      return `host ${step.kernel.kind} ${list(step.ins)} → ${list(step.outs)}`;
    case "callback":
      return `call ${step.spec.fn.name} ${list(step.ins)} → ${list(step.outs)}`;
    case "address":
      return `address ${names.of(step.slot)} = ${names.ref(step.from)}`;
    case "axisIndex":
      return `position → ${names.ref(step.target)}`;
    case "loop":
      return `loop ${step.count} times`;
    case "while":
      return `while ${names.ref(step.predicate)}`;
    case "cond":
      return `choose by ${names.ref(step.index)}`;
    case "start":
    case "done": {
      const { kind, source, target } = step.collective;
      return `${step.op} ${kind} ${names.ref(source)} → ${names.ref(target)}`;
    }
  }
}

/** A kernel: its loops, `|` before those of a row, then its values and stores, places as `arg[strides]`. */
export function printKernel(spec: KernelSpec): string {
  const [rows, inner] = [spec.dims.slice(0, spec.numRows), spec.dims.slice(spec.numRows)];
  return [
    `loops [${rows.join(" ")} | ${inner.join(" ")}]`.replace("[ ", "["),
    ...spec.fills.map(({ arg, count, value }) => `fill ${argName(arg)}: ${count} × ${value}`),
    ...spec.nodes.map((node, i) => `v${i} = ${printNode(node)}`),
    ...spec.stores.map(
      ({ node, access, combine, index }) =>
        `${printAccess(access, index)} ${combine ? `${combine}=` : "="} v${node}`,
    ),
  ].join("\n");
}

function argName(arg: number): string {
  return String.fromCharCode(97 + arg);
}

function printAccess({ arg, strides, offset }: Access, index?: Indirection): string {
  return `${argName(arg)}${offset ? `+${offset}` : ""}[${strides.join(" ")}]${index ? ` at ${printAccess(index.access)}·${index.stride}` : ""}`;
}

function printNode(node: KernelNode): string {
  const type = formatType({ dtype: node.dtype, shape: [] }).replace("[]", "");
  switch (node.kind) {
    case "literal":
      return `${type} ${node.value}`;
    case "load":
      return `${type} ${printAccess(node.access, node.index)}`;
    case "iota":
      return `${type} iota[${node.coefficients.join(" ")}]`;
    case "op": {
      const { op, direction, isBelowZero } = node.call;
      const name = [op, direction, isBelowZero && "below0"].filter(Boolean).join(".");
      return `${type} ${name}${node.args.map((arg) => ` v${arg}`).join("")}${node.result > 0 ? ` #${node.result}` : ""}`;
    }
    case "reduce":
      return `${type} ${node.combine} of v${node.arg} over the row`;
  }
}

/** The sections of a kernel in the order in which they run for a row, with what each takes and leaves. */
export function printPhases(plan: KernelPlan): string {
  const section = (name: string, s: Section): string[] => {
    if (s.outputs.length === 0) return [];
    const inputs = s.inputs.map(({ kind, node }) => (kind === "spill" ? `kept v${node}` : `v${node}`));
    const takes = [...inputs, ...s.uniforms.map((node) => `row v${node}`)];
    const leaves = s.outputs.map((output) => {
      if (output.kind === "store")
        return `${printAccess(output.store.access, output.store.index)} = v${output.store.node}`;
      return `${output.kind} v${output.node}`;
    });
    return [`${name}: ${takes.join(", ") || "nothing"} → ${leaves.join(", ")}`];
  };
  return [
    ...plan.phases.flatMap(({ row, inner }, p) => [
      ...section(`row ${p}`, row),
      ...section(`run ${p}`, inner),
    ]),
    ...section("last", plan.last),
  ].join("\n");
}
