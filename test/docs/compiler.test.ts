import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { lax, Mesh, makeProgram, np, P, shardMap, type Tensor } from "shardwise";
import * as nn from "shardwise/nn";
import { describe, expect, test, vi } from "vitest";
import { explainProgram } from "../../scripts/explainProgram.js";
import { compileProgram, lowerProgram } from "../../src/compiler/compile.js";
import { fuse, type Unit } from "../../src/compiler/fuse/fuse.js";
import { canonical } from "../../src/compiler/kernel/canonical.js";
import { KernelLibrary } from "../../src/compiler/kernel/kernelLibrary.js";
import { markBelowZero } from "../../src/compiler/kernel/markBelowZero.js";
import { planKernel } from "../../src/compiler/kernel/phases.js";
import { isView } from "../../src/compiler/lowering.js";
import { normalise } from "../../src/compiler/normalise/normalise.js";
import { planMemory } from "../../src/compiler/plan/memoryPlan.js";
import type { UnplacedStep } from "../../src/compiler/plan/plannedSteps.js";
import { scheduleCollectives } from "../../src/compiler/plan/scheduleCollectives.js";
import { BASELINE_FEATURES } from "../../src/compiler/wasm/features.js";
import { hostEngine } from "../../src/engines/host.js";
import type { Atom } from "../../src/ir/program.js";
import { at } from "../../src/ir/shape.js";
import { printProgram } from "../../src/ir/text/print.js";
import { partition } from "../../src/spmd/partition/partition.js";
import { findDifference, randomInputs } from "../compiler/differential.js";
import { BufferNames, printFused, printKernel, printPhases, printPlanned } from "../support/compilerText.js";
import { box, drawing, label, line, type Tone, tip } from "../support/drawings.js";
import { describePage } from "../support/pages.js";
import { replay } from "../support/replay.js";

const layer = (x: Tensor, up: Tensor, bias: Tensor, down: Tensor, gate: Tensor) => {
  const hidden = nn.gelu(np.matmul(x, up).add(bias));
  const sum = lax.psum(np.matmul(hidden, down), "model");
  return nn.softmax(np.matmul(x, gate)).mul(sum);
};

const mesh = Mesh.create({ model: 2 }, { engine: hostEngine });
const sharded = shardMap(layer, {
  mesh,
  inSpecs: [P(), P(null, "model"), P("model"), P("model"), P()],
  outSpecs: P(),
});

/** The program of one device, as the partitioner hands it to the compiler. */
function perDevice() {
  const shapes = [[8, 16], [16, 64], [64], [64, 16], [16, 16]];
  const [x, up, bias, down, gate] = shapes.map((shape) => np.zeros(shape));
  if (!x || !up || !bias || !down || !gate) throw new Error("five operands");
  const whole = makeProgram(sharded)(x, up, bias, down, gate);
  return partition(whole, mesh).program;
}

const program = perDevice();
const options = { mesh: { axes: [{ name: "model", size: 2 }] }, name: "layer" };
const fused = fuse(normalise(program));

const add = vi.spyOn(KernelLibrary.prototype, "add");
const { steps, compilation, inputs, outputs } = lowerProgram(program, options);
const softmax = add.mock.calls
  .map(([spec]) => spec)
  .find((spec) => spec.nodes.some((node) => node.kind === "reduce"));
add.mockRestore();
if (!softmax) throw new Error("no kernel reduces");
const kernel = markBelowZero(canonical(softmax));

const names = new BufferNames();
const { infos } = compilation;
const lowered = printPlanned(steps, infos, names);
const scheduled = scheduleCollectives(steps, infos);
const order = printPlanned(scheduled, infos, names);
const scheduleDrawing = drawSchedule();
const plan = planMemory(scheduled, inputs, outputs, []);
const places = [...plan.offsets].map(([buffer, offset]) => ({ buffer, name: names.of(buffer), offset }));
const shared = printPlanned(scheduled, infos, names);

describePage("compiler.md", import.meta.url, {
  program: () => printProgram(program),
  normalised: () => printProgram(normalise(program)),
  fused: () => printFused(fused),
  lowered: () => lowered,
  kernel: () => printKernel(canonical(softmax)),
  faster: () => printKernel(kernel),
  phases: () => printPhases(planKernel(kernel, BASELINE_FEATURES)),
  scheduled: () => order,
  planned: () =>
    [
      shared,
      "",
      ...places.map(
        ({ buffer, name, offset }) => `${name} at ${offset}..${offset + buffer.bytes} of ${plan.arenaBytes}`,
      ),
    ].join("\n"),
  compiled: () => explainProgram(compileProgram(program, options)),
});

/** For every unit the earlier ones whose results it reads, looking through views. */
function unitReads(): readonly (readonly number[])[] {
  const eqnsOf = (unit: Unit) => (unit.kind === "eqn" ? [unit.eqn] : unit.group.members);
  const unitOf = new Map(
    fused.units.flatMap((unit, u) =>
      eqnsOf(unit).flatMap((eqn) => eqn.outs.map((out) => [out.id, u] as const)),
    ),
  );
  const sources = (atom: Atom): number[] => {
    const eqn = atom.kind === "var" ? fused.definitions.get(atom.id) : undefined;
    if (eqn && isView(eqn)) return eqn.ins.flatMap(sources);
    return atom.kind === "var" ? [unitOf.get(atom.id) ?? -1] : [];
  };
  return fused.units.map((unit, u) => {
    const found = new Set(eqnsOf(unit).flatMap((eqn) => eqn.ins.flatMap(sources)));
    return [...found].filter((other) => other >= 0 && other !== u);
  });
}

/** The units as boxes from top to bottom, each with its equations, and a line from each to those that read it. */
function drawGroups(): string {
  const blocks: { readonly head: string; readonly lines: string[] }[] = [];
  for (const text of printFused(fused).split("\n")) {
    if (text.startsWith("  ")) blocks.at(-1)?.lines.push(text.trim());
    else blocks.push({ head: text, lines: [] });
  }
  const longest = Math.max(
    ...blocks.flatMap(({ head, lines }) => [head, ...lines].map((text) => text.length)),
  );
  const right = 30 + 8 * longest;
  let y = 10;
  const tops = blocks.map(({ lines }) => {
    const top = y;
    y += 46 + 18 * lines.length;
    return top;
  });
  const boxes = blocks.flatMap(({ head, lines }, i) => {
    const tone: Tone = head === "step" ? (lines.some((text) => text.includes("psum")) ? "b" : "box") : "a";
    return [
      box(10, at(tops, i), right - 10, 30 + 18 * lines.length, tone),
      label(20, at(tops, i) + 20, head, true),
      ...lines.map((text, k) => label(30, at(tops, i) + 38 + 18 * k, text)),
    ];
  });
  const links = unitReads().flatMap((sources, reader) =>
    sources.flatMap((source) => {
      const [from, to] = [at(tops, source) + 22, at(tops, reader) + 10];
      const x = right + 14 * (reader - source);
      return [line(right, from, x, from), line(x, from, x, to), line(right, to, x, to), tip(right, to)];
    }),
  );
  return drawing("The units of the program after fusion", right + 70, y, [...boxes, ...links]);
}

/** Two rows of steps, in the order of the program and as scheduled; a bar from the start to the end of the sum. */
function drawSchedule(): string {
  const row = (list: readonly UnplacedStep[], top: number, title: string): string[] => {
    const column = (i: number) => 20 + 110 * i;
    const compute: readonly UnplacedStep[] = list.filter((step) => step.op !== "start" && step.op !== "done");
    const before = (op: "start" | "done") => {
      const place = list.findIndex((step) => step.op === op);
      return list.slice(0, place).filter((step) => compute.includes(step)).length;
    };
    const [start, done] = [before("start"), before("done")];
    const isCovered = done > start;
    // What the sum holds up stands behind it when nothing hides it.
    const shift = (i: number) => (isCovered || i < start ? i : i + 1);
    const end = isCovered ? done : start + 1;
    return [
      label(20, top, title, true),
      ...compute.flatMap((step, i) => [
        box(column(shift(i)), top + 12, 104, 34, step.op === "kernel" ? "a" : "box"),
        label(column(shift(i)) + 10, top + 34, stepName(step)),
      ]),
      box(column(start), top + 52, column(end) - column(start) - 6, 34, "b"),
      label(column(start) + 10, top + 74, "psum"),
    ];
  };
  const shapes = [...row(steps, 24, "in the order of the program"), ...row(scheduled, 146, "as scheduled")];
  return drawing("The steps before and after scheduling", 20 + 110 * 6 + 10, 246, shapes);
}

function stepName(step: UnplacedStep): string {
  if (step.op === "gemm") return `gemm→${names.of(step.c.buffer)}`;
  if (step.op !== "kernel") return step.op;
  return `kernel→${names.of(at(step.args, at(step.writes, 0)).buffer)}`;
}

/** Addresses upwards, steps to the right: a box for every buffer from its first to its last use. */
function drawMemory(): string {
  const executions = replay(scheduled);
  const [left, column, scale] = [90, 96, 180 / plan.arenaBytes];
  const base = 200;
  const boxes = places.map(({ buffer, name, offset }) => {
    const used = executions.flatMap(({ reads, writes }, i) =>
      [...reads, ...writes].includes(buffer) ? [i] : [],
    );
    const [first, last] = [Math.min(...used), Math.max(...used)];
    const height = buffer.bytes * scale;
    const top = base - offset * scale - height;
    const x = left + column * first;
    return [
      box(x, top, column * (last - first + 1) - 4, height, "a"),
      label(x + 8, height < 20 ? top - 6 : top + height / 2 + 5, `${name}: ${buffer.bytes} B`),
    ];
  });
  const offsets = [...new Set([...places.map(({ offset }) => offset), plan.arenaBytes])];
  const rules = offsets.flatMap((offset) => {
    const y = base - offset * scale;
    return [
      line(left - 6, y, left + column * executions.length, y),
      label(10, y + 4, `@${offset}`.padStart(8), true),
    ];
  });
  const ticks = executions.map(({ step }, i) => label(left + column * i + 8, base + 20, step.op, true));
  const width = left + column * executions.length + 10;
  return drawing("The arena: addresses over steps", width, base + 34, [...rules, ...boxes.flat(), ...ticks]);
}

const drawings: Readonly<Record<string, () => string>> = {
  "compiler-groups.svg": drawGroups,
  "compiler-schedule.svg": () => scheduleDrawing,
  "compiler-memory.svg": drawMemory,
};

/** The passes in the order of the page, with the paths of their sources. */
const passes = [
  "normalise/normalise",
  "normalise/narrowProducts",
  "normalise/joinPads",
  "normalise/bucketSums",
  "normalise/indicesFirst",
  "fuse/fuse",
  "fuse/group",
  "fuse/reachability",
  "plan/limitRows",
  "kernel/canonical",
  "kernel/markBelowZero",
  "kernel/sumRows",
  "kernel/phases",
  "kernel/loopPlan",
  "plan/scheduleCollectives",
  "plan/fuseUpdates",
  "plan/memoryPlan",
  "plan/finalise",
];

describe("docs/compiler.md", () => {
  const docs = fileURLToPath(new URL("../../docs/", import.meta.url));
  const page = () => readFileSync(`${docs}compiler.md`, "utf8");

  test.each(Object.keys(drawings))("shows %s as it is drawn", (name) => {
    const path = `${docs}images/${name}`;
    const drawn = drawings[name]?.() ?? "";
    if (process.env.UPDATE) {
      mkdirSync(`${docs}images`, { recursive: true });
      writeFileSync(path, drawn);
    }
    expect(readFileSync(path, "utf8")).toBe(drawn);
    expect(page()).toContain(`(images/${name})`);
  });

  test.each(passes)("says of %s what its source says, and a test stands beside it", (pass) => {
    const source = fileURLToPath(new URL(`../../src/compiler/${pass}`, import.meta.url));
    const [, comment = ""] = /^\/\*\*\n([\s\S]*?)\n \*\//.exec(readFileSync(`${source}.ts`, "utf8")) ?? [];
    const said = comment.split(/\n \*\n/).map((part) => part.replaceAll(/\n? \* /g, " ").trim());
    expect(said.map((part) => part.split(" ")[0]?.replace(",", ""))).toEqual(["Afterwards", "Unchanged"]);
    expect(existsSync(`${source}.test.ts`), "a test beside it").toBe(true);
    const block = new RegExp(`(<!-- invariant: ${pass} -->\n)((?:>.*\n)*)`);
    const quoted = said.map((part) => `> ${part}\n`).join(">\n");
    if (process.env.UPDATE) writeFileSync(`${docs}compiler.md`, page().replace(block, `$1${quoted}`));
    expect(block.exec(page())?.[2]).toBe(quoted);
  });

  test("compiles a program that computes what the reference engine does", () => {
    const data = randomInputs(program, options.mesh, 1);
    expect(findDifference(program, data, options)).toBeUndefined();
  });
});
