/**
 * How a device calls a host callback, which runs on the main thread. The device copies the operands into an area that
 * both threads see, increments its number of calls and sleeps. The main thread, which wakes on every event of a device,
 * calls the function, writes the results into the area and increments the number of answers. A device waits for each of
 * its calls, so they run in its order.
 */

import { runCallback } from "../../compiler/kernel/callbackStep.js";
import type { CallbackStep, CompiledProgram, SlotAddress } from "../../compiler/steps.js";
import { forEachStep } from "../../compiler/stepTree.js";
import { getOrInsert } from "../../ir/collections.js";
import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import type { Signals } from "../protocol/signals.js";

/** The alignment in bytes that suits elements of every type. */
const ALIGNMENT = 8;

/** Where each operand and result of a call lies in the area, and then where it ends. */
function offsetsOf({ places }: CallbackStep): number[] {
  let end = 0;
  const offsets = places.map(({ bytes }) => {
    const start = end;
    end += Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
    return start;
  });
  return [...offsets, end];
}

const stepsOf = new WeakMap<CompiledProgram, ReadonlyMap<number, CallbackStep>>();

/** The callback steps of a program by their numbers. */
function callbackSteps(program: CompiledProgram): ReadonlyMap<number, CallbackStep> {
  return getOrInsert(stepsOf, program, () => {
    const found = new Map<number, CallbackStep>();
    let number = 0;
    forEachStep(program.steps, (step) => {
      if (step.op === "callback") found.set(number, step);
      number++;
    });
    return found;
  });
}

/** The area for the calls of a program on one device; nothing for a program without. */
export function newCallArea(program: CompiledProgram): Uint8Array | undefined {
  const steps = [...callbackSteps(program).values()];
  if (steps.length === 0) return undefined;
  const bytes = Math.max(...steps.map((step) => offsetsOf(step).at(-1) ?? 0));
  return new Uint8Array(new SharedArrayBuffer(bytes));
}

/** The main thread's side: makes the call that a device has asked for in a step. */
export function answerCall(program: CompiledProgram, number: number, area: Uint8Array | undefined): void {
  const step = callbackSteps(program).get(number);
  if (!step || !area) throw new InternalError(`[threads] step ${number} of ${program.name} calls nobody`);
  runCallback(at(program.callbacks, step.callback), step, area.buffer, offsetsOf(step));
}

/** The device's side: a call that is ready to be made, given where the operands and results lie by then. */
export function prepareCall(
  step: CallbackStep,
  area: Uint8Array | undefined,
  memory: WebAssembly.Memory,
  signals: Signals,
): (addressOf: (place: SlotAddress) => number) => void {
  if (!area) throw new InternalError("[threads] a program that calls the host has no area for it");
  const offsets = offsetsOf(step);
  const bytes = new Uint8Array(memory.buffer);
  const { places, numOperands } = step;
  return (addressOf) => {
    places.slice(0, numOperands).forEach((place, i) => {
      const address = addressOf(place);
      area.set(bytes.subarray(address, address + place.bytes), at(offsets, i));
    });
    signals.callHost();
    places.slice(numOperands).forEach((place, i) => {
      const start = at(offsets, numOperands + i);
      bytes.set(area.subarray(start, start + place.bytes), addressOf(place));
    });
  };
}
