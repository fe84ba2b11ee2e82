import { describe, expect, test } from "vitest";
import { randomNumbers, randomSchedule } from "../../../test/support/randomSchedule.js";
import { at, range } from "../../ir/shape.js";
import { checkSchedule, most } from "./check.js";
import { drawSchedule, scheduleSvg } from "./draw.js";
import {
  circular,
  dualPipeV,
  gpipe,
  interleaved,
  makeSchedule,
  oneForwardOneBackward,
  scheduleNames,
  zeroBubbleH1,
  zeroBubbleH2,
  zeroBubbleV,
} from "./makers.js";
import {
  layoutOf,
  type PipelineAction,
  type PipelineSchedule,
  partOf,
  placeOf,
  ScheduleError,
} from "./schedule.js";
import { scheduleFromCsv, scheduleFromJson, scheduleOf, scheduleToCsv, scheduleToJson } from "./tables.js";

/** Every known schedule for some sizes, with as many chunks as it takes. */
function everySchedule(numStages: number, numMicrobatches: number): PipelineSchedule[] {
  return scheduleNames.flatMap((name) => {
    const chunks = ["circular", "interleaved", "breadth-first"].includes(name) ? [1, 2, 3] : [undefined];
    return chunks.map((numChunks) =>
      makeSchedule(name, { numStages, numMicrobatches, ...(numChunks && { numChunks }) }),
    );
  });
}

describe("the known schedules", () => {
  test("can run with any number of stages and microbatches", () => {
    for (const numStages of [1, 2, 3, 4, 8]) {
      const p = numStages;
      const counts = p < 8 ? [1, p, p + 1, 2 * p - 1, 2 * p, 3 * p + 1, 4 * p] : [1, 2 * p - 1, 3 * p + 1];
      for (const numMicrobatches of new Set(counts)) {
        for (const schedule of everySchedule(numStages, numMicrobatches)) checkSchedule(schedule);
      }
    }
  });

  test("have the bubble of their papers, with p stages, m microbatches and v chunks", () => {
    for (const numStages of [2, 4, 8]) {
      for (const numMicrobatches of [2 * numStages, 4 * numStages]) {
        const [p, m] = [numStages, numMicrobatches];
        const sizes = { numStages, numMicrobatches };
        const bubble = (schedule: PipelineSchedule) => checkSchedule(schedule).bubble;
        // GPipe and 1F1B: (p − 1) / (m + p − 1). Narayanan et al. 2021, section 2.2: v times less of it.
        expect(bubble(gpipe(sizes))).toBeCloseTo((p - 1) / (m + p - 1), 12);
        expect(bubble(oneForwardOneBackward(sizes))).toBeCloseTo((p - 1) / (m + p - 1), 12);
        for (const numChunks of [2, 3]) {
          const expected = (p - 1) / (numChunks * m + p - 1);
          expect(bubble(interleaved({ ...sizes, numChunks }))).toBeCloseTo(expected, 12);
          expect(bubble(circular({ ...sizes, numChunks }))).toBeCloseTo(expected, 12);
        }
      }
    }
  });

  test("leave the first stage as idle as Qi et al. 2023, table 2, say", () => {
    // F, I and W take different times in a real model; the formulas hold for those too where W is not the longest.
    for (const [F, I, W] of [
      [1, 1, 1],
      [4, 5, 3],
      [10, 10, 8],
    ] as const) {
      const costs = { F, I, W, B: I + W, send: 0 };
      for (const p of [2, 4, 8]) {
        const sizes = { numStages: p, numMicrobatches: 3 * p };
        const idle = (schedule: PipelineSchedule) => at(checkSchedule(schedule, costs).idle, 0);
        expect(idle(oneForwardOneBackward(sizes))).toBe((p - 1) * (F + I + W));
        expect(idle(zeroBubbleH1(sizes))).toBe((p - 1) * (F + I - W));
        if (F === I && I === W) {
          expect(most(checkSchedule(zeroBubbleH2(sizes), costs).idle)).toBe((p - 1) * (F + I - 2 * W));
          expect(most(checkSchedule(zeroBubbleV(sizes), costs).idle)).toBe(0);
        }
        // The table of DualPipe, for PP = 2p parts: (PP/2 − 1)(F&B + B − 3W), F&B at most F + B here.
        const dual = most(checkSchedule(dualPipeV(sizes), costs).idle);
        expect(dual).toBeLessThanOrEqual((p - 1) * (F + (I + W) + (I + W) - 3 * W));
      }
    }
  });

  test("keep as many activations as their papers say", () => {
    for (const numStages of [2, 4, 8]) {
      const p = numStages;
      const sizes = { numStages, numMicrobatches: 4 * p };
      const kept = (schedule: PipelineSchedule) => checkSchedule(schedule).activations;
      expect(kept(gpipe(sizes))).toEqual(range(p).map(() => 4 * p));
      expect(kept(oneForwardOneBackward(sizes))).toEqual(range(p).map((s) => p - s));
      expect(kept(zeroBubbleH1(sizes))).toEqual(range(p).map(() => p));
      expect(kept(zeroBubbleH2(sizes))).toEqual(range(p).map(() => 2 * p - 1));
      // Two chunks, each half as large: the memory of p microbatches.
      expect(kept(zeroBubbleV(sizes))).toEqual(range(p).map(() => 2 * p));
      expect(kept(dualPipeV(sizes))).toEqual(range(p).map(() => 2 * p + 1));
      // Korthikanti et al. 2022: 1 + (p − 1) / (p v) times that of 1F1B.
      for (const v of [2, 3]) {
        const first = at(kept(interleaved({ ...sizes, numChunks: v })), 0);
        expect(first / v).toBeCloseTo(p * (1 + (p - 1) / (p * v)), 12);
      }
    }
  });

  test("do not keep more with more microbatches, but for those that go forward first", () => {
    const kept = (name: (typeof scheduleNames)[number], numMicrobatches: number) =>
      checkSchedule(makeSchedule(name, { numStages: 4, numMicrobatches })).activations;
    for (const name of scheduleNames) {
      const grows = ["gpipe", "circular", "breadth-first"].includes(name);
      if (grows) expect(most(kept(name, 32))).toBe(2 * most(kept(name, 16)));
      else expect(kept(name, 32)).toEqual(kept(name, 16));
    }
  });

  test("say which sizes they cannot have", () => {
    expect(() => gpipe({ numStages: 2, numMicrobatches: 0 })).toThrow(
      "[gpipe] numMicrobatches is 0: use an integer of at least 1",
    );
    expect(() => zeroBubbleV({ numStages: 2, numMicrobatches: 4, numChunks: 3 })).toThrow(
      "[zb-v] every stage has 2 parts of the model, not 3: leave numChunks out or set it to 2",
    );
    expect(() => gpipe({ numStages: 2, numMicrobatches: 4, numChunks: 2 })).toThrow("use an interleaved");
  });

  test("place parts in a loop or in a V", () => {
    const loop = layoutOf(interleaved({ numStages: 3, numMicrobatches: 3, numChunks: 2 }));
    const v = layoutOf(zeroBubbleV({ numStages: 3, numMicrobatches: 3 }));
    expect(range(6).map((part) => placeOf(loop, part).stage)).toEqual([0, 1, 2, 0, 1, 2]);
    expect(range(6).map((part) => placeOf(v, part).stage)).toEqual([0, 1, 2, 2, 1, 0]);
    for (const layout of [loop, v]) {
      for (const part of range(6)) {
        const { stage, chunk } = placeOf(layout, part);
        expect(partOf(layout, stage, chunk)).toBe(part);
      }
    }
  });
});

/** Kinds of damage to a table; each gives it back with something that must be refused. */
const damages: Readonly<Record<string, (rows: PipelineAction[][], random: () => number) => void>> = {
  "an action is missing": (rows, random) => {
    const row = at(rows, Math.floor(random() * rows.length));
    row.splice(Math.floor(random() * row.length), 1);
  },
  "an action is there twice": (rows, random) => {
    const row = at(rows, Math.floor(random() * rows.length));
    row.push(at(row, Math.floor(random() * row.length)));
  },
  "a microbatch does not exist": (rows, random) => {
    const row = at(rows, Math.floor(random() * rows.length));
    const slot = Math.floor(random() * row.length);
    row[slot] = { ...at(row, slot), microbatch: 99 };
  },
  "a chunk does not exist": (rows, random) => {
    const row = at(rows, Math.floor(random() * rows.length));
    const slot = Math.floor(random() * row.length);
    row[slot] = { ...at(row, slot), chunk: 7 };
  },
  "backward comes before forward": (rows, random) => {
    const row = at(rows, Math.floor(random() * rows.length));
    const from = row.findIndex(({ kind }) => kind === "I" || kind === "B");
    const { chunk, microbatch } = at(row, from);
    const to = row.findIndex((a) => a.kind === "F" && a.chunk === chunk && a.microbatch === microbatch);
    row.splice(to, 0, ...row.splice(from, 1));
  },
  "a weight gradient comes before its other half": (rows) => {
    const row = at(rows, 0);
    row.splice(
      0,
      row.length,
      ...row.flatMap((a): PipelineAction[] =>
        a.kind === "B"
          ? [
              { ...a, kind: "W" },
              { ...a, kind: "I" },
            ]
          : [a],
      ),
    );
    const from = row.findIndex(({ kind }) => kind === "W");
    const { chunk, microbatch } = at(row, from);
    const to = row.findIndex((a) => a.kind === "I" && a.chunk === chunk && a.microbatch === microbatch);
    if (from > to) row.splice(to, 0, ...row.splice(from, 1));
  },
  "a backward pass is whole and split": (rows) => {
    const row = at(rows, 0);
    const slot = row.findIndex(({ kind }) => kind === "B" || kind === "I");
    const action = at(row, slot);
    row.splice(slot, 1, { ...action, kind: "B" }, { ...action, kind: "I" }, { ...action, kind: "W" });
  },
  "stages wait for each other": (rows) => {
    // The first stage goes backward with a microbatch before it sends the one that the last needs first.
    const row = at(rows, 0);
    const last = at(rows, rows.length - 1);
    const { microbatch } = at(last, 0);
    const from = row.findIndex((a) => a.kind === "F" && a.chunk === 0 && a.microbatch === microbatch);
    row.push(...row.splice(from, 1));
  },
};

describe("random schedules", () => {
  const cases = range(60).map((seed) => {
    const random = randomNumbers(seed + 1);
    const numStages = 2 + Math.floor(random() * 3);
    const placement = random() < 0.5 ? ("loop" as const) : ("v" as const);
    const numChunks = placement === "v" ? 2 : 1 + Math.floor(random() * 3);
    const layout = { numStages, numChunks, placement };
    return { random, schedule: randomSchedule(layout, 1 + Math.floor(random() * 5), random) };
  });

  test("are accepted, and are the same read back from JSON and CSV", () => {
    for (const { schedule } of cases) {
      expect(checkSchedule(schedule).length).toBeGreaterThan(0);
      expect(scheduleFromJson(scheduleToJson(schedule))).toEqual(schedule);
      const csv = scheduleFromCsv(scheduleToCsv(schedule), "random");
      // With one part on every stage a V is a loop.
      expect(csv).toEqual(schedule);
    }
  });

  test.each(Object.entries(damages))("are refused where %s", (_, damage) => {
    for (const { schedule, random } of cases) {
      const rows = schedule.stages.map((row) => [...row]);
      damage(rows, random);
      expect(() => checkSchedule({ ...schedule, stages: rows })).toThrow(ScheduleError);
    }
  });
});

describe("the check", () => {
  const thrownBy = (rows: readonly (readonly string[])[]): unknown => {
    try {
      return scheduleOf("mine", rows);
    } catch (error) {
      return error;
    }
  };

  test("names stage, slot and reason of everything that is wrong", () => {
    const error = thrownBy([
      ["0F0", "0F1", "0B0", "0B0"],
      ["1B0", "1F0", "1F1", "1I1"],
    ]);
    expect(error).toBeInstanceOf(ScheduleError);
    expect(error instanceof ScheduleError && error.violations).toEqual([
      { stage: 0, slot: 3, reason: "0B0 is already in slot 2" },
      { stage: 0, slot: -1, reason: "0B1 is missing, and 0I1 with 0W1 is missing, too" },
      { stage: 1, slot: 0, reason: "1B0 comes before 1F0, which is in slot 1" },
      { stage: 1, slot: -1, reason: "1W1 is missing, the other half of 1I1" },
    ]);
    expect(String(error)).toContain("stage 1, slot 0: 1B0 comes before 1F0, which is in slot 1");
  });

  test("says for what stages wait that wait for each other", () => {
    const error = thrownBy([
      ["0F0", "0B0", "0F1", "0B1"],
      ["1F1", "1F0", "1B0", "1B1"],
    ]);
    expect(error instanceof ScheduleError && error.violations).toEqual([
      {
        stage: 0,
        slot: 1,
        reason: "0B0 waits for 1B0, which stage 1 does in slot 2, and it is still in slot 0",
      },
      {
        stage: 1,
        slot: 0,
        reason: "1F1 waits for 0F1, which stage 0 does in slot 2, and it is still in slot 1",
      },
    ]);
  });

  test("refuses parts that lie on stages in no regular way, and cells that are no actions", () => {
    expect(() =>
      scheduleOf("mine", [
        ["0F0", "0B0", "3F0", "3B0"],
        ["2F0", "2B0", "1F0", "1B0"],
        ["4F0", "5F0", "4B0", "5B0"],
      ]),
    ).toThrow("parts lie in one of the two ways");
    expect(() => scheduleFromCsv("0F0,0X0\n")).toThrow('line 1, column 5: "0X0" is not an action');
    expect(() => scheduleFromJson("[]")).toThrow('no "stages"');
    // A few letters name a hundred million pairs of a part and a microbatch.
    expect(() => scheduleFromCsv("9999F9999,0B1")).toThrow("0F0 is missing");
    expect(() => scheduleFromJson('{"numChunks": 2, "stages": [["0F0", "0B0"]]}')).toThrow(
      "the JSON says numChunks 2, its actions say 1",
    );
  });
});

describe("tables of PyTorch", () => {
  // DualPipeV of 2 stages and 5 microbatches as its runtime writes it: actions in pairs are meant to overlap.
  const dual = `0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,(0F4;3B2)OVERLAP_F_B,(3F3;0B1)OVERLAP_F_B,3B3,(3F4;0B2)OVERLAP_F_B,3B4,0I3,0W3,0I4,0W4
1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,(1F4;2B2)OVERLAP_F_B,(2F4;1B2)OVERLAP_F_B,2B3,1B3,2I4,1I4,2W4,1W4
`;

  test("are read, pairs one after the other", () => {
    const made = dualPipeV({ numStages: 2, numMicrobatches: 5 });
    expect(scheduleFromCsv(dual, "dualpipev")).toEqual(made);
  });

  test("are read without their messages, with gaps, and with B for the half that has a W", () => {
    const text = "0UNSHARD,0F0,0SEND_F0,,0RECV_B0,0BW0,0RESHARD\r\n,1RECV_F0,1F0,1B0,1SEND_B0,1W0\r\n";
    const { stages } = scheduleFromCsv(text);
    expect(stages.map((row) => row.map(({ kind }) => kind).join(""))).toEqual(["FB", "FIW"]);
  });
});

describe("pictures", () => {
  test("show every stage over time as text", () => {
    expect(drawSchedule(zeroBubbleH1({ numStages: 2, numMicrobatches: 3 }))).toBe(
      "stage 0  F0 F1 ·  I0 W0 F2 I1 W1 I2 W2\nstage 1  ·  F0 I0 F1 I1 W0 F2 I2 W1 W2\n",
    );
    expect(drawSchedule(oneForwardOneBackward({ numStages: 2, numMicrobatches: 2 }))).toBe(
      "stage 0  F0 F1 ·  ·  B0    ·  B1\nstage 1  ·  F0 B0    F1 B1    ·  ·\n",
    );
  });

  test("show a box for every action as SVG", () => {
    const svg = scheduleSvg(zeroBubbleV({ numStages: 2, numMicrobatches: 4 }));
    expect(svg.match(/<g>/g)).toHaveLength(2 * 2 * 4 * 3);
    expect(svg).toContain("<title>weight gradient of microbatch 3, chunk 1</title>");
  });
});
