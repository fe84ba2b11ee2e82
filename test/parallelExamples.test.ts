import { describe, expect, test } from "vitest";
import { nodeProgram } from "./support/built.js";
import { outputOf, outputsOf } from "./support/examples.js";

const shown = {
  fsdp: 'Dense_0/kernel: Partitioned(null, "fsdp")',
  "tensor-parallel": "9 ppermute",
  context: "18 ppermute",
  pipeline: "stage 3  · · · 0 1 2 3 4 5 6 7",
  schedules: "zb-h1: 8 % bubble, keeps the activations of 2 parts at most",
  experts: "raggedAllToAll",
  "three-d": 'up/module/sharded/kernel: Partitioned("pipe", "model", null, "data")',
};

describe("the example", { timeout: 240_000 }, () => {
  // Five schedules take turns in one of them, and half of its steps reach the target.
  const none = {};
  const outputs = outputsOf({
    ...{ fsdp: none, "tensor-parallel": none, context: none, pipeline: none },
    ...{ schedules: { STEPS: "20" }, experts: none, "three-d": none },
  });
  // Whichever test waits for them reports their failure.
  outputs.catch(() => {});

  test.each(Object.entries(shown))("%s reaches its loss", async (name, text) => {
    expect((await outputs).get(name)).toContain(text);
  });

  test("fsdp fails when its loss stays above the target", async () => {
    await expect(outputOf(nodeProgram("examples/fsdp.ts"), { STEPS: "1" })).rejects.toThrow(
      "it should be below 0.05",
    );
  });
});
