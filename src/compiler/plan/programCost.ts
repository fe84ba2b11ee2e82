import { byteSize } from "../../ir/dtype.js";
import { opFacts } from "../../ir/opFacts.js";
import { at } from "../../ir/shape.js";
import type { CollectiveSpec, ProgramCost, ProgramInput, ProgramOutput, Step, StepInfo } from "../steps.js";

/** Adds up what the steps of a program cost; loops count with their trip counts, `while` bodies once. */
export function costOf(
  steps: readonly Step[],
  infos: readonly StepInfo[],
  collectives: readonly CollectiveSpec[],
  arenaBytes: number,
  inputs: readonly ProgramInput[],
  outputs: readonly ProgramOutput[],
): ProgramCost {
  const total = { flops: 0, bytes: 0, communicatedBytes: 0 };
  const visit = (list: readonly Step[], times: number): void => {
    for (const step of list) {
      const info = at(infos, step.info);
      if (step.op !== "done") {
        total.flops += times * info.flops;
        total.bytes += times * info.bytes;
      }
      if (step.op === "start") total.communicatedBytes += times * sentBytes(at(collectives, step.collective));
      if (step.op === "loop") visit(step.body, times * step.count);
      if (step.op === "while") for (const inner of [step.condition, step.body]) visit(inner, times);
      if (step.op === "cond") visit(step.branches[0] ?? [], times);
    }
  };
  visit(steps, 1);
  const sum = (list: readonly { readonly bytes: number }[]) => list.reduce((n, { bytes }) => n + bytes, 0);
  const fresh = outputs.filter((output) => output.inputIndex === undefined);
  return { ...total, peakBytes: arenaBytes + sum(inputs) + sum(fresh) };
}

/** Bytes that one device sends, by the facts of an op of the same kind. */
const sends: { readonly [K in CollectiveSpec["kind"]]: (bytes: number, n: number) => number } = {
  allReduce: opFacts.psum.sends,
  allGather: opFacts.allGather.sends,
  reduceScatter: opFacts.psumScatter.sends,
  allToAll: opFacts.allToAll.sends,
  permute: opFacts.ppermute.sends,
};

function sentBytes({ kind, elements, dtype, size }: CollectiveSpec): number {
  return sends[kind](elements * byteSize(dtype), size);
}
