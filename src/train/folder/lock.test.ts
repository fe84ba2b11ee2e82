import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { temporaryFolder } from "../../../test/support/runs.js";
import { lockFile, lockRun, runHolder } from "./lock.js";

const folder = temporaryFolder();
afterAll(folder.remove);

const write = (run: string, holder: unknown) => {
  lockRun(run);
  writeFileSync(join(run, lockFile), typeof holder === "string" ? holder : JSON.stringify(holder));
};

describe("the folder of a run", () => {
  test("is refused while a process trains into it, and free after", () => {
    const run = join(folder.path, "a", "b");
    const release = lockRun(run);
    expect(runHolder(run)?.pid).toBe(process.pid);
    expect(() => lockRun(run)).toThrow(`process ${process.pid} is training into ${run}: wait for it`);
    expect(readdirSync(run)).toEqual([lockFile]);
    release();
    // Nothing was written to it, so it goes as it came.
    expect(existsSync(run)).toBe(false);
    lockRun(run)();
  });

  test("is taken over from a process that is gone, also when its number is in use again", () => {
    const gone = spawnSync(process.execPath, ["--version"]).pid;
    const holders = [
      { pid: gone, host: hostname(), started: null },
      { pid: process.pid, host: hostname(), started: "another boot/1" },
      '{"pid":',
      "[]",
    ];
    for (const [i, holder] of holders.entries()) {
      const run = join(folder.path, `gone${i}`);
      write(run, holder);
      expect(runHolder(run)).toBeUndefined();
      const release = lockRun(run);
      expect(JSON.parse(readFileSync(join(run, lockFile), "utf8"))).toMatchObject({ pid: process.pid });
      expect(readdirSync(run)).toEqual([lockFile]);
      release();
    }
  });

  test("is left to a process of another machine, with advice", () => {
    const run = join(folder.path, "shared");
    write(run, { pid: 1, host: "elsewhere", started: null });
    expect(() => lockRun(run)).toThrow(/process 1 on elsewhere .* if it is gone, remove .*run\.lock/);
  });

  test("cannot be a file", () => {
    const file = join(folder.path, "file");
    writeFileSync(file, "");
    for (const run of [file, join(file, "inside")]) {
      expect(() => lockRun(run)).toThrow(/byte 0: the run cannot be written here .*--out/);
    }
  });
});
