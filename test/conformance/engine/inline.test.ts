import { expect, test } from "vitest";
import { createInlineEngine } from "../../../src/engines/inline/engine.js";
import { at } from "../../../src/ir/shape.js";
import { oneDevice, opCase, sample } from "./cases.js";
import { runEngineSuite } from "./suite.js";

// Programs of one device are compiled at once here, those of meshes interpreted.
runEngineSuite({ name: "inline", newEngine: () => createInlineEngine({ patience: 0 }) });

test("programs of one device run as kernels in the suite", () => {
  const engine = createInlineEngine({ patience: 0 });
  const { program, inputs } = opCase("exp", [sample("float32", [5], "any", 1)], {});
  const executable = engine.compile(program, { mesh: oneDevice, devices: [0] });
  executable.execute(inputs.map((row) => row.map(({ type, data }) => engine.upload(type, data, 0))));
  expect(engine.statistics).toMatchObject({ compiledRuns: 1, interpretedRuns: 0 });
  expect(at(inputs, 0)).toHaveLength(1);
});
