/** Programs of several processes, started by the MPI launchers that are installed here. */
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { findBlame, readRecordings } from "../src/engines/index.js";
import { version } from "../src/ir/version.js";
import { nodeProgram } from "./support/built.js";
import { ended, launch } from "./support/launchers.js";
import { extended, mpi, orSkip, testWith } from "./support/optional.js";

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const program = (name: string) => nodeProgram(`test/fixtures/${name}.ts`);
/** `npm run test:mpi` tries every launcher and every fault; the everyday suite one of each. */
const everything = process.env.SHARDWISE_ALL_MPI === "1";
const wholeSuite = extended("npm run test:mpi", everything);
const launchers = (orSkip(mpi) ?? []).slice(0, everything ? undefined : 1);
/** One of each waits for its launcher most of the time. */
const describeTogether = everything ? describe : describe.concurrent;

const scratch = mkdtempSync(join(tmpdir(), "shardwise-mpi-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const faults = ["throw", "kill", "stop", "exit", "order", "shape"] as const;
const differences = ["program", "shapes", "settings"] as const;

describeTogether.each(launchers)(
  "a process that leaves another one waiting, started by $name",
  (launcher) => {
    test.each(everything ? faults : (["order"] as const))(
      "ends the job with an error: %s",
      {
        timeout: 90_000,
      },
      async (fault) => {
        const folder = join(scratch, `${launcher.name} ${fault}`);
        const args = [...program("mpiFault"), fault];
        const job = launch(launcher, 2, args, { SHARDWISE_FLIGHT: folder });
        const { code, out, err } = await ended(job, 80_000);
        expect(out.match(/is ready/g), err).toHaveLength(2);
        expect(out).not.toContain("is done");
        expect(code).toBeGreaterThan(0);
        const reason = {
          throw: /Error: process 1 failed/,
          kill: /./,
          stop: /device 0, .*\(psum\).*it has waited 3000 ms.*; process 1 on \S+ says nothing/,
          exit: /device 0, .*\(psum\).*it has waited 3000 ms.*; process 1 on \S+ says nothing/,
          order:
            /DesyncError: .*\n {2}device 0 .* allReduce sum float32.* at .*mpiFault.js.*\n {2}device 1 .* allReduce max/,
          shape: /DesyncError: .*\n {2}device 0 .* float32\[4\].*\n {2}device 1 .* float32\[8\]/,
        };
        expect(`${out}${err}`).toMatch(reason[fault]);
        // MPICH's launcher kills all that are left at once.
        if (fault === "kill" && launcher.name === "MPICH") return;
        const { devices, findings } = findBlame(readRecordings(folder));
        const apart = fault === "order" || fault === "shape";
        expect(devices).toEqual(apart ? [0, 1] : [1]);
        const silent =
          /^device 1 \(process 1\) left no recording: .*, while device 0 \(process 0 on \S+\) waited/;
        const late =
          /^device 1 \(process 1 on \S+\) did not come to collective 1 of run 2 .*, where device 0 \(process 0 on \S+\) waits: its process said nothing/;
        const verdict = {
          throw: /^device 1 .* did not come to collective 1 of run 2 .*: it has no work/,
          kill: silent,
          // Open MPI lets a stopped process go on when it ends the job.
          stop: new RegExp(`${silent.source}|${late.source}`),
          exit: silent,
          order: /wait for each other.*\ndevice 0 .*allReduce sum .*\ndevice 1 .*allReduce max/,
          shape: /wait for each other.*\ndevice 0 .*float32\[4\].*\ndevice 1 .*float32\[8\]/,
        };
        expect(findings.join("\n")).toMatch(verdict[fault]);
      },
    );
  },
);

describe.each(everything ? launchers : [])(
  "a process that is busy with something else, started by $name",
  (launcher) => {
    test("is waited for until the deadline", { timeout: 90_000 }, async () => {
      const job = launch(launcher, 2, [...program("mpiFault"), "slow"], {
        SHARDWISE_FLIGHT: "",
      });
      const { code, out, err } = await ended(job, 80_000);
      expect(err).toBe("");
      expect(out.match(/is done/g)).toHaveLength(2);
      expect(code).toBe(0);
    });
  },
);

describeTogether.each(launchers)(
  "processes that run nothing on their devices, started by $name",
  (launcher) => {
    test("end by themselves", { timeout: 90_000 }, async () => {
      const job = launch(launcher, 2, program("mpiIdle"));
      const { code, out, err } = await ended(job, 80_000);
      const said = '["process 0","process 1"]\n';
      expect([code, out, err]).toEqual([0, said + said, ""]);
    });
  },
);

describeTogether.each(launchers)("processes that were started differently, by $name", (launcher) => {
  test.each(everything ? differences : (["program"] as const))(
    "refuse to go on, and both show both sides: %s",
    { timeout: 90_000 },
    async (difference) => {
      const job = launch(launcher, 2, [...program("mpiFault"), difference], {
        SHARDWISE_FLIGHT: "",
      });
      const { code, out, err } = await ended(job, 80_000);
      expect(code).toBeGreaterThan(0);
      expect(out).not.toContain("is ready");
      const reason = {
        program:
          /ProgramsDifferError: .*program 1 of processes 0, 1 .*\n {2}process 0 has "anonymous" \w{16}, line 2: .* = mul %0 2.0\n {2}process 1 has "anonymous" \w{16}, line 2: .* = mul %0 3.0\n/g,
        shapes:
          /ProgramsDifferError: .*\n {2}process 0 has .*, line 1: \(%0:f32\[4\]\) {\n {2}process 1 has .*, line 1: \(%0:f32\[8\]\) {\n/g,
        settings:
          /EngineLoadError: \[mpi\] the processes differ in deadlineMs: process 0 has 3000 and process 1 has 3001/g,
      };
      expect(err.match(reason[difference])).toHaveLength(2);
    },
  );

  testWith(wholeSuite, "refuse other releases", { timeout: 90_000 }, async () => {
    const folder = mkdtempSync(join(tmpdir(), "shardwise-release-"));
    try {
      const root = path("..");
      cpSync(join(root, "src"), join(folder, "src"), { recursive: true });
      for (const file of ["package.json", "tsconfig.json"]) cpSync(join(root, file), join(folder, file));
      symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
      const versionFile = join(folder, "src/ir/version.ts");
      writeFileSync(versionFile, readFileSync(versionFile, "utf8").replace(version, "9.9.9"));
      const args = [
        "--import",
        path("../scripts/typescript.mjs"),
        path("fixtures/mpiRelease.ts"),
        root,
        folder,
      ];
      const { code, err } = await ended(launch(launcher, 2, args), 80_000);
      expect(code).toBeGreaterThan(0);
      const text = `the processes differ in the release of shardwise: process 0 has ${version} and process 1 has 9.9.9: install`;
      expect(err.split(text)).toHaveLength(3);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe.each(everything ? launchers : [])(
  "processes that start at different times, by $name",
  (launcher) => {
    test("know the clock of the first", { timeout: 90_000 }, async () => {
      const later = [
        "sh",
        "-c",
        `sleep \${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec ${process.execPath} "$@"`,
        "sh",
      ];
      const args = program("mpiClocks");
      const { code, out, err } = await ended(launch(launcher, 2, args, {}, later), 80_000);
      expect([code, err]).toEqual([0, ""]);
      const said = out
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line));
      const [, second] = said.sort((a, b) => a.process - b.process);
      expect(second.apart).toBeGreaterThan(500);
      expect(second.wrong).toBeLessThan(100);
    });
  },
);

describe.each(launchers)("two processes of two devices, started by $name", (launcher) => {
  test("compute the bits that one process computes, hand tensors to each other and call JavaScript", {
    timeout: 120_000,
  }, async () => {
    const { code, out, err } = await ended(launch(launcher, 2, program("mpiProgram")), 110_000);
    expect(err).toBe("");
    const lines = out.trim().split("\n").sort();
    const wholes = {
      gathered: [0, 1, 2, 10, 11, 12],
      stacked: [
        [0, 1, 2],
        [10, 11, 12],
      ],
    };
    const common = { of: 2, same: 180, different: [], ...wholes };
    // Momentum stays split over the devices of both, and only together they read it.
    const kept = (devices: readonly number[]) => ({
      parts: devices.map((device) => [
        [32 * device, 32 * (device + 1)],
        [0, 128],
      ]),
      read: true,
      same: true,
    });
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
      { process: 0, ...common, devices: [0, 1], kept: kept([0, 1]), told: [1, 11, 104] },
      { process: 1, ...common, devices: [2, 3], kept: kept([2, 3]), told: [21, 31] },
    ]);
    expect(code).toBe(0);
  });
});

describe.each(launchers)("sums over two processes of two devices, started by $name", (launcher) => {
  test("are formed in the order of the mesh, or by MPI after those inside where that is asked for", {
    timeout: 120_000,
  }, async () => {
    const job = launch(launcher, 2, program("mpiSums"));
    const { code, out, err } = await ended(job, 110_000);
    expect([code, err]).toEqual([0, ""]);
    const lines = out.trim().split("\n");
    expect(lines).toHaveLength(2);
    const exact = { whole: [2], short: [1], across: [0, 2], largest: [1e8], together: [2, 12] };
    for (const line of lines) {
      expect(JSON.parse(line)).toEqual({
        exact: { ...exact, few: [1], many: [1] },
        fast: { ...exact, few: [0], many: [0] },
      });
    }
  });
});
