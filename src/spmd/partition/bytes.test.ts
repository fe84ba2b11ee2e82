import { describe, expect, test } from "vitest";
import { communicationPrograms } from "../../../test/support/communicationPrograms.js";
import { layerPrograms } from "../../../test/support/layerPrograms.js";
import { expectSharded } from "../../../test/support/shardedPrograms.js";
import { sizeOf } from "../../ir/shape.js";
import { simplify } from "../../transforms/rewrite/simplify.js";
import { CostReport } from "../inspect/cost.js";

/** Programs of more elements or operations are only counted: the interpreter would take too long for them. */
const most = process.env.CASES === "all" ? { elements: 20_000, flops: 1e6 } : { elements: 5_000, flops: 2e5 };

describe("no device sends more than it does for the program that XLA makes", () => {
  test.each(communicationPrograms)("$name", ({ mesh, most: maxBytes, perDevice }) => {
    const { program, whole, inSpecs, outSpecs } = perDevice();
    const cost = new CostReport(simplify(program));
    expect(cost.bytesMoved(), `${cost}`).toBeLessThanOrEqual(maxBytes);
    const elements = whole.inputs.reduce((sum, { type }) => sum + sizeOf(type.shape), 0);
    if (elements < most.elements && cost.flops < most.flops)
      expectSharded(whole, mesh, { inSpecs, outSpecs });
  });
});

describe("layers with collectives of their own send no more than they did", () => {
  test.each(layerPrograms)("$name", ({ most: maxBytes, perDevice }) => {
    const cost = new CostReport(simplify(perDevice().program));
    expect(cost.bytesMoved(), `${cost}`).toBeLessThanOrEqual(maxBytes);
  });
});
