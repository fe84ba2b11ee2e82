import { describe, expect, test } from "vitest";
import { explainProgram } from "../../../scripts/explainProgram.js";
import { findDifference, randomInputs } from "../../../test/compiler/differential.js";
import { randomProgram } from "../../../test/compiler/randomProgram.js";
import { printPlanned, text } from "../../../test/support/compilerText.js";
import { buildProgram } from "../../../test/support/interpreting.js";
import type { Program } from "../../ir/program.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { compileProgram, lowerProgram } from "../compile.js";
import type { CompiledProgram, Step } from "../steps.js";
import { innerSteps } from "../stepTree.js";
import { finalise } from "./finalise.js";
import { planMemory } from "./memoryPlan.js";
import type { UnplacedStep } from "./plannedSteps.js";
import { scheduleCollectives } from "./scheduleCollectives.js";

const mesh = {
  axes: [
    { name: "x", size: 2 },
    { name: "y", size: 2 },
  ],
};

interface Finalised {
  readonly planned: readonly UnplacedStep[];
  readonly text: string;
  readonly compiled: CompiledProgram;
}

function finalised(program: Program, donated: readonly boolean[]): Finalised {
  const { steps, compilation, inputs, outputs } = lowerProgram(program, { mesh });
  const planned = scheduleCollectives(steps, compilation.infos);
  const plan = planMemory(planned, inputs, outputs, donated);
  return {
    planned,
    text: printPlanned(planned, compilation.infos),
    compiled: finalise("example", program, compilation, planned, plan),
  };
}

describe("how names become addresses", () => {
  const square = tensorType("float32", [16, 16]);
  const dot = { lhsContract: [1], rhsContract: [0], lhsBatch: [], rhsBatch: [], dtype: "float32" } as const;
  const program = buildProgram([square, square], (emit, x, w) => {
    const product = at(emit("dotGeneral", [x, w], dot), 0);
    const sum = at(emit("psum", [product], { axes: mesh.axes }), 0);
    return emit("dotGeneral", [sum, w], dot);
  });

  test("buffers are places of the arena, of inputs and of outputs", () => {
    const { text: before, compiled } = finalised(program, []);
    expect(before).toBe(text`
      gemm 16×16×16 in0 in1 → t0  dotGeneral
      start allReduce t0 → t0  psum
      done allReduce t0 → t0  psum
      gemm 16×16×16 t0 in1 → out0  dotGeneral`);
    expect(explainProgram(compiled).split("steps\n")[1]).toBe(
      [
        "  gemm 16×16×16 NN in0 · in1 → @0  dotGeneral  8192 flop  3 KiB",
        "  start allReduce over x, y @0 → @0  psum  2 KiB",
        "  done allReduce over x, y @0 → @0  psum  2 KiB",
        "  gemm 16×16×16 NN @0 · in1 → out0  dotGeneral  8192 flop  3 KiB",
      ].join("\n"),
    );
  });

  test("an output in the memory of a donated input has no slot of its own", () => {
    const sum = buildProgram([square, square], (emit, x, y) => emit("add", [x, y], {}));
    const { compiled } = finalised(sum, [false, true]);
    expect(compiled.outputs.map(({ inputIndex }) => inputIndex)).toEqual([1]);
    expect(compiled.inputs.map(({ overwritten }) => overwritten)).toEqual([false, true]);
    expect(compiled.slots.map(({ kind }) => kind)).not.toContain("output");
  });
});

const flatten = (steps: readonly Step[]): Step[] =>
  steps.flatMap((step) => [step, ...innerSteps(step).flatMap(flatten)]);
const flattenPlanned = (steps: readonly UnplacedStep[]): UnplacedStep[] =>
  steps.flatMap((step) => [step, ...innerSteps(step).flatMap(flattenPlanned)]);

/** All places that a value names, however deep. */
function placesIn(value: unknown): { readonly slot: number; readonly offset: number }[] {
  if (typeof value !== "object" || value === null) return [];
  if (
    "slot" in value &&
    "offset" in value &&
    typeof value.slot === "number" &&
    typeof value.offset === "number"
  )
    return [{ slot: value.slot, offset: value.offset }];
  return Object.values(value).flatMap(placesIn);
}

/** Whether a value is made of plain objects, lists, numbers and words alone. */
function isPlain(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return typeof value !== "function";
  const prototype = Object.getPrototypeOf(value);
  return (prototype === Object.prototype || Array.isArray(value)) && Object.values(value).every(isPlain);
}

test("the machine code of a kernel is written once for all programs that have it", () => {
  const type = tensorType("float32", [96]);
  const program = buildProgram([type], (emit, x) => emit("mul", [at(emit("abs", [x], {}), 0), x], {}));
  const codeOf = (vectorBits: 256 | 512) =>
    at(compileProgram(program, { mesh, vectorBits }).modules, 0).native;
  expect(codeOf(256)[0]).toBeInstanceOf(Uint8Array);
  expect(codeOf(256)[0]).toBe(codeOf(256)[0]);
  expect(codeOf(512)[0]).not.toEqual(codeOf(256)[0]);
});

describe("random programs, finalised", () => {
  const cases = range(150).map((seed) => {
    const program = randomProgram({ seed: 13_000 + seed, numEqns: 6 + (seed % 30), axes: mesh.axes });
    const donated = program.inputs.map((_, i) => (seed + i) % 2 === 0);
    return { name: `seed ${seed}`, seed, program, donated, ...finalised(program, donated) };
  });

  test("have the steps that were planned, in that order, without copies from a place to itself", () => {
    for (const { name, planned, compiled } of cases) {
      const steps = flatten(compiled.steps);
      const kinds = steps.map(({ op, info }) => `${op} ${info}`);
      const all = flattenPlanned(planned).map(({ op, info }) => `${op} ${info}`);
      const left = [...kinds];
      const dropped = all.filter((kind) => (left[0] === kind ? !left.shift() : true));
      expect(left, name).toEqual([]);
      expect(
        dropped.filter((kind) => !kind.startsWith("copy")),
        name,
      ).toEqual([]);
      const idle = steps.filter(
        (step) => step.op === "copy" && JSON.stringify(step.source) === JSON.stringify(step.target),
      );
      expect(idle, name).toEqual([]);
    }
  });

  test("are plain data, with places that exist", () => {
    for (const { name, compiled } of cases) {
      expect(isPlain(compiled.steps) && isPlain(compiled.collectives), name).toBe(true);
      for (const { slot, offset } of placesIn([compiled.steps, compiled.collectives])) {
        const base = at(compiled.slots, slot);
        const sizes = {
          arena: compiled.arenaBytes,
          constant: compiled.constants.length,
          dynamic: Number.POSITIVE_INFINITY,
        };
        const size =
          base.kind === "input"
            ? at(compiled.inputs, base.index).bytes
            : base.kind === "output"
              ? at(compiled.outputs, base.index).bytes
              : sizes[base.kind];
        expect(offset >= 0 && offset <= size, `${name}: ${offset} of ${base.kind}`).toBe(true);
      }
    }
  });

  test("start and end each collective by one entry", () => {
    for (const { name, compiled } of cases) {
      const of = (op: "start" | "done") =>
        flatten(compiled.steps).flatMap((step) => (step.op === op ? [step.collective] : []));
      const all = [...compiled.collectives.keys()];
      for (const op of ["start", "done"] as const)
        expect(
          [...of(op)].sort((a, b) => a - b),
          name,
        ).toEqual(all);
    }
  });

  test("compute what the reference engine does, over donated inputs too", () => {
    for (const { name, seed, program, donated } of cases.slice(0, 40))
      expect(
        findDifference(program, randomInputs(program, mesh, seed), { mesh, donated }),
        name,
      ).toBeUndefined();
  });
});
