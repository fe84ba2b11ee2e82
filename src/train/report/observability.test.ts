import { appendFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { formatValue, plotCurve } from "./lossCurve.js";
import { openMetricsFile, readMetrics, writeToAll } from "./metrics.js";
import { formatCount, formatDuration, startProgress } from "./progress.js";
import { writeTrace } from "./stepTrace.js";
import { openEventFile } from "./tensorboard.js";
import { openTraceFile } from "./traceFile.js";

/** An event file of one step. */
const eventBytes =
  "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c1b000000000000001a0d9e1309000000000000f83f10ac022a0d0a0b0a046c6f7373150000204068997c51";

const falling = `
loss
    5 │⠱⡀
      │ ⠑⢄
3.014 │  ⠈⠢⣀
      │     ⠑⠢⢄⡀
1.028 │        ⠈⠉⠒⠒⠢⠤⠤⠤⠤⣀⣀⣀⣀⣀⣀⣀⣀
      └─────────────────────────
       0                     199`;

const fallingPlain = `
    5 |*
      | **
3.014 |   **
      |     *****
1.028 |          ***************
      +-------------------------
       0                     199`;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "shardwise-metrics-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe("metrics.jsonl", () => {
  test("has a line a step, and drops what an interrupted run left beyond its checkpoint", async () => {
    const path = join(folder, "run", "metrics.jsonl");
    const metrics = openMetricsFile(path);
    for (const step of [1, 2, 3]) metrics.write(step, { loss: step === 2 ? Number.NaN : step / 2 });
    metrics.close();
    await appendFile(path, '{"step":4,"lo');
    openMetricsFile(path, { resumeAt: 2 }).write(3, { loss: 9, note: "again" });
    expect(readMetrics(path)).toEqual([
      { step: 1, loss: 0.5 },
      { step: 2, loss: "NaN" },
      { step: 3, loss: 9, note: "again" },
    ]);
  });
});

describe("TensorBoard event files", () => {
  test("hold scalars in records that carry their checksums", async () => {
    const events = openEventFile(folder, { suffix: ".test", now: () => 1.5 });
    writeToAll(events).write(300, { loss: 2.5, name: "text is left out" });
    events.write(301, { done: true });
    events.close();
    // The bytes were read back with tensorboard's own reader.
    expect((await readFile(events.path)).toString("hex")).toBe(eventBytes);
  });
});

test("an event file of a resumed run tells TensorBoard to drop the steps that are done again", async () => {
  const events = openEventFile(folder, { suffix: ".resumed", resumeAt: 300, now: () => 1.5 });
  events.close();
  const bytes = await readFile(events.path);
  // Behind the 24 + 16 bytes of the version: time, step 301, and the start of a session.
  expect(bytes.subarray(40 + 12, -4).toString("hex")).toBe("09000000000000f83f10ad023a020801");
});

test("idle time in a trace is cut where an iteration begins, since slices lie in or beside each other", async () => {
  const path = join(folder, "idle.json");
  const shared = { device: 0, program: "step" };
  const work = (begin: number, end: number) =>
    ({ ...shared, kind: "gemm", name: "dot", source: undefined, begin, end }) as const;
  const iteration = { ...shared, loop: 1, iteration: 0, depth: 0, begin: 0.15, end: 0.45 };
  writeTrace(path, { work: [work(0, 0.1), work(0.2, 0.4)], iterations: [iteration] }, "test");
  const { traceEvents }: { traceEvents: { cat?: string; ts: number; dur: number }[] } = JSON.parse(
    await readFile(path, "utf8"),
  );
  const idle = traceEvents.filter(({ cat }) => cat === "idle");
  expect(idle.map(({ ts, dur }) => [ts, dur])).toEqual([
    [100, 50],
    [150, 50],
  ]);
});

describe("a trace file", () => {
  test("is what Perfetto opens: named tracks, slices, moments, counters and arrows", async () => {
    const path = join(folder, "trace.json");
    const trace = openTraceFile(path, { mesh: "{data: 2}" });
    trace.name({ device: 1 }, "device 1");
    trace.name({ device: 1, thread: 2 }, "collectives");
    trace.event({ device: 1, name: "matmul", category: "gemm", start: 10, duration: 5, args: { flops: 8 } });
    trace.event({ device: 1, thread: 2, name: "step", start: 11 });
    trace.counter({ device: 1, name: "memory", at: 12, values: { bytes: 64 } });
    trace.flow(7, { device: 1, at: 12 }, { device: 0, at: 13 });
    // It has its name when it is complete.
    await expect(readFile(path)).rejects.toThrow("ENOENT");
    trace.close();
    const { traceEvents, ...rest } = JSON.parse(await readFile(path, "utf8"));
    expect(rest).toEqual({ displayTimeUnit: "ms", otherData: { mesh: "{data: 2}" } });
    expect(traceEvents).toEqual([
      { ph: "M", name: "process_name", pid: 1, tid: 0, args: { name: "device 1" } },
      { ph: "M", name: "process_sort_index", pid: 1, tid: 0, args: { sort_index: 1 } },
      { ph: "M", name: "thread_name", pid: 1, tid: 2, args: { name: "collectives" } },
      { ph: "M", name: "thread_sort_index", pid: 1, tid: 2, args: { sort_index: 2 } },
      { name: "matmul", cat: "gemm", ph: "X", dur: 5, ts: 10, pid: 1, tid: 0, args: { flops: 8 } },
      { name: "step", ph: "i", s: "t", ts: 11, pid: 1, tid: 2 },
      { ph: "C", name: "memory", ts: 12, pid: 1, tid: 0, args: { bytes: 64 } },
      { ph: "s", id: 7, name: "flow", cat: "flow", ts: 12, pid: 1, tid: 0 },
      { ph: "f", bp: "e", id: 7, name: "flow", cat: "flow", ts: 13, pid: 0, tid: 0 },
    ]);
  });

  test("is written in pieces when it is long", async () => {
    const path = join(folder, "long.json");
    const trace = openTraceFile(path);
    for (let i = 0; i < 5000; i++) trace.event({ device: 0, name: `kernel "${i}"`, start: i, duration: 1 });
    trace.close();
    expect(JSON.parse(await readFile(path, "utf8")).traceEvents).toHaveLength(5000);
  });
});

describe("plotCurve", () => {
  const points = Array.from({ length: 200 }, (_, i) => ({ step: i, value: 1 + 4 * Math.exp(-i / 40) }));

  test("draws a falling loss", () => {
    expect(`\n${plotCurve(points, { width: 32, height: 5, title: "loss" })}`).toBe(falling);
  });

  test("draws with plain characters", () => {
    expect(`\n${plotCurve(points, { width: 32, height: 5, unicode: false })}`).toBe(fallingPlain);
  });

  test("copes with nothing, one point, equal values and values that are not finite", () => {
    expect(plotCurve([])).toBe("(no values to plot)");
    expect(plotCurve([{ step: 0, value: Number.NaN }])).toBe("(no values to plot)");
    for (const values of [[3], [3, 3], [1, Number.NaN, 2, Number.POSITIVE_INFINITY]]) {
      const plot = plotCurve(
        values.map((value, step) => ({ step, value })),
        { width: 20, height: 3 },
      );
      expect(plot.split("\n")).toHaveLength(5);
      expect(plot).toMatch(/[⠁-⣿]/);
    }
  });

  test("labels numbers of any size", () => {
    expect([0, 1.23456, 12345.6, 1e9, 1e-7, Number.NaN].map(formatValue)).toEqual([
      "0",
      "1.235",
      "12350",
      "1.00e+9",
      "1.00e-7",
      "NaN",
    ]);
  });
});

describe("startProgress", () => {
  const run = (isTTY: boolean, columns = 100) => {
    let time = 0;
    let written = "";
    const stream = { isTTY, columns, write: (text: string) => (written += text) };
    const progress = startProgress({ numSteps: 40, stream, now: () => time, interval: 10 });
    for (let step = 1; step <= 40; step++) {
      time += 1000;
      if (step === 20) progress.note("saved");
      progress.update({ step, loss: 5 - step / 10, tokens: 18_200, shareOfPeak: 0.414 });
    }
    progress.finish();
    return written;
  };

  test("writes plain lines now and then without a terminal", () => {
    expect(run(false)).toBe(
      [
        "step 1/40  loss 4.9  18.2k tokens/s  41% of peak  ETA 39s",
        "step 11/40  loss 3.9  18.2k tokens/s  41% of peak  ETA 29s",
        "saved",
        "step 21/40  loss 2.9  18.2k tokens/s  41% of peak  ETA 19s",
        "step 31/40  loss 1.9  18.2k tokens/s  41% of peak  ETA 9s",
        "step 40/40  loss 1  18.2k tokens/s  41% of peak  ETA 0s",
        "",
      ].join("\n"),
    );
  });

  test("keeps one line up to date on a terminal and ends it", () => {
    const text = run(true);
    expect(text).toContain("\r\x1b[2Kstep 10/40 ━━━───────  loss 4  18.2k tokens/s  41% of peak  ETA 30s\r");
    expect(text).toContain("\r\x1b[2Ksaved\n\r\x1b[2Kstep 19/40");
    expect(text.endsWith("ETA 0s\n")).toBe(true);
    expect(text.match(/\n/g)).toHaveLength(2);
  });

  test("forgets the first step, which also compiles", () => {
    let [time, written] = [0, ""];
    const stream = { isTTY: false, write: (text: string) => (written += text) };
    const progress = startProgress({ numSteps: 3, stream, now: () => time, interval: 0 });
    for (const [i, seconds] of [9, 1, 1].entries()) {
      time += 1000 * seconds;
      progress.update({ step: i + 1, loss: 1, tokens: 900, shareOfPeak: 0.5 / seconds });
    }
    expect(written.split("\n").slice(0, 3)).toEqual([
      "step 1/3  loss 1  100 tokens/s  6% of peak  ETA 18s",
      "step 2/3  loss 1  900 tokens/s  50% of peak  ETA 1s",
      "step 3/3  loss 1  900 tokens/s  50% of peak  ETA 0s",
    ]);
  });

  test("shows what a run waits for until its next step", () => {
    const waiting = (isTTY: boolean) => {
      const written: string[] = [];
      const stream = { isTTY, columns: 100, write: (text: string) => written.push(text) };
      const progress = startProgress({ numSteps: 2, stream, now: () => 0 });
      progress.phase("compiling");
      progress.note("a note");
      progress.update({ step: 2, loss: 1, tokens: 1 });
      progress.phase("writing");
      progress.finish();
      return written;
    };
    expect(waiting(false)).toEqual(["compiling …\n", "a note\n", "step 2/2  loss 1\n", "writing …\n"]);
    const step = "\r\x1b[2Kstep 2/2 ━━━━━━━━━━  loss 1";
    expect(waiting(true)).toEqual([
      "\r\x1b[2Kcompiling …",
      "\r\x1b[2Ka note\n",
      "\r\x1b[2Kcompiling …",
      step,
      `${step}  writing …`,
      step,
      "\n",
    ]);
  });

  test("shows the share of the peak over the time of the last steps, not that of a lucky one", () => {
    let written = "";
    const stream = { isTTY: false, write: (text: string) => (written += text) };
    const progress = startProgress({ numSteps: 30, stream, interval: 0 });
    // A step that is read late makes the next one look fast.
    for (let step = 1; step <= 30; step++) {
      progress.update({ step, loss: 1, tokens: 1, shareOfPeak: step % 2 === 0 ? 1.5 : 0.5 * 1.5 });
    }
    const shares = [...written.matchAll(/(\d+)% of peak/g)].slice(20).map(([, share]) => Number(share));
    expect(Math.max(...shares)).toBeLessThanOrEqual(106);
    expect(Math.min(...shares)).toBeGreaterThanOrEqual(92);
  });

  test("leaves out the speeds, not the time left, where the terminal is narrow", () => {
    expect(run(true, 60)).toContain("\r\x1b[2Kstep 10/40 ━━━───────  loss 4  18.2k tokens/s  ETA 30s\r");
    expect(run(true, 45)).toContain("\r\x1b[2Kstep 10/40 ━━━───────  loss 4  ETA 30s\r");
  });

  test("never writes more than the terminal is wide", () => {
    for (const line of run(true, 30).replaceAll("\r\x1b[2K", "\n").split("\n"))
      expect(line.length).toBeLessThan(30);
  });

  test("writes counts and durations for people", () => {
    expect([0, 950, 1000, 18_249, 999_960, 3.2e9].map(formatCount)).toEqual([
      "0",
      "950",
      "1.0k",
      "18.2k",
      "1.0M",
      "3.2G",
    ]);
    expect([0, 59.6, 151, 7322, Number.NaN].map(formatDuration)).toEqual([
      "0s",
      "1m 0s",
      "2m 31s",
      "2h 2m",
      "?",
    ]);
  });
});
