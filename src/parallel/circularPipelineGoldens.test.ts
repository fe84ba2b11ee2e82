import { afterAll, describe, test } from "vitest";
import { runCircularPipeline } from "../cli/conformance/areas/circularPipeline.js";
import { readCases } from "../cli/conformance/cases.js";
import { createReferenceEngine, createThreadsEngine } from "../engines/index.js";
import "../index.js";

const cases = await readCases(new URL("../../test/goldens", import.meta.url).pathname, "circular_pipeline");

describe("the cases of goldens/circular_pipeline, in one place and over their mesh", () => {
  const reference = createReferenceEngine();
  test.each(cases.map((golden) => [golden.name, golden] as const))(
    "%s on the reference engine",
    async (_, golden) => {
      await runCircularPipeline(golden, reference);
    },
  );

  const threads = createThreadsEngine({ numDevices: 8 });
  afterAll(() => threads.close());
  test.each(cases.map((golden) => [golden.name, golden] as const))(
    "%s on the threads engine",
    async (_, golden) => {
      await runCircularPipeline(golden, threads);
    },
  );
});
