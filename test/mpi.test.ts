/** Programs of several processes, started by the MPI launchers that are installed here. */
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { ended, findLaunchers, launch, noLauncher } from "./support/launchers.js";

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const typescript = ["--import", path("../scripts/typescript.mjs")];
const launchers = findLaunchers();

describe.runIf(launchers.length === 0)("several processes", () => {
  test.skip(`are not tried: ${noLauncher}`, () => {});
});

describe.each(launchers)("two processes of two devices, started by $name", (launcher) => {
  test("compute the bits that one process computes, and hand tensors to each other", {
    timeout: 120_000,
  }, async () => {
    const { code, out, err } = await ended(
      launch(launcher, 2, [...typescript, path("fixtures/mpiProgram.ts")]),
      110_000,
    );
    expect(err).toBe("");
    const lines = out.trim().split("\n").sort();
    const wholes = {
      gathered: [0, 1, 2, 10, 11, 12],
      stacked: [
        [0, 1, 2],
        [10, 11, 12],
      ],
    };
    const common = { of: 2, same: 120, different: [], ...wholes };
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
      { process: 0, ...common, devices: [0, 1] },
      { process: 1, ...common, devices: [2, 3] },
    ]);
    expect(code).toBe(0);
  });
});
