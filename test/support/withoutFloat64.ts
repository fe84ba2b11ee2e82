/** What engines cannot do whose processors have no float64. */
import { opCases } from "../conformance/engine/opCases.js";
import type { Skip } from "../conformance/engine/suite.js";

/** The cases of the suite that have float64 values. */
export const withoutFloat64: Skip = {
  reason: "GPUs have no float64 in WebGPU",
  tests: Object.values(opCases)
    .flat()
    .map(({ name }) => name)
    .filter((name) => name.includes("float64")),
};
