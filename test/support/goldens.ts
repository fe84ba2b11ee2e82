/**
 * Reads the reference values of `test/goldens` (its README says what they are) and compares results with them.
 *
 * ```ts
 * for (const golden of goldens("modules")) {
 *   test(golden.name, async () => {
 *     const y = apply(golden.tree("variables"), golden.tensor("x"));
 *     await expectClose(y, golden.host("y"));
 *   });
 * }
 * ```
 */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type GoldenCase, parseCases } from "../conformance/goldens/cases.js";

export {
  GoldenCase,
  type GoldenValue,
  HostArray,
  mapArrays,
  type TensorTree,
} from "../conformance/goldens/cases.js";
export {
  agreement,
  type Comparable,
  expectClose,
  expectTreeClose,
  type Tolerance,
} from "../conformance/goldens/compare.js";

/** The areas that have reference values. */
export type GoldenArea =
  | "random"
  | "modules"
  | "collectives"
  | "data_parallel"
  | "tensor_parallel"
  | "pipeline_parallel"
  | "circular_pipeline"
  | "language_model";

/** Where the reference values lie. */
export const goldenFolder = fileURLToPath(new URL("../goldens", import.meta.url));

/** All cases of an area. */
export function goldens(area: GoldenArea): GoldenCase[] {
  const path = (ending: string) => `${goldenFolder}/${area}.${ending}`;
  return parseCases(area, readFileSync(path("json"), "utf8"), readFileSync(path("safetensors")));
}

/** The case with the given name. */
export function golden(area: GoldenArea, name: string): GoldenCase {
  const found = goldens(area).find((candidate) => candidate.name === name);
  if (!found) throw new Error(`there is no golden ${area}/${name}`);
  return found;
}
