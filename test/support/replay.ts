import type { Buffer } from "../../src/compiler/plan/planBuffers.js";
import { accesses, type UnplacedStep } from "../../src/compiler/plan/plannedSteps.js";
import { range } from "../../src/ir/shape.js";

/** One execution of a step, with the memory that it touches; dynamic buffers stand for what they point to. */
export interface Execution {
  readonly step: UnplacedStep;
  /** How often the step ran before. */
  readonly occurrence: number;
  readonly reads: readonly Buffer[];
  readonly writes: readonly Buffer[];
}

/** Loops run so often that what one iteration leaves is read by the next, and slots have changed places. */
const ITERATIONS = 3;

/**
 * Runs a list of steps on names alone: which buffers each execution reads and writes, following the slots that
 * loops and address steps set. Of a choice all branches run, one after the other.
 */
export function replay(steps: readonly UnplacedStep[]): Execution[] {
  const executions: Execution[] = [];
  const counts = new Map<UnplacedStep, number>();
  const pointsTo = new Map<Buffer, Buffer>();
  const resolve = (buffer: Buffer): Buffer => {
    const root = buffer.root();
    return root.kind.kind === "dynamic" ? (pointsTo.get(root) ?? root) : root;
  };
  const swap = (swaps: readonly (readonly [Buffer, Buffer])[]) => {
    for (const [a, b] of swaps) {
      const [x, y] = [resolve(a), resolve(b)];
      pointsTo.set(a.root(), y).set(b.root(), x);
    }
  };
  const record = (step: UnplacedStep): void => {
    const { reads, writes } = accesses(step);
    const occurrence = counts.get(step) ?? 0;
    counts.set(step, occurrence + 1);
    executions.push({ step, occurrence, reads: reads.map(resolve), writes: writes.map(resolve) });
  };
  const run = (list: readonly UnplacedStep[]): void => {
    for (const step of list) {
      if (step.op === "while") {
        for (const { slot, from } of step.sets) pointsTo.set(slot.root(), resolve(from.buffer));
        for (const _ of range(ITERATIONS)) {
          run(step.condition);
          record(step);
          run(step.body);
          swap(step.swaps);
        }
        continue;
      }
      record(step);
      if (step.op === "address") pointsTo.set(step.slot.root(), resolve(step.from.buffer));
      if (step.op === "loop") {
        for (const { slot, from } of step.sets) pointsTo.set(slot.root(), resolve(from.buffer));
        for (const _ of range(Math.min(step.count, ITERATIONS))) {
          run(step.body);
          swap(step.swaps);
        }
      }
      if (step.op === "cond") step.branches.forEach(run);
    }
  };
  run(steps);
  return executions;
}
