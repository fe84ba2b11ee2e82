import { describe, test } from "vitest";
import "../src/index.js";
import { runDataParallel } from "../src/cli/conformance/areas/dataParallel.js";
import { runPipelineParallel } from "../src/cli/conformance/areas/pipelineParallel.js";
import { runTensorParallel } from "../src/cli/conformance/areas/tensorParallel.js";
import { createReferenceEngine } from "../src/engines/reference/engine.js";
import { goldens } from "./support/goldens.js";

describe("data_parallel", () => {
  for (const golden of goldens("data_parallel")) {
    test(golden.name, () => runDataParallel(golden, createReferenceEngine()));
  }
});
describe("tensor_parallel", () => {
  for (const golden of goldens("tensor_parallel")) {
    test(golden.name, () => runTensorParallel(golden, createReferenceEngine()));
  }
});
describe("pipeline_parallel", () => {
  for (const golden of goldens("pipeline_parallel")) {
    test(golden.name, () => runPipelineParallel(golden, createReferenceEngine()));
  }
});
