import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { builtFile } from "../../test/support/built.js";
import { saidOnThreads } from "../../test/support/cliHere.js";
import { type Ended, ended, nodeArguments, startShardwise } from "../../test/support/cliProcess.js";
import { userEnvironment } from "../../test/support/environment.js";
import { describeWith, extended, posix, testWith } from "../../test/support/optional.js";
import { temporaryFolder, writeText } from "../../test/support/runs.js";
import { checkpointFolder } from "../train/config/setup.js";
import { openCheckpoints } from "../train/files/checkpoints/checkpoint.js";

const folder = temporaryFolder();
const text = writeText(folder.path);
afterAll(folder.remove);

writeFileSync(
  join(folder.path, "config.json"),
  JSON.stringify({
    model: { width: 8, numLayers: 2, numHeads: 2, numKvHeads: 2, mlpWidth: 8 },
    mesh: { data: 1 },
    pipeline: { microbatches: 2 },
    data: { source: text, sequence: 8, batch: 4 },
    checkpointEvery: 3,
    evalEvery: 4,
    sample: 0,
  }),
);

const train = (out: string, ...more: readonly string[]) => {
  const run = join(folder.path, out);
  const isResumed = names(run).some((name) => name.startsWith("step-"));
  return ["train", isResumed ? "--resume" : join(folder.path, "config.json"), "--out", run, ...more];
};

/** A copy of a run of eight steps, as far as its third. */
const copied = (out: string) => {
  const run = join(folder.path, out);
  cpSync(join(folder.path, "base"), run, { recursive: true });
  for (const later of ["step-00000006", "step-00000008"])
    rmSync(join(checkpointFolder(run), later), { recursive: true });
  const early = lines(run).filter((line) => /^{"step":[123],/.test(line));
  writeFileSync(join(run, "metrics.jsonl"), `${early.join("\n")}\n`);
};
beforeAll(async () => {
  const { code, err } = await saidOnThreads(...train("base", "--steps", "8", "--keep", "3"));
  expect(code, err).toBe(0);
});

/** Starts training and ends it with a signal as soon as something is seen in its folder. */
async function stopped(
  out: string,
  signal: NodeJS.Signals,
  seen: (run: string) => boolean,
  ...more: readonly string[]
): Promise<Ended> {
  const child = startShardwise(folder.path, train(out, ...more));
  const run = join(folder.path, out);
  const timer = setInterval(() => {
    if (!seen(run)) return;
    clearInterval(timer);
    child.kill(signal);
  }, 1);
  const end = await ended(child);
  clearInterval(timer);
  return end;
}

const lines = (run: string) => {
  const file = join(run, "metrics.jsonl");
  return existsSync(file) ? readFileSync(file, "utf8").split("\n").slice(0, -1) : [];
};
const names = (run: string) => (existsSync(checkpointFolder(run)) ? readdirSync(checkpointFolder(run)) : []);
const reached = (step: number) => (run: string) =>
  lines(run).some((line) => line.startsWith(`{"step":${step},`));
const isSaving = (run: string) => names(run).some((name) => name.startsWith(".partial-"));

/** All that must not depend on interruptions: the files of the last checkpoint, and what each step told. */
async function result(out: string) {
  const run = join(folder.path, out);
  const newest = await openCheckpoints(checkpointFolder(run)).latest();
  const told = lines(run).map((line) => {
    const { tokensPerSecond, seconds, ...same } = JSON.parse(line) as Record<string, unknown>;
    return same;
  });
  return { step: newest?.step, files: newest?.manifest.files, data: newest?.manifest.data, told };
}

describe("a run that is killed", { timeout: 240_000 }, () => {
  /** Goes on as long as it takes, killed at these moments, and comes to what a whole run gives. */
  async function expectSame(
    whole: string,
    out: string,
    settings: readonly string[],
    moments: readonly ((run: string) => boolean)[],
  ) {
    for (const moment of moments) {
      const { signal, err } = await stopped(out, "SIGKILL", moment, ...settings);
      expect(signal, err).toBe("SIGKILL");
      const list = await openCheckpoints(checkpointFolder(join(folder.path, out))).list();
      expect(list.every(({ problem }) => problem === undefined)).toBe(true);
    }
    // A kill in the middle of a line.
    writeFileSync(join(folder.path, out, "metrics.jsonl"), '{"step":', { flag: "a" });
    const last = await saidOnThreads(...train(out, ...settings));
    expect(last.code, last.err).toBe(0);
    expect(await result(out)).toEqual(await result(whole));
    expect(names(join(folder.path, out))).toEqual(names(join(folder.path, whole)));
  }

  test("at any moment goes on to the same bits and tells every step once", async () => {
    await expectSame("base", "killed", ["--steps", "8", "--keep", "3"], [reached(2), isSaving]);
  });

  for (const [mesh, moments] of [
    ["fsdp=2", [reached(2), isSaving]],
    ["pipe=2", [reached(8)]],
  ] as const)
    testWith(
      extended("npm run test:rest", process.env.CASES === "all"),
      `does so on ${mesh}`,
      {},
      async () => {
        const settings = ["--mesh", mesh, "--steps", "16"];
        const whole = await saidOnThreads(...train(`whole ${mesh}`, ...settings));
        expect(whole.code, whole.err).toBe(0);
        await expectSame(`whole ${mesh}`, `killed ${mesh}`, settings, moments);
      },
    );
});

describe("a run that is interrupted", { timeout: 120_000 }, () => {
  test("as it begins, by SIGTERM, ends with nothing half-written and can be started again", async () => {
    const child = startShardwise(folder.path, train("early", "--steps", "1000000"));
    let sent = false;
    const { code, signal, err } = await ended(child, (so_far) => {
      if (sent || !so_far.includes("writing to")) return;
      sent = true;
      child.kill("SIGTERM");
    });
    // Before the first step there is nothing to save, and the signal ends the process by itself.
    expect(signal === "SIGTERM" || code === 130, err).toBe(true);
    const saved = await openCheckpoints(checkpointFolder(join(folder.path, "early"))).list();
    expect(saved.every(({ problem }) => problem === undefined)).toBe(true);
    const again = await saidOnThreads(...train("early", "--steps", String(2 + (saved[0]?.step ?? 0))));
    expect(again.code, again.err).toBe(0);
  });

  test("while it samples at the end has its checkpoint, and makes the rest when it is taken up again", async () => {
    const settings = ["--steps", "2", "--sample", "100000"];
    const isDone = (run: string) => names(run).includes("step-00000002");
    const { code, out, err } = await stopped("sampling", "SIGINT", isDone, ...settings);
    expect(code, err).toBe(130);
    expect(out).toContain("stopped after step 2 of 2");
    const again = await saidOnThreads(...train("sampling", "--sample", "4"));
    expect(again.code, again.err).toBe(0);
    expect(existsSync(join(folder.path, "sampling", "report.html"))).toBe(true);
  });
});

describe("a trace that is interrupted", { timeout: 120_000 }, () => {
  // The engine sends the signal once it is open.
  const engine = join(folder.path, "interrupting.mjs");
  const threads = pathToFileURL(builtFile("src/engines/threads/engine.ts")).href;
  writeFileSync(
    engine,
    `import { ThreadsEngine } from ${JSON.stringify(threads)};
export const createEngine = (options) => {
  setTimeout(() => process.kill(process.pid, "SIGINT"));
  return new ThreadsEngine(options);
};
`,
  );

  test("says what it leaves, and leaves no part of a file", async () => {
    const output = join(folder.path, "interrupted.json");
    const trace = () =>
      ended(
        startShardwise(folder.path, [
          "trace",
          join(folder.path, "config.json"),
          "--engine",
          engine,
          "--output",
          output,
        ]),
      );
    expect(await trace()).toMatchObject({ code: 130, err: `\ninterrupted: ${output} is not written\n` });
    writeFileSync(output, "before");
    expect(await trace()).toMatchObject({ err: `\ninterrupted: ${output} is as it was before\n` });
    expect(readFileSync(output, "utf8")).toBe("before");
    expect(readdirSync(folder.path).filter((name) => name.includes("interrupted.json"))).toHaveLength(1);
  });
});

describe("a run that loses a device", { timeout: 120_000 }, () => {
  // The first engine of the process ends when the run is evaluated, after the checkpoint of step 3.
  const engine = join(folder.path, "failing.mjs");
  const threads = pathToFileURL(builtFile("src/engines/threads/engine.ts")).href;
  writeFileSync(
    engine,
    `import { ThreadsEngine } from ${JSON.stringify(threads)};
let opened = 0;
const fault = { device: 0, kind: "exit", program: "evaluate", step: 0 };
export const createEngine = (options) =>
  new ThreadsEngine(options, opened++ < Number(process.env.FAILING ?? 1) ? { faults: [fault] } : {});
`,
  );
  const lost = (out: string, failing: number, ...more: readonly string[]) =>
    ended(
      spawn(process.execPath, [...nodeArguments, ...train(out, "--engine", engine, ...more)], {
        cwd: folder.path,
        env: { ...userEnvironment, FAILING: String(failing) },
      }),
    );

  test("starts again from its newest checkpoint as often as --max-restarts says, to the same bits", async () => {
    const settings = ["--steps", "8", "--checkpointEvery", "1", "--max-restarts", "2"];
    const { code, err } = await lost("restarted", 1, ...settings);
    expect(code, err).toBe(0);
    expect(err).toContain("restarting (1 of 2) from");
    expect(err).not.toContain("(2 of 2 restarts)");
    expect((await result("restarted")).files).toEqual((await result("base")).files);
    const told = (await result("restarted")).told.filter(({ loss }) => loss !== undefined);
    expect(told.map(({ step }) => step)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });

  test("ends when it was restarted often enough, and says what was lost and what is left", async () => {
    const { code, err } = await lost("given up", 9, "--steps", "8", "--max-restarts", "1");
    expect(code).toBe(1);
    expect(err).toContain("restarting (1 of 1)");
    expect(err.trim().split("\n").at(-1)).toMatch(/^shardwise: .*exited with code 0.*see shardwise blame/);
  });
});

/** Starts training with a limit on the size of its files, in blocks of 512 bytes, which fails as a full disk does. */
function limited(kibibytes: number, args: readonly string[]): Promise<Ended> {
  const script = `trap '' XFSZ; ulimit -f ${2 * kibibytes}; exec "$@"`;
  const command = ["-c", script, "sh", process.execPath, ...nodeArguments, ...args];
  return ended(spawn("sh", command, { cwd: folder.path, env: userEnvironment }));
}

// A limit on the size of files is what POSIX systems have.
describeWith(posix, "a disk that is full", () => {
  test("ends the run with what a checkpoint needs, and the run goes on when there is space", async () => {
    copied("full");
    const failed = await limited(24, train("full", "--steps", "12"));
    expect(failed.code).toBe(1);
    expect(failed.err).toMatch(
      /the checkpoint of step 6 could not be written \(EFBIG\): the disk is full, it needs \d{5} bytes and \d+ are free: .*untouched\ntraining continues/,
    );
    expect(failed.err.trim().split("\n").at(-1)).toMatch(
      /^shardwise: .*full\/checkpoints, byte 0: .*of step 9/,
    );
    expect(names(join(folder.path, "full"))).toEqual(["step-00000003"]);
    const again = await saidOnThreads(...train("full", "--steps", "12"));
    expect(again.code, again.err).toBe(0);
    expect(again.err).toContain("from step 3");
    expect((await result("full")).told.filter(({ loss }) => loss !== undefined)).toHaveLength(12);
  });

  test("does not end a run because of its metrics; a report that fails says what is saved", async () => {
    copied("metrics");
    rmSync(join(folder.path, "metrics", "report.html"));
    mkdirSync(join(folder.path, "metrics", "report.html"));
    const file = join(folder.path, "metrics", "metrics.jsonl");
    const kept = readFileSync(file, "utf8");
    const filler = `${JSON.stringify({ step: 3, note: "x".repeat(96 * 1024 - 60 - kept.length) })}\n`;
    writeFileSync(file, kept + filler);
    const { code, err } = await limited(96, train("metrics", "--steps", "8"));
    expect(err).toContain("metrics.jsonl could not be written (EFBIG");
    expect(err).toContain("training continues");
    expect(readFileSync(file, "utf8")).toBe(kept + filler);
    expect(code).toBe(1);
    expect(err).toContain("the checkpoint of step 8 is complete: continue from it with --resume");
    expect(err).not.toContain("    at ");
  });
});

test("a reader that closes the output early is not a failure", { timeout: 60_000 }, async () => {
  const child = startShardwise(folder.path, ["generate", "base", "--length", "1000000"]);
  child.stdout?.once("data", () => child.stdout?.destroy());
  expect(await ended(child)).toMatchObject({ code: 0, err: "" });
});
