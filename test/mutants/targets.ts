/** Sources that hold rules, and the tests that prove them, the quickest first. */
export interface Target {
  /** Files, or folders whose files are meant. */
  readonly sources: readonly string[];
  readonly tests: readonly string[];
}

/** What is mutated. */
export const targets: readonly Target[] = [
  {
    sources: ["src/transforms/vjpRules.ts", "src/transforms/vjpControl.ts"],
    tests: ["src/transforms/vjpRules.test.ts", "src/transforms/grad.test.ts", "src/transforms/remat.test.ts"],
  },
  {
    sources: [
      "src/transforms/vmapRules.ts",
      "src/transforms/vmapIndexing.ts",
      "src/transforms/vmapControl.ts",
      "src/transforms/vmapCollectives.ts",
      "src/transforms/vmapSpmd.ts",
    ],
    tests: [
      "src/transforms/vmapRules.test.ts",
      "src/transforms/vmapCollectives.test.ts",
      "src/transforms/vmap.test.ts",
    ],
  },
  {
    sources: ["src/spmd/partition/factors.ts"],
    tests: [
      "src/spmd/partition/factors.test.ts",
      "src/spmd/partition/partition.test.ts",
      "src/spmd/partition/partitionRandom.test.ts",
    ],
  },
  { sources: ["src/engines/reference"], tests: ["src/engines/reference"] },
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
      "test/compiler/fuzz.test.ts",
    ],
  },
  {
    sources: ["src/compiler/lower"],
    tests: [
      "src/compiler/lower",
      "test/compiler/steps.test.ts",
      "test/compiler/opCases.test.ts",
      "test/compiler/fuzz.test.ts",
    ],
  },
];
