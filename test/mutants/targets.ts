/** Sources that hold rules, and the tests that prove them, the quickest first. */
export interface Target {
  /** Files, or folders whose files are meant. */
  readonly sources: readonly string[];
  readonly tests: readonly string[];
}

/** What is mutated. */
export const targets: readonly Target[] = [
  {
    sources: ["src/transforms/derivatives/vjpRules.ts", "src/transforms/derivatives/vjpControl.ts"],
    tests: [
      "src/transforms/derivatives/vjpRules.test.ts",
      "src/transforms/derivatives/grad.test.ts",
      "src/transforms/derivatives/remat.test.ts",
    ],
  },
  {
    sources: [
      "src/transforms/batching/vmapRules.ts",
      "src/transforms/batching/vmapIndexing.ts",
      "src/transforms/batching/vmapControl.ts",
      "src/transforms/batching/vmapCollectives.ts",
      "src/transforms/batching/vmapSpmd.ts",
    ],
    tests: [
      "src/transforms/batching/vmapRules.test.ts",
      "src/transforms/batching/vmapCollectives.test.ts",
      "src/transforms/batching/vmap.test.ts",
      "src/spmd/mesh/collectives.test.ts",
    ],
  },
  {
    sources: ["src/spmd/partition/placement/factors.ts"],
    tests: [
      "src/spmd/partition/placement/factors.test.ts",
      "src/spmd/partition/partition.test.ts",
      "src/spmd/partition/partitionRandom.test.ts",
    ],
  },
  {
    sources: ["src/engines/reference", "src/ir/scalarFunctions.ts"],
    tests: [
      "src/engines/reference",
      "src/ir/scalarFunctions.test.ts",
      "src/spmd/mesh/collectives.test.ts",
      "src/spmd/run/callback.test.ts",
      "test/compiler/opCases.test.ts",
    ],
  },
  {
    sources: ["src/compiler/wasm/math"],
    tests: ["src/compiler/wasm", "test/compiler/opCases.test.ts"],
  },
  {
    sources: ["src/compiler/kernel"],
    tests: [
      "src/compiler/kernel",
      "test/compiler/opCases.test.ts",
      "test/compiler/steps.test.ts",
      "src/compiler/native/attention",
      "test/compiler/fuzz.test.ts",
    ],
  },
  {
    sources: ["src/compiler/lower"],
    tests: [
      "src/compiler/lower",
      "test/compiler/steps.test.ts",
      "test/compiler/opCases.test.ts",
      "src/spmd/mesh/collectives.test.ts",
      "src/compiler/native/attention",
      "test/compiler/fuzz.test.ts",
    ],
  },
];
