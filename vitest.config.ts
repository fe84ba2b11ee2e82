import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { closingLine } from "./test/support/closingLine.js";
import { resolve } from "./test/support/sources.js";
import { v8Flags } from "./test/support/v8Flags.js";

/**
 * Tests of the everyday suite that choose their engine themselves, or use none. `.ci/run` leaves them out when it runs
 * the suite a second time, on another engine, where they would only repeat themselves.
 */
const choosing =
  process.env.SHARDWISE_TESTS === "on-engine"
    ? [
        "src/cli/**",
        "src/compiler/**",
        "src/engines/**",
        "src/ir/**",
        "src/platform/**",
        "src/parallel/{dataParallel,pipelineParallel,tensorParallel}.test.ts",
        "src/parallel/schedule/{schedule,simulate,trainStep}.test.ts",
        "src/spmd/partition/{partitionRandom,passes/ringProductsRandom}.test.ts",
        "src/nn/functions/attentionFuzz.test.ts",
        "src/transforms/{batching/vmapRules,derivatives/vjpRules}.test.ts",
        "src/train/{config,data,files,plan,report}/**",
        "test/{architecture,arithmetic,dependencies,elastic,floors,goldensReference,goldensThreads,memory,mpi}.test.ts",
        "test/{coverage,performancePage,platform,processes,publicApi,types,words}.test.ts",
        "test/pretrained/{chatTemplates,tokenizers}.test.ts",
        "test/{browser,compare,compiler,conformance,docs,faults,jax,litmus,mutants,native,night,plan,support,surface,xla}/**",
      ]
    : [];

/**
 * Tests that want a process of their own: those that look at memory, where what others left would be collected with
 * theirs, and those that call everything there is with anything.
 */
const alone = [
  "src/engines/inline/**/*.test.ts",
  "src/ir/reclaim.test.ts",
  "test/memory.test.ts",
  "test/surface/**/*.test.ts",
];

/**
 * Tests that search, train on many meshes, or start process after process. `npm run test:long` runs them, on the engine
 * that users have; `npm test` does not: it is for every change and takes five minutes on two cores.
 */
const long = [
  "src/cli/{data,reliability,runCommand,serve}.test.ts",
  "src/engines/{oneThread/engine,table,threads/failure,threads/stress}.test.ts",
  "src/parallel/overlap.test.ts",
  "src/scipy/linalg/schur.test.ts",
  "src/spmd/partition/bytes.test.ts",
  "src/train/config/memoryNeed.test.ts",
  "src/train/generation/sampleText.test.ts",
  "src/train/models/{preference,sequence}.test.ts",
  "src/train/plan/plan.test.ts",
  "src/train/run/{accumulate,anyMesh,mixedPrecision,resume,runData,trainRun}.test.ts",
  "src/train/step/{everyMesh,experts,health,meshCurves}.test.ts",
  "test/{addAnOp,engineProcess,examples,mpiTraining,parallelExamples,publicTypes,reportInBrowser,runtimes,sources}.test.ts",
  "test/browser/{browser,gpuRun}.test.ts",
  "test/conformance/engine/oneThread.test.ts",
  "test/docs/{blocks,memory}.test.ts",
  "test/explore/**/*.test.ts",
  "test/optional/optional.test.ts",
  "test/pretrained/{export,tune}.test.ts",
  "test/readers/readers.test.ts",
  "test/webgpu/**/*.test.ts",
];

/** Short files that take long: they start processes, or go through tables that lie elsewhere. */
const slow =
  /\/(goldensReference|goldensThreads|reliability|cli\/runCommand|mpi|mpiTraining|examples|parallelExamples|addAnOp|test\/memory)\.test\.ts$/;

/**
 * Begins with what takes long, so that no worker is left alone with it at the end. A machine that never ran the tests
 * knows of files no more than their sizes.
 */
class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    // The files of a project stay together: a process that serves many files ends where another project's file is next.
    const names = new Set(sorted.map(({ project }) => project.name));
    return [...names].flatMap((name) => {
      const own = sorted.filter(({ project }) => project.name === name);
      const isSlow = ({ moduleId }: TestSpecification) => slow.test(moduleId);
      return [...own.filter(isSlow), ...own.filter((file) => !isSlow(file))];
    });
  }
}

export default defineConfig({
  resolve,
  test: {
    // Processes, not threads: V8 flags, environment variables and native libraries belong to a process.
    pool: "forks",
    execArgv: v8Flags,
    // Engines start workers of their own, so half the cores do, and two on a small machine.
    maxWorkers: Math.max(2, Math.floor(availableParallelism() / 2)),
    // Slow machines need it.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // The reference engine is the quicker one for tiny programs; suites that are about another one say so.
    env: {
      SHARDWISE_ENGINE: process.env.SHARDWISE_ENGINE ?? "reference",
      // Whoever looks at a failed test of the library wants its frames.
      SHARDWISE_STACKS: process.env.SHARDWISE_STACKS ?? "all",
      // A pass that makes a wrong program is caught where it does so.
      SHARDWISE_VERIFY: process.env.SHARDWISE_VERIFY ?? "passes",
    },
    // `.ci/run` also prints programs and reads them back.
    setupFiles: /texts$/.test(process.env.SHARDWISE_VERIFY ?? "") ? ["test/support/readBackSetup.ts"] : [],
    projects: [
      {
        extends: true,
        test: {
          name: "suite",
          include: ["src/**/*.test.ts", "test/**/*.test.ts"],
          exclude: [...choosing, ...alone, ...long],
          // Half of the time would go into loading the sources anew for every file; what tests change they change back.
          isolate: false,
        },
      },
      { extends: true, test: { name: "alone", include: alone, exclude: choosing } },
      {
        extends: true,
        test: {
          name: "long",
          include: long,
          isolate: false,
          env: { SHARDWISE_ENGINE: process.env.SHARDWISE_ENGINE ?? "threads" },
        },
      },
    ],
    experimental: { fsModuleCache: true },
    sequence: { sequencer: SlowFirst },
    // The order matters: the closing line comes last.
    reporters: ["default", closingLine],
  },
});
