import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import type { FlightRecord, FlightRecording, FlightState } from "../../ir/flight.js";
import { range } from "../../ir/shape.js";
import { DesyncError } from "../errors.js";
import { readRecordings, writeRecording } from "./file.js";
import { collectiveText, fingerprintOf } from "./fingerprint.js";
import { findBlame, formatBlame } from "./flightAnalysis.js";
import { FlightRecorder, newFlightRing, readFlightRing } from "./recorder.js";
import { formatRecording, parseRecording } from "./recordingText.js";

const sum = {
  kind: "allReduce",
  combine: "sum",
  dtype: "float32",
  axes: [{ name: "x", size: 3 }],
  outer: 1,
  inner: 64,
  size: 3,
  permutation: [],
} as const;
const gather = { ...sum, kind: "allGather" } as const;

/** Runs that are over and a last one: which collective a device came to, and whether it is over. */
type Visit = readonly [run: number, sequence: number, collective: number, over: boolean];

function recording(
  devices: readonly { readonly state: FlightState; readonly visits: readonly Visit[]; place?: string }[],
  over: Partial<FlightRecording> = {},
): FlightRecording {
  const groups = [range(devices.length)];
  return {
    reason: "a test",
    time: 10_000,
    engine: "threads",
    numDevices: devices.length,
    process: { index: 0, count: 1, pid: 7, host: "here" },
    programs: [
      {
        id: 1,
        name: "train",
        collectives: [sum, gather].map((spec) => ({
          text: collectiveText(spec),
          fingerprint: fingerprintOf(spec),
          groups,
          source: "model.ts:3:1",
        })),
      },
    ],
    devices: devices.map(({ state, visits, place }, device) => ({
      device,
      state,
      place: place ?? null,
      records: visits.map(
        ([run, sequence, collective, isOver], i): FlightRecord => ({
          kind: collective < 0 ? "run" : "collective",
          program: 1,
          run,
          sequence,
          collective,
          begin: 1000 + i,
          end: isOver ? 1001 + i : null,
        }),
      ),
    })),
    ...over,
  };
}

const waiting = {
  state: "waiting",
  visits: [
    [1, 1, 0, true],
    [1, 2, 0, false],
  ],
} as const;

describe("the fingerprint of a collective", () => {
  test("names op, data type, shape and axes", () => {
    expect(collectiveText(sum)).toBe("allReduce sum float32[64] over {x: 3}");
    expect(collectiveText({ ...sum, kind: "reduceScatter", outer: 2 })).toBe(
      "reduceScatter sum float32[2,3,64] over {x: 3}",
    );
    expect(collectiveText({ ...sum, kind: "permute", permutation: [[0, 1]] })).toBe(
      "permute float32[64] over {x: 3} by 0→1",
    );
  });

  test("differs where any of them does", () => {
    const others = [
      gather,
      { ...sum, combine: "max" as const },
      { ...sum, dtype: "bfloat16" as const },
      { ...sum, inner: 65 },
      { ...sum, axes: [{ name: "y", size: 3 }] },
      { ...sum, kind: "permute" as const, permutation: [[0, 1]] as const },
    ];
    expect(new Set([sum, ...others].map(fingerprintOf)).size).toBe(1 + others.length);
  });
});

describe("a flight recorder", () => {
  test("keeps the newest records, and knows which are under way", () => {
    const ring = newFlightRing(4);
    let time = 100;
    const recorder = new FlightRecorder(ring, () => time++);
    const run = recorder.beginRun(3, 1);
    const first = recorder.beginCollective(3, 1, 1, 0);
    recorder.end(first);
    recorder.beginCollective(3, 1, 2, 5);
    expect(readFlightRing(ring)).toEqual([
      { kind: "run", program: 3, run: 1, sequence: 0, collective: -1, begin: 100, end: null },
      { kind: "collective", program: 3, run: 1, sequence: 1, collective: 0, begin: 101, end: 102 },
      { kind: "collective", program: 3, run: 1, sequence: 2, collective: 5, begin: 103, end: null },
    ]);
    for (const sequence of [3, 4, 5]) recorder.end(recorder.beginCollective(3, 1, sequence, 0));
    recorder.end(run);
    expect(readFlightRing(ring).map(({ sequence, end }) => [sequence, end !== null])).toEqual([
      [2, false],
      [3, true],
      [4, true],
      [5, true],
    ]);
  });
});

describe("blame", () => {
  const late = {
    state: "running",
    visits: [[1, 1, 0, true]],
    place: "step 4 (tanh) at model.ts:9:2",
  } as const;

  test("names the device that others wait for, and what it does instead", () => {
    const { devices, findings } = findBlame([recording([waiting, late, waiting])]);
    expect(devices).toEqual([1]);
    expect(findings).toEqual([
      'device 1 did not come to collective 2 of run 1 of "train" (allReduce sum float32[64] over {x: 3} at model.ts:3:1), where devices 0 and 2 wait: it is in step 4 (tanh) at model.ts:9:2',
    ]);
  });

  test("names the device that came to another collective", () => {
    const stray = {
      state: "waiting",
      visits: [
        [1, 1, 0, true],
        [1, 2, 1, false],
      ],
    } as const;
    const { devices, findings } = findBlame([recording([waiting, waiting, stray])]);
    expect(devices).toEqual([2]);
    expect(findings).toEqual([
      expect.stringMatching(/^devices 0 and 1 came to collective 2 of run 1 .*allReduce/),
      expect.stringMatching(/^device 2 came to collective 2 of run 1 .*allGather/),
    ]);
  });

  test("names the device that left its run without a collective", () => {
    const left = {
      state: "idle",
      visits: [
        [1, 0, -1, true],
        [1, 1, 0, true],
      ],
    } as const;
    const { devices, findings } = findBlame([recording([waiting, waiting, left])]);
    expect(devices).toEqual([2]);
    expect(findings[0]).toMatch(
      /^device 2 continued without collective 2 of run 1 .*devices 0 and 1 reached$/,
    );
  });

  test("names the process that left no file, and the device that has ended", () => {
    const lost = recording([waiting, waiting], {
      numDevices: 3,
      process: { index: 0, count: 2, pid: 1, host: "a" },
    });
    expect(findBlame([lost]).devices).toEqual([2]);
    const gone = { state: "gone", visits: [[1, 1, 0, true]], place: "step 2 (exp)" } as const;
    expect(findBlame([recording([waiting, gone, waiting])])).toMatchObject({
      devices: [1],
      findings: ["device 1 has ended in step 2 (exp)"],
    });
  });

  describe("of several processes", () => {
    /** The recording of one of two processes of a device each. */
    const part = (index: number, visits: readonly Visit[], over: Partial<FlightRecording> = {}) => {
      const all = recording([
        { state: "waiting", visits },
        { state: "waiting", visits },
      ]);
      return {
        ...all,
        process: { index, count: 2, pid: 7 + index, host: `host${index}`, job: "j" },
        devices: all.devices.filter(({ device }) => device === index),
        ...over,
      };
    };
    /** The program under another number, as in a process that has programs of its own. */
    const renumbered = (one: FlightRecording, fingerprint = "aa"): FlightRecording => ({
      ...one,
      programs: one.programs.map((program) => ({
        ...program,
        id: 10 + one.process.index,
        agreement: { key: "program 1 of processes 0, 1", fingerprint },
      })),
      devices: one.devices.map((device) => ({
        ...device,
        records: device.records.map((record) => ({ ...record, program: 10 + one.process.index })),
      })),
    });

    test("knows the programs that they run together, and names process and host", () => {
      const [ahead, behind] = [
        part(0, [
          [1, 1, 0, true],
          [1, 2, 0, false],
        ]),
        part(1, [[1, 1, 0, true]]),
      ];
      const { devices, findings } = findBlame([renumbered(ahead), renumbered(behind)]);
      expect(devices).toEqual([1]);
      expect(findings).toEqual([
        expect.stringMatching(
          /^device 1 \(process 1 on host1\) did not come to collective 2 .*, where device 0 \(process 0 on host0\) waits/,
        ),
      ]);
    });

    test("names who ran another program", () => {
      const [a, b] = [part(0, [[1, 1, 0, false]]), part(1, [[1, 1, 0, false]])];
      const { findings } = findBlame([renumbered(a), renumbered(b, "bb")]);
      expect(findings).toContain(
        'device 1 (process 1 on host1) ran "train" bb as program 1 of processes 0, 1',
      );
    });

    test("leaves out what a process did after the failure, and other jobs", () => {
      const early = part(0, [[1, 1, 0, false]]);
      // It was stopped, went on when the launcher ended the job, and came to a collective to which nobody came.
      const late = part(1, [[1, 2, 1, false]], { time: 14_000 });
      const awake = {
        ...late,
        devices: late.devices.map((device) => ({
          ...device,
          records: device.records.map((record) => ({ ...record, begin: 13_900 })),
        })),
      };
      const stale = { ...part(1, []), time: 1, process: { ...late.process, job: "older" } };
      const { devices, findings } = findBlame([early, awake, stale]);
      expect(devices).toEqual([1]);
      expect(findings).toEqual([expect.stringMatching(/its process said nothing for another 3.0 s$/)]);
    });
  });

  test("blames nobody when all came to the same collectives", () => {
    const done = { state: "idle", visits: [[1, 1, 0, true]] } as const;
    expect(findBlame([recording([done, done])]).devices).toEqual([]);
    expect(formatBlame([recording([done, done])])).toContain("no device has diverged");
  });
});

describe("the file of a recording", () => {
  const folder = mkdtempSync(join(tmpdir(), "shardwise-flight-"));
  afterAll(() => rmSync(folder, { recursive: true }));

  test("is read as it was written, also from a folder of all processes", () => {
    const one = recording([waiting, waiting]);
    expect(parseRecording(formatRecording(one), "x")).toEqual(one);
    writeRecording(join(folder, "flight", "0.json"), one);
    writeRecording(join(folder, "flight", "1.json"), { ...one, time: 5 });
    writeFileSync(join(folder, "flight", "other.json"), "{}");
    expect(readRecordings(join(folder, "flight")).map(({ time }) => time)).toEqual([10_000, 5]);
  });

  test.each([
    ["text", "nothing", /must be JSON/],
    ["another format", "{}", /format must be "shardwise-flight"/],
    [
      "a hole",
      formatRecording(recording([waiting])).replace('"state":"waiting"', '"state":7'),
      /devices\[0\].state/,
    ],
    ["half", formatRecording(recording([waiting])).slice(0, 200), /must be JSON/],
  ])("is refused by name when it is %s", (_, text, rule) => {
    expect(() => parseRecording(text, "f.json")).toThrow(rule);
  });
});

test("a DesyncError shows where every device was", () => {
  const error = new DesyncError("train", [
    { device: 0, run: 7, sequence: 3, what: "psum", source: "a.ts:1:2" },
    { device: 11, run: 12, sequence: 1, what: "left the run" },
  ]);
  expect(error).toMatchObject({ code: "desync", name: "DesyncError" });
  expect(error.message).toContain(
    "\n  device 0   run 7   collective 3  psum at a.ts:1:2\n  device 11  run 12  collective 1  left the run\n",
  );
});
