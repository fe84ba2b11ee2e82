import type { CompiledProgram, KernelStep, SlotAddress, Step } from "../src/compiler/steps.js";
import { forEachStep, namedLists } from "../src/compiler/stepTree.js";
import { at, formatBytes, formatType, range } from "../src/ir/shape.js";

/**
 * A compiled program as text: its steps with what each computes and costs, then the boundary and the memory.
 *
 * ```
 * softmax: 1 step, 2.1 Mflop, 1 MiB touched, 0.5 MiB peak
 *   kernel k0(input 0 → …)   reduceMax sub exp reduceSum div   0.3 Mflop  0.1 MiB
 * ```
 */
export function explainProgram(program: CompiledProgram): string {
  const { cost } = program;
  const head = `${program.name}: ${countSteps(program.steps)} steps, ${flops(cost.flops)}, ${formatBytes(cost.bytes)} touched, ${formatBytes(cost.communicatedBytes)} sent, ${formatBytes(cost.peakBytes)} at the peak`;
  const inputs = program.inputs.map(
    ({ type, overwritten }, i) => `  input ${i}: ${formatType(type)}${overwritten ? " (overwritten)" : ""}`,
  );
  const outputs = program.outputs.map(({ type, inputIndex }, i) => {
    const where = inputIndex === undefined ? "" : ` in the memory of input ${inputIndex}`;
    return `  output ${i}: ${formatType(type)}${where}`;
  });
  return [
    head,
    ...inputs,
    ...outputs,
    `  arena: ${formatBytes(program.arenaBytes)}, kernels: ${program.modules.reduce((n, m) => n + m.exports.length, 0)}`,
    "steps",
    ...stepLines(program, program.steps, "  "),
  ].join("\n");
}

function countSteps(steps: readonly Step[]): number {
  let count = 0;
  forEachStep(steps, () => count++);
  return count;
}

function stepLines(program: CompiledProgram, steps: readonly Step[], indent: string): string[] {
  return steps.flatMap((step) => {
    const info = at(program.infos, step.info);
    const cost = [info.flops > 0 ? flops(info.flops) : "", info.bytes > 0 ? formatBytes(info.bytes) : ""];
    const line = [describe(program, step), info.ops.join(" "), ...cost]
      .filter((text) => text !== "")
      .join("  ");
    const inner = namedLists(step);
    return [
      `${indent}${line}`,
      ...inner.flatMap(([name, list]) => [
        ...(inner.length > 1 ? [`${indent}  ${name}`] : []),
        ...stepLines(program, list, `${indent}    `),
      ]),
    ];
  });
}

function describe(program: CompiledProgram, step: Step): string {
  const place = (p: SlotAddress) => formatAddress(program, p);
  switch (step.op) {
    case "kernel":
      return `kernel ${at(at(program.modules, step.module).exports, step.kernel)}(${kernelArgs(program, step)})`;
    case "gemm": {
      const batch = step.batch.map((b) => `${b.count}×`).join("");
      const sizes = step.ragged
        ? ` in ${step.ragged.groups} groups [${place(step.ragged.sizes)}] of ${step.ragged.dim}`
        : "";
      const flags = `${step.transposeA ? "T" : "N"}${step.transposeB ? "T" : "N"}`;
      return `gemm ${step.dtype === "bfloat16" ? "bfloat16 " : ""}${batch}${step.m}×${step.n}×${step.k} ${flags} ${place(step.a)} · ${place(step.b)}${step.beta === 0 ? "" : ` + ${place(step.c)}`} → ${place(step.c)}${sizes}`;
    }
    case "copy":
      return `copy ${place(step.source)} → ${place(step.target)}`;
    case "host":
      return `host ${step.kernel.kind} ${step.places.map(place).join(" ")}`;
    case "callback": {
      const [operands, results] = [
        step.places.slice(0, step.numOperands),
        step.places.slice(step.numOperands),
      ];
      const { fn } = at(program.callbacks, step.callback);
      return `call ${fn.label} ${operands.map(place).join(" ")} → ${results.map(place).join(" ")}`.trimEnd();
    }
    case "address":
      return `slot ${step.slot} = ${place(step.from)} + ${step.terms.map((t) => `[${place(t.index)}]·${t.stride}`).join(" + ") || 0}`;
    case "axisIndex":
      return `position → ${place(step.target)}`;
    case "loop":
      return `loop ${step.count} times`;
    case "while":
      return `while ${place(step.predicate)}`;
    case "cond":
      return `choose by ${place(step.index)}`;
    case "start":
    case "done": {
      const c = at(program.collectives, step.collective);
      const axes = c.axes.map((axis) => axis.name).join(", ");
      return `${step.op} ${c.kind} over ${axes} ${place(c.source)} → ${place(c.target)}`;
    }
  }
}

function kernelArgs(program: CompiledProgram, step: KernelStep): string {
  return kernelAddresses(program, step)
    .map((place) => formatAddress(program, place))
    .join(" ");
}

/** The arguments of a kernel, which are in the constants. */
function kernelAddresses(program: CompiledProgram, { args, numArgs }: KernelStep): SlotAddress[] {
  const { buffer, byteOffset } = program.constants;
  const view = new DataView(buffer, byteOffset + args, 8 * numArgs);
  return range(numArgs).map((i) => ({
    slot: view.getInt32(8 * i, true) / 4,
    offset: view.getUint32(8 * i + 4, true),
  }));
}

function formatAddress(program: CompiledProgram, { slot, offset }: SlotAddress): string {
  const base = at(program.slots, slot);
  const rest = offset === 0 ? "" : `+${offset}`;
  switch (base.kind) {
    case "arena":
      return `@${base.offset + offset}`;
    case "constant":
      return `const${rest}`;
    case "input":
      return `in${base.index}${rest}`;
    case "output":
      return `out${base.index}${rest}`;
    case "dynamic":
      return `slot${slot}${rest}`;
  }
}

function flops(n: number): string {
  return n >= 1e9
    ? `${(n / 1e9).toFixed(1)} Gflop`
    : n >= 1e6
      ? `${(n / 1e6).toFixed(1)} Mflop`
      : `${n} flop`;
}

/**
 * The memory plan as a picture: a row for every place of the arena, a column for every step, `█` where a step
 * touches the place. Places whose values are never needed at the same time are one row.
 *
 * ```
 *         @0  █ █ · ·
 *      @4096  · █ █ █
 * ```
 */
export function explainMemory(program: CompiledProgram): string {
  const columns = program.steps.map((step) => arenaPlaces(program, step));
  const offsets = [...new Set(columns.flatMap((places) => [...places]))].sort((a, b) => a - b);
  if (offsets.length === 0) return "memory plan: no scratch memory, everything lies in inputs and outputs";
  const width = Math.max(...offsets.map((offset) => `@${offset}`.length));
  const rows = offsets.map((offset) => {
    const cells = columns.map((places) => (places.has(offset) ? "█" : "·"));
    return `  ${`@${offset}`.padStart(width)}  ${cells.join("")}`;
  });
  const title = `memory plan: ${formatBytes(program.arenaBytes)}, a row for every place, a column for every step`;
  return [title, ...rows].join("\n");
}

/** The places of the arena that a step and the steps inside it touch. */
function arenaPlaces(program: CompiledProgram, step: Step): Set<number> {
  const found = new Set<number>();
  for (const { slot } of addressesOf(program, step)) {
    const base = at(program.slots, slot);
    if (base.kind === "arena") found.add(base.offset);
  }
  for (const [, list] of namedLists(step)) {
    for (const inner of list) for (const offset of arenaPlaces(program, inner)) found.add(offset);
  }
  return found;
}

function addressesOf(program: CompiledProgram, step: Step): readonly SlotAddress[] {
  switch (step.op) {
    case "kernel":
      return kernelAddresses(program, step);
    case "gemm":
      return [step.a, step.b, step.c, ...(step.ragged ? [step.ragged.sizes] : [])];
    case "copy":
      return [step.source, step.target];
    case "host":
    case "callback":
      return step.places;
    case "address":
      return [step.from, ...step.terms.map((term) => term.index)];
    case "axisIndex":
      return [step.target];
    case "while":
      return [step.predicate];
    case "cond":
      return [step.index];
    case "start":
    case "done": {
      const { source, target, ragged } = at(program.collectives, step.collective);
      return [source, target, ...(ragged ? [ragged.sends, ragged.receives] : [])];
    }
    case "loop":
      return [];
  }
}
