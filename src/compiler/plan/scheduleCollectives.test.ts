import { describe, expect, test } from "vitest";
import { randomProgram } from "../../../test/compiler/randomProgram.js";
import { BufferNames, printPlanned, text } from "../../../test/support/compilerText.js";
import { buildProgram } from "../../../test/support/interpreting.js";
import { replay } from "../../../test/support/replay.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { lowerProgram } from "../compile.js";
import { innerSteps } from "../stepTree.js";
import type { Buffer } from "./planBuffers.js";
import type { PlannedCollective, UnplacedStep } from "./plannedSteps.js";
import { scheduleCollectives } from "./scheduleCollectives.js";

const mesh = {
  axes: [
    { name: "x", size: 2 },
    { name: "y", size: 2 },
  ],
};

describe("what the schedule moves", () => {
  test("a collective starts as soon as it can, and ends when enough other work has hidden it", () => {
    const type = tensorType("float32", [64, 64]);
    const dot = { lhsContract: [1], rhsContract: [0], lhsBatch: [], rhsBatch: [], dtype: "float32" } as const;
    const program = buildProgram([type, type], (emit, x, w) => {
      const own = at(emit("dotGeneral", [w, w], dot), 0);
      const far = at(emit("exp", [x], {}), 0);
      const sum = at(emit("psum", [far], { axes: mesh.axes }), 0);
      const other = at(emit("dotGeneral", [own, w], dot), 0);
      return emit("add", [other, sum], {});
    });
    const { steps, compilation } = lowerProgram(program, { mesh });
    const names = new BufferNames();
    expect(printPlanned(steps, compilation.infos, names)).toBe(text`
      gemm 64×64×64 in1 in1 → t0  dotGeneral
      kernel in0 → t1  exp
      start allReduce t1 → t2  psum
      done allReduce t1 → t2  psum
      gemm 64×64×64 t0 in1 → t3  dotGeneral
      kernel t3 t2 → out0  add`);
    expect(printPlanned(scheduleCollectives(steps, compilation.infos), compilation.infos, names)).toBe(text`
      kernel in0 → t1  exp
      start allReduce t1 → t2  psum
      gemm 64×64×64 in1 in1 → t0  dotGeneral
      done allReduce t1 → t2  psum
      gemm 64×64×64 t0 in1 → t3  dotGeneral
      kernel t3 t2 → out0  add`);
  });

  test("without collectives nothing moves", () => {
    const { steps, compilation } = lowerProgram(randomProgram({ seed: 5, numEqns: 30 }), { mesh });
    expect(scheduleCollectives(steps, compilation.infos)).toEqual(steps);
  });
});

const flatten = (steps: readonly UnplacedStep[]): UnplacedStep[] =>
  steps.flatMap((step) => [step, ...innerSteps(step).flatMap(flatten)]);

/** For every execution of a step the versions of the buffers that it reads and writes. */
function dataFlow(steps: readonly UnplacedStep[]): ReadonlyMap<string, readonly string[]> {
  const versions = new Map<Buffer, number>();
  const result = new Map<string, readonly string[]>();
  for (const { step, occurrence, reads, writes } of replay(steps)) {
    const seen = reads.map((buffer) => `reads ${buffer.id} as of ${versions.get(buffer) ?? 0}`);
    for (const buffer of new Set(writes)) versions.set(buffer, (versions.get(buffer) ?? 0) + 1);
    const left = writes.map((buffer) => `leaves ${buffer.id} as of ${versions.get(buffer) ?? 0}`);
    result.set(`${step.op} ${step.info} ${occurrence}`, [...seen, ...left].sort());
  }
  return result;
}

/** What is wrong with the collectives of a list of steps and of the lists inside it. */
function collectiveProblems(steps: readonly UnplacedStep[]): string[] {
  const open = new Set<PlannedCollective>();
  const problems: string[] = [];
  for (const step of steps) {
    if (step.op === "start") open.add(step.collective);
    else if (step.op === "done" && !open.delete(step.collective)) problems.push("a done without its start");
    else if (step.op !== "done") {
      for (const { reads, writes } of replay([step])) {
        for (const { source, target } of open) {
          if (writes.includes(source.buffer.root())) problems.push(`${step.op} writes what is being sent`);
          if ([...reads, ...writes].includes(target.buffer.root()))
            problems.push(`${step.op} touches what arrives`);
        }
      }
    }
    problems.push(...innerSteps(step).flatMap(collectiveProblems));
  }
  return open.size > 0 ? [...problems, "a start without its done"] : problems;
}

describe("random programs on a mesh, scheduled", () => {
  const compile = (seed: number) => {
    const program = randomProgram({ seed: 9000 + seed, numEqns: 10 + (seed % 30), axes: mesh.axes });
    const { steps, compilation } = lowerProgram(program, { mesh });
    return { steps, scheduled: scheduleCollectives(steps, compilation.infos), infos: compilation.infos };
  };
  const cases = range(200).map(compile);

  test("run the same steps, and each reads what it read before", () => {
    cases.forEach(({ steps, scheduled }, seed) => {
      expect(dataFlow(scheduled), `seed ${seed}`).toEqual(dataFlow(steps));
    });
  });

  test("start a collective before they end it, and leave its memory alone in between", () => {
    cases.forEach(({ scheduled, infos }, seed) => {
      expect(collectiveProblems(scheduled), `seed ${seed}\n${printPlanned(scheduled, infos)}`).toEqual([]);
    });
  });

  test("have the same order on devices that compile for themselves", () => {
    cases.slice(0, 60).forEach(({ scheduled, infos }, seed) => {
      const other = compile(seed);
      expect(printPlanned(other.scheduled, other.infos)).toBe(printPlanned(scheduled, infos));
    });
  });

  test("have work between start and done in many places", () => {
    const covered = cases.flatMap(({ scheduled }) => {
      const list = flatten(scheduled);
      return list.filter((step, i) => step.op === "start" && list[i + 1]?.op !== "done");
    });
    expect(covered.length).toBeGreaterThan(50);
  });
});
