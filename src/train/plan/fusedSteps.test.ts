import { describe, expect, test } from "vitest";
import "../../index.js";
import { attention } from "../../nn/functions/attention.js";
import { float8DotGeneral } from "../../nn/functions/float8DotGeneral.js";
import * as np from "../../numpy/index.js";
import { inlineCalls } from "../../spmd/partition/passes/inlineCalls.js";
import type { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { makeProgram } from "../../transforms/makeProgram.js";
import { evenLoad } from "./expertLoad.js";
import { fusedPeakBytes } from "./fusedMemory.js";
import { fusedSteps } from "./fusedSteps.js";
import { timeOf } from "./stepCost.js";
import type { TimedStep } from "./timedSteps.js";

/** A device that takes a second for a byte, or for an operation of a product or of attention. */
const device = { flops: 1, efficiency: 1, attention: 0.5, memoryBandwidth: 1, launch: 0 };
const machine = { device, mesh: { axes: [] }, collective: () => 0, vocabulary: 0, load: evenLoad };
const matrix = (dtype: "float32" | "bfloat16" = "float32") => np.ones([256, 256], { dtype });
const bytes = 4 * 256 ** 2;

const seconds = (steps: readonly TimedStep[], part: string) =>
  steps.reduce((sum, step) => sum + (step.op === "work" && step.part === part ? step.seconds : 0), 0);

describe("kernels of a compiler that fuses", () => {
  test("read their operands once and write only what others need", () => {
    const chain = makeProgram((x: Tensor) => np.tanh(np.exp(x).mul(2).add(x)))(matrix());
    expect(seconds(fusedSteps(chain, machine), "kernels")).toBe(2 * bytes);
    // A norm reads its operand for the sum, and again to scale it.
    const norm = makeProgram((x: Tensor) => x.div(np.sum(x.mul(x), -1, { keepdims: true })))(matrix());
    expect(seconds(fusedSteps(norm, machine), "kernels")).toBe(3 * bytes + 2 * 4 * 256);
    // Two results of one operand are one kernel.
    const pair = makeProgram((x: Tensor) => [np.exp(x), np.tanh(x)])(matrix());
    expect(seconds(fusedSteps(pair, machine), "kernels")).toBe(3 * bytes);
  });

  test("of products take their operations or their bytes, and float8 ones nearly half the time and a cast", () => {
    const dot = makeProgram((x: Tensor) => np.matmul(x, x))(matrix("bfloat16"));
    const operations = 2 * 256 ** 3;
    expect(seconds(fusedSteps(dot, machine), "products")).toBe(operations);
    const narrow = { ...machine, device: { ...device, float8: 2 } };
    // One factor, which both sides share, is read twice and written once.
    expect(seconds(fusedSteps(dot, narrow), "products")).toBeCloseTo(operations / 1.8 + 5 * 256 ** 2);
    expect(seconds(fusedSteps(dot, { ...narrow, vocabulary: 256 }), "products")).toBe(operations);
  });

  test("of products whose program rounds factors to float8 take nearly half the time, and the roundings are kernels", () => {
    const dims = { lhsContract: [1], rhsContract: [0] };
    const multiply = (x: Tensor, y: Tensor) => float8DotGeneral(x, y, dims);
    const program = makeProgram(multiply)(matrix("bfloat16"), matrix("bfloat16"));
    const steps = fusedSteps(inlineCalls(program), machine);
    expect(seconds(steps, "products")).toBeCloseTo((2 * 256 ** 3) / 1.8);
    // Each factor is read for its largest value, read again and written.
    expect(Math.round(seconds(steps, "kernels") / 256 ** 2)).toBe(2 * 3 * 2);
  });

  test("of causal attention compute half of the scores and store none", () => {
    const qkv = np.ones([1, 64, 2, 32], { dtype: "bfloat16" });
    const program = makeProgram((x: Tensor) => attention(x, x, x, { causal: true }).output)(qkv);
    const pairs = (64 * 65) / 2;
    expect(seconds(fusedSteps(program, machine), "attention")).toBe((2 * 2 * 2 * 32 * pairs) / 0.5);
    expect(fusedPeakBytes(program, [])).toBeLessThan(3 * 2 * 64 * 64 * 2);
  });
});

describe("the memory of a program that is fused", () => {
  test("is what lies between kernels, and a kernel writes over what it reads last", () => {
    const f = (x: Tensor) => np.matmul(np.tanh(np.exp(x)), x);
    const program = makeProgram(f)(matrix());
    expect(fusedPeakBytes(program, [])).toBe(3 * bytes);
    const update = makeProgram((x: Tensor) => x.mul(2).add(1))(matrix());
    expect(fusedPeakBytes(update, [false])).toBe(2 * bytes);
    expect(fusedPeakBytes(update, [true])).toBe(bytes);
  });

  test("of a loop is its stacks, its carry and one iteration", () => {
    const step = (x: Tensor): [Tensor, Tensor] => [np.matmul(x, x), x];
    const program = makeProgram((x: Tensor) => scan(step, x, null, { length: 8 }))(matrix());
    // The input, eight rows of the stack, and the carry before and after an iteration.
    expect(fusedPeakBytes(program, [])).toBe((1 + 8 + 2) * bytes);
  });
});

describe("what is sent while others compute", () => {
  const prices = { peakFlops: 1, call: 0, numCores: 8, overlaps: true, step: () => 0, collective: () => 0 };
  const loop = (sent: number): TimedStep[] => {
    const collective = { axes: "fsdp", seconds: sent, isBackground: true };
    const work: TimedStep = { op: "work", part: "products", seconds: 5 };
    const body: TimedStep[] = [{ op: "start", collective }, { op: "done", collective }, work];
    return [{ op: "loop", count: 4, role: undefined, body }];
  };

  test("costs an iteration only what it takes longer than the iteration", () => {
    const time = (sent: number) => timeOf(loop(sent), prices, { numDevices: 8 });
    expect(time(3).seconds).toBe(20);
    expect(time(7).seconds).toBe(28);
    expect(time(7).parts.communication).toEqual({ fsdp: 8 });
  });
});
