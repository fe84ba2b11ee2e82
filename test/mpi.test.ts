/** Programs of several processes, started by the MPI launchers that are installed here. */
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { ended, findLaunchers, launch, noLauncher } from "./support/launchers.js";

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const typescript = ["--import", path("../scripts/typescript.mjs")];
/** `npm run test:mpi` tries every launcher and every fault; the everyday suite one of each. */
const everything = process.env.SHARDWISE_ALL_MPI === "1";
const launchers = findLaunchers().slice(0, everything ? undefined : 1);

describe.runIf(launchers.length === 0)("several processes", () => {
  test.skip(`are not tried: ${noLauncher}`, () => {});
});

const faults = ["throw", "kill", "stop", "exit", "order", "shape"] as const;

describe.each(launchers)("a process that leaves another one waiting, started by $name", (launcher) => {
  test.each(everything ? faults : (["order"] as const))(
    "ends the job with an error: %s",
    {
      timeout: 90_000,
    },
    async (fault) => {
      const job = launch(launcher, 2, [...typescript, path("fixtures/mpiFault.ts"), fault]);
      const { code, out, err } = await ended(job, 80_000);
      expect(out.match(/is ready/g)).toHaveLength(2);
      expect(out).not.toContain("is done");
      expect(code).toBeGreaterThan(0);
      const reason = {
        throw: /Error: process 1 failed/,
        kill: /./,
        stop: /device 0, .*\(psum\).*it has waited 3000 ms.*; process 1 on \S+ says nothing/,
        exit: /device 0, .*\(psum\).*it has waited 3000 ms.*; process 1 on \S+ says nothing/,
        order:
          /DesyncError: .*\n {2}device 0 .* allReduce sum float32.* at .*mpiFault.ts.*\n {2}device 1 .* allReduce max/,
        shape: /it has waited 3000 ms|truncate/i,
      };
      expect(`${out}${err}`).toMatch(reason[fault]);
    },
  );
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
