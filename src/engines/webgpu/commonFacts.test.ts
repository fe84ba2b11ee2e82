import { expect, test } from "vitest";
import { commonFacts } from "./commonFacts.js";
import type { GpuFacts } from "./gpu.js";

test("several GPUs have in common the strictest of their limits, and the features of all", () => {
  const limits: GpuFacts["limits"] = {
    maxBufferSize: 2 ** 32,
    maxStorageBufferBindingSize: 2 ** 31,
    maxStorageBuffersPerShaderStage: 10,
    maxComputeWorkgroupStorageSize: 32_768,
    maxComputeInvocationsPerWorkgroup: 1024,
    maxComputeWorkgroupSizeX: 1024,
    maxComputeWorkgroupsPerDimension: 65_535,
    minUniformBufferOffsetAlignment: 64,
  };
  const one: GpuFacts = {
    ...{ name: "one", isSoftware: false, fusesProducts: true, limits },
    features: ["shader-f16", "subgroups"],
  };
  const other: GpuFacts = {
    ...one,
    limits: { ...limits, maxBufferSize: 2 ** 30, minUniformBufferOffsetAlignment: 256 },
    features: ["subgroups", "timestamp-query"],
  };
  expect(commonFacts([one])).toEqual({ limits, features: one.features });
  for (const both of [
    [one, other],
    [other, one],
  ]) {
    expect(commonFacts(both)).toEqual({ limits: other.limits, features: ["subgroups"] });
  }
});
