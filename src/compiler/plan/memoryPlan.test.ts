import { describe, expect, test } from "vitest";
import { randomProgram } from "../../../test/compiler/randomProgram.js";
import { BufferNames, printPlanned, text } from "../../../test/support/compilerText.js";
import { buildProgram } from "../../../test/support/interpreting.js";
import { type Execution, replay } from "../../../test/support/replay.js";
import type { Program } from "../../ir/program.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { lowerProgram } from "../compile.js";
import { ALIGNMENT } from "../steps.js";
import { type MemoryPlan, planMemory } from "./memoryPlan.js";
import type { Buffer } from "./planBuffers.js";
import type { UnplacedStep } from "./plannedSteps.js";
import { scheduleCollectives } from "./scheduleCollectives.js";

const mesh = {
  axes: [
    { name: "x", size: 2 },
    { name: "y", size: 2 },
  ],
};

interface Planned {
  readonly steps: readonly UnplacedStep[];
  readonly inputs: readonly Buffer[];
  readonly outputs: readonly Buffer[];
  readonly plan: MemoryPlan;
  /** The steps before the plan, and after it, when buffers that share memory have one name. */
  readonly before: string;
  readonly after: string;
  readonly offsets: string;
}

function planned(program: Program, donated: readonly boolean[] = [], pageBytes?: number): Planned {
  const { steps, compilation, inputs, outputs } = lowerProgram(program, { mesh });
  const scheduled = scheduleCollectives(steps, compilation.infos);
  const names = new BufferNames();
  const before = printPlanned(scheduled, compilation.infos, names);
  const plan = planMemory(scheduled, inputs, outputs, donated, pageBytes);
  const after = printPlanned(scheduled, compilation.infos, names);
  const rows = [...plan.offsets].map(([buffer, offset]) => [names.of(buffer), offset, offset + buffer.bytes]);
  const offsets = rows
    .map(([name, from, to]) => `${name} ${from}..${to}`)
    .sort()
    .join("\n");
  return { steps: scheduled, inputs, outputs, plan, before, after, offsets };
}

const dot = { lhsContract: [1], rhsContract: [0], lhsBatch: [], rhsBatch: [], dtype: "float32" } as const;
const square = tensorType("float32", [16, 16]);

describe("what the plan shares", () => {
  test("values that are not alive together lie at one address, and kernels work in place", () => {
    const program = buildProgram([square], (emit, x) => {
      const a = at(emit("dotGeneral", [x, x], dot), 0);
      const b = at(emit("exp", [a], {}), 0);
      const c = at(emit("dotGeneral", [b, x], dot), 0);
      const d = at(emit("dotGeneral", [c, x], dot), 0);
      return emit("dotGeneral", [d, x], dot);
    });
    const { before, after, offsets, plan } = planned(program);
    expect(before).toBe(text`
      gemm 16×16×16 in0 in0 → t0  dotGeneral
      kernel t0 → t1  exp
      gemm 16×16×16 t1 in0 → t2  dotGeneral
      gemm 16×16×16 t2 in0 → t3  dotGeneral
      gemm 16×16×16 t3 in0 → out0  dotGeneral`);
    expect(after).toBe(text`
      gemm 16×16×16 in0 in0 → t0  dotGeneral
      kernel t0 → t0  exp
      gemm 16×16×16 t0 in0 → t2  dotGeneral
      gemm 16×16×16 t2 in0 → t3  dotGeneral
      gemm 16×16×16 t3 in0 → out0  dotGeneral`);
    expect(offsets).toBe(text`
      t0 0..1024
      t2 1024..2048
      t3 0..1024`);
    expect(plan.arenaBytes).toBe(2048);
  });

  test("an output takes the memory of a donated input, and of no other", () => {
    const program = buildProgram([square, square], (emit, x, y) => emit("add", [x, y], {}));
    expect([...planned(program, [false, true]).plan.donatedTo]).toEqual([[0, 1]]);
    expect([...planned(program).plan.donatedTo]).toEqual([]);
  });
});

/** Where a buffer lies: the arena, or the memory of an input or an output. */
interface Region {
  readonly space: string;
  readonly start: number;
  readonly end: number;
}

function regionOf({ offsets, donatedTo }: MemoryPlan, buffer: Buffer): Region | undefined {
  const { kind, bytes } = buffer;
  switch (kind.kind) {
    case "temporary": {
      const start = offsets.get(buffer);
      return start === undefined ? undefined : { space: "arena", start, end: start + bytes };
    }
    case "input":
      return { space: `input ${kind.index}`, start: 0, end: bytes };
    case "output": {
      const donor = donatedTo.get(kind.index);
      return { space: donor === undefined ? `output ${kind.index}` : `input ${donor}`, start: 0, end: bytes };
    }
    default:
      return undefined;
  }
}

/** Follows which buffer wrote each place last; whoever reads a buffer must find what was written to that one. */
function clobbered({ steps, inputs, outputs, plan }: Planned): string[] {
  const problems: string[] = [];
  const written = new Map<Buffer, Region>();
  const overlaps = (a: Region, b: Region) => a.space === b.space && a.start < b.end && b.start < a.end;
  const check = (buffer: Buffer, what: string): void => {
    if (buffer.kind.kind === "temporary" && buffer.bytes > 0 && !plan.offsets.has(buffer))
      problems.push(`${what} has no place`);
    if (lost.has(buffer)) problems.push(`${what} was overwritten by another buffer`);
  };
  const lost = new Set<Buffer>();
  const write = (buffer: Buffer): void => {
    const region = regionOf(plan, buffer);
    if (!region) return;
    for (const [other, place] of written) if (other !== buffer && overlaps(place, region)) lost.add(other);
    for (const other of lost) written.delete(other);
    written.set(buffer, region);
    lost.delete(buffer);
  };
  // Inputs hold their values from the start on.
  inputs.forEach(write);
  for (const execution of replay(steps)) {
    const what = (buffer: Buffer) => `${execution.step.op}: buffer ${buffer.id}`;
    for (const buffer of execution.reads) check(buffer, what(buffer));
    execution.writes.forEach(write);
  }
  for (const output of outputs) check(output.root(), `output ${output.id}`);
  return problems;
}

/** Pairs of buffers that overlap in the arena though both are in use between their first and last steps. */
function overlapping({ steps, plan }: Planned): string[] {
  const lives = new Map<Buffer, { first: number; last: number }>();
  const touch = ({ reads, writes }: Execution, time: number) => {
    for (const buffer of [...reads, ...writes]) {
      const life = lives.get(buffer) ?? { first: time, last: time };
      lives.set(buffer, { first: life.first, last: time });
    }
  };
  replay(steps).forEach(touch);
  const list = [...lives].flatMap(([buffer, life]) => {
    const start = plan.offsets.get(buffer);
    return start === undefined || buffer.bytes === 0
      ? []
      : [{ ...life, buffer, start, end: start + buffer.bytes }];
  });
  return list.flatMap((a, i) =>
    list
      .slice(i + 1)
      .filter((b) => a.first <= b.last && b.first <= a.last && a.start < b.end && b.start < a.end)
      .map((b) => `buffers ${a.buffer.id} and ${b.buffer.id}`),
  );
}

test("what a loop reads in its first step is not overwritten by its last, which comes before the next iteration", () => {
  const { offsets, ...rest } = planned(
    buildProgram([square, square], (emit, x, w) => {
      const outside = at(emit("dotGeneral", [x, w], dot), 0);
      const body = buildProgram([square, square, square], (inner, before, factor, carry) => {
        const first = at(inner("dotGeneral", [before, carry], dot), 0);
        const second = at(inner("dotGeneral", [first, factor], dot), 0);
        const third = at(inner("dotGeneral", [second, factor], dot), 0);
        return inner("dotGeneral", [third, factor], dot);
      });
      const params = { body, length: 5, reverse: false, numConsts: 2, numCarry: 1 };
      return emit("scan", [outside, w, x], params);
    }),
  );
  expect(rest.steps.map((step) => step.op)).toContain("loop");
  expect(clobbered({ offsets, ...rest }), `${rest.after}\n${offsets}`).toEqual([]);
});

describe("random programs, planned", () => {
  const cases = range(300).map((seed) => {
    const axes = seed % 2 === 0 ? mesh.axes : [];
    const program = randomProgram({ seed: 11_000 + seed, numEqns: 6 + (seed % 40), axes });
    const donated = program.inputs.map((_, i) => (seed + i) % 2 === 0);
    // Some arenas consist of pages.
    return { name: `seed ${seed}`, donated, ...planned(program, donated, seed % 3 === 0 ? 256 : undefined) };
  });
  const isStraight = ({ steps }: Planned) =>
    steps.every((step) => step.op !== "loop" && step.op !== "while" && step.op !== "cond");

  test("have no two buffers at one address while both are alive", () => {
    const straight = cases.filter(isStraight);
    expect(straight.length).toBeGreaterThan(100);
    for (const planned of straight)
      expect(overlapping(planned), `${planned.name}\n${planned.after}`).toEqual([]);
  });

  test("read from every buffer what was written to it, in loops and choices too", () => {
    for (const planned of cases) expect(clobbered(planned), `${planned.name}\n${planned.after}`).toEqual([]);
  });

  test("never write to an input that is not donated, and give each donated one to one output at most", () => {
    for (const { name, steps, plan, donated } of cases) {
      const written = replay(steps).flatMap(({ writes }) =>
        writes.flatMap(({ kind }) => (kind.kind === "input" ? [kind.index] : [])),
      );
      expect(written, name).toEqual([]);
      const donors = [...plan.donatedTo.values()];
      expect(new Set(donors).size, name).toBe(donors.length);
      expect(
        donors.filter((i) => !donated[i]),
        name,
      ).toEqual([]);
    }
  });

  test("have every place aligned and inside the arena", () => {
    for (const { name, plan } of cases) {
      for (const [buffer, offset] of plan.offsets) {
        expect(offset % ALIGNMENT, name).toBe(0);
        expect(offset + buffer.bytes, name).toBeLessThanOrEqual(plan.arenaBytes);
      }
    }
  });

  test("have no buffer in two pages of the arena unless it is larger than one", () => {
    let numPages = 0;
    for (const { name, plan } of cases) {
      const { pageBytes, pages } = plan;
      numPages = Math.max(numPages, pages.length);
      for (const [buffer, offset] of plan.offsets) {
        const inPage = offset % pageBytes;
        if (buffer.bytes <= pageBytes) expect(inPage + buffer.bytes, name).toBeLessThanOrEqual(pageBytes);
        else expect(inPage, name).toBe(0);
        expect(inPage + buffer.bytes, name).toBeLessThanOrEqual(pages[Math.floor(offset / pageBytes)] ?? 0);
      }
    }
    expect(numPages).toBeGreaterThan(2);
  });

  test("take less memory together than their buffers do", () => {
    const arenas = cases.reduce((sum, { plan }) => sum + plan.arenaBytes, 0);
    const padded = ({ bytes }: Buffer) => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
    const buffers = cases.reduce(
      (sum, { plan }) => sum + [...plan.offsets.keys()].reduce((n, buffer) => n + padded(buffer), 0),
      0,
    );
    expect(arenas).toBeLessThan(0.8 * buffers);
  });
});
