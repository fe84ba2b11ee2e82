import type { CompiledProgram } from "../../compiler/steps.js";
import { forEachStep } from "../../compiler/stepTree.js";
import { at } from "../../ir/shape.js";

/** The bytes of a vector of four words, the widest access of a shader; blocks of memory begin at multiples. */
const LARGEST = 16;

/**
 * For every slot a number of bytes that its address is a multiple of, whatever happens in a run: a power of two, at most
 * 16. Dynamic slots follow others, by distances that the steps name.
 */
export function slotAlignments({ slots, steps }: Pick<CompiledProgram, "slots" | "steps">): number[] {
  const alignments = slots.map((base) => ("offset" in base ? alignmentOf(base.offset) : LARGEST));
  let changed = true;
  const lower = (slot: number, alignment: number) => {
    if (alignment >= at(alignments, slot)) return;
    alignments[slot] = alignment;
    changed = true;
  };
  const ofPlace = ({ slot, offset }: { slot: number; offset: number }) =>
    Math.min(at(alignments, slot), alignmentOf(offset));
  while (changed) {
    changed = false;
    forEachStep(steps, (step) => {
      if (step.op === "address") {
        lower(
          step.slot,
          Math.min(ofPlace(step.from), ...step.terms.map(({ stride }) => alignmentOf(stride))),
        );
      }
      if (step.op !== "loop" && step.op !== "while") return;
      for (const { slot, from } of step.sets) lower(slot, ofPlace(from));
      if (step.op === "loop") for (const { slot, stride } of step.advances) lower(slot, alignmentOf(stride));
      for (const [a, b] of step.swaps) {
        lower(a, at(alignments, b));
        lower(b, at(alignments, a));
      }
    });
  }
  return alignments;
}

/** The largest power of two, at most 16, that divides a number of bytes. */
export function alignmentOf(bytes: number): number {
  let alignment = LARGEST;
  while (bytes % alignment !== 0) alignment /= 2;
  return alignment;
}
