import { describe, expect, test } from "vitest";
import { BASELINE_FEATURES, detectFeatures } from "../../src/compiler/wasm/features.js";
import { enableRelaxedSimd } from "../../src/engines/system/v8Flags.js";
import type { EngineCase } from "../conformance/engine/cases.js";
import { opCases } from "../conformance/engine/opCases.js";
import { programCases } from "../conformance/engine/programCases.js";
import { findDifference } from "./differential.js";

enableRelaxedSimd();
const features = detectFeatures();

/** With fused multiplications the inline engine is told to compute the same, in `test/conformance/engine`. */
const tried =
  features.fma && process.env.CASES === "all" ? [BASELINE_FEATURES, features] : [BASELINE_FEATURES];

/** What every engine must compute, compiled and run by the plainest runtime: no worker, no native code. */
describe.each(tried)(
  "compiled with fma $fma, every case gives what the reference engine gives:",
  (chosen) => {
    const groups: [string, readonly EngineCase[]][] = [
      ...Object.entries(opCases),
      ...programCases.map((one): [string, EngineCase[]] => [one.name, [one]]),
    ];
    test.each(groups.filter(([, cases]) => cases.length > 0))("%s", (_, cases) => {
      for (const { name, program, mesh, inputs } of cases) {
        expect(findDifference(program, inputs, { mesh, features: chosen }), name).toBeUndefined();
      }
    });
  },
);
