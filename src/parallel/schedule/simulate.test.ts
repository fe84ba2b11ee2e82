/** The simulator: by hand, and against what papers publish of their schedules. */
import { describe, expect, test } from "vitest";
import { at, range } from "../../ir/shape.js";
import { most } from "./check.js";
import {
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
import type { PipelineSchedule } from "./schedule.js";
import { type SimulationOptions, simulateSchedule } from "./simulate.js";
import { actionsInSlots } from "./slots.js";

const peak = (schedule: PipelineSchedule, options: SimulationOptions) =>
  most(simulateSchedule(schedule, options).stages.map(({ peakBytes }) => peakBytes));

describe("a step on paper", () => {
  const two = gpipe({ numStages: 2, numMicrobatches: 2 });
  const times = { F: 1, I: 1, W: 2 };

  test("takes the time of its longest chain of actions and messages", () => {
    expect(simulateSchedule(two, { times }).seconds).toBe(1 + 1 + 1 + 3 + 3 + 3);
    const link = { bytes: 100, bandwidth: 1000, latency: 0.05 };
    // One message forward and one backward lie on the way of the last microbatch.
    expect(simulateSchedule(two, { times, link }).seconds).toBeCloseTo(12 + 2 * 0.15, 12);
    expect(simulateSchedule(two, { times, optimizer: 2 }).seconds).toBe(14);
  });

  test("keeps a stage from computing while it sends where messages do not overlap", () => {
    const link = { bytes: 1, bandwidth: 2, overlapped: false };
    const { timeline } = simulateSchedule(two, { times, link });
    expect(at(timeline.stages, 0).map(({ begin }) => begin)).toEqual([0, 1.5, 7.5, 11]);
  });

  test("sends messages of one link one after the other", () => {
    // The first stage is quick: its messages wait for the link, not for it.
    const of = (stage: number) => (stage === 0 ? 0 : 1);
    const { timeline } = simulateSchedule(two, {
      times: ({ kind }, stage) => (kind === "F" ? of(stage) : 1),
      link: { bytes: 3, bandwidth: 1, latency: 1 },
    });
    expect(at(timeline.stages, 1).slice(0, 2)).toMatchObject([{ begin: 4 }, { begin: 7 }]);
  });

  test("goes slot by slot where stages wait for each other after slots with messages", () => {
    const slots = simulateSchedule(two, { times, inSlots: true });
    // F F F, then I and W of every backward pass: the slots in which nobody has a W are as short as an I.
    expect(slots.seconds).toBe(3 * 1 + 3 * (1 + 2));
    const link = { bytes: 1, bandwidth: 2, overlapped: false };
    // Only four slots have messages, of which one forward and one backward lie on the way of the last microbatch.
    expect(simulateSchedule(two, { times, link, inSlots: true }).seconds).toBe(12 + 2 * 0.5);
    // Messages that travel beside the next slot keep everybody in step.
    const beside = { bytes: 1, bandwidth: 0.25 };
    const all = simulateSchedule(two, { times, link: beside, inSlots: true });
    expect(all.seconds).toBe(4 * actionsInSlots(two, true).length);
  });

  test("lets stages run on in slots without messages", () => {
    // Stage 1 has its weight gradients at the end, when nobody waits for it any more.
    const schedule = zeroBubbleH1({ numStages: 2, numMicrobatches: 2 });
    const slow = (stage: number) => (stage === 1 ? 5 : 1);
    const { timeline } = simulateSchedule(schedule, {
      times: ({ kind }, stage) => (kind === "W" ? slow(stage) : 1),
      inSlots: true,
    });
    const [first, second] = timeline.stages.map((actions) => at(actions, actions.length - 1).end);
    expect([first, second]).toEqual([7, 1 + 4 + 2 * 5]);
  });

  test("is never faster in slots than without, and never slower than one stage alone", () => {
    for (const name of scheduleNames) {
      const schedule = makeSchedule(name, { numStages: 4, numMicrobatches: 8 });
      const free = simulateSchedule(schedule, { times });
      const slots = simulateSchedule(schedule, { times, inSlots: true });
      expect(slots.seconds, name).toBeGreaterThanOrEqual(free.seconds);
      expect(free.seconds, name).toBeGreaterThanOrEqual(8 * schedule.numChunks * 4);
      expect(slots.seconds, name).toBeLessThan(4 * 8 * schedule.numChunks * 4);
    }
  });

  test("is as fast in slots as without where input gradients take longest and weight gradients least", () => {
    const unequal = { F: 10, I: 12, W: 8 };
    for (const name of ["gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v"] as const) {
      for (const numStages of [2, 4, 8]) {
        const schedule = makeSchedule(name, { numStages, numMicrobatches: 4 * numStages });
        const free = simulateSchedule(schedule, { times: unequal });
        const slots = simulateSchedule(schedule, { times: unequal, inSlots: true });
        expect(slots.seconds, `${name} on ${numStages} stages`).toBeCloseTo(free.seconds, 9);
      }
    }
  });

  test("waits by ZB-H1 for at most a third of the time that it waits by 1F1B, in slots, too", () => {
    const equal = { F: 1, I: 1, W: 1 };
    for (const numStages of [2, 4, 8]) {
      for (const numMicrobatches of [1, 2, 4].map((i) => i * numStages)) {
        for (const inSlots of [false, true]) {
          const waited = (make: typeof zeroBubbleH1) => {
            const schedule = make({ numStages, numMicrobatches });
            const { bubble, seconds } = simulateSchedule(schedule, { times: equal, inSlots });
            return bubble * seconds;
          };
          const name = `${numStages} stages, ${numMicrobatches} microbatches`;
          expect(waited(oneForwardOneBackward), name).toBeCloseTo(3 * (numStages - 1), 9);
          expect(waited(zeroBubbleH1), name).toBeCloseTo(numStages - 1, 9);
        }
      }
    }
  });

  test("keeps bytes for as long as the halves of the backward pass read them", () => {
    const kept = { input: 1, weight: 10, postponed: 100 };
    expect(peak(two, { times, kept, fixedBytes: 1000 })).toBe(1000 + 2 * 11);
    const split = zeroBubbleH1({ numStages: 2, numMicrobatches: 2 });
    // Stage 1: F0 I0 F1 I1, both with the weight gradients put off: 11 + 100 − 1, again, and the inputs of the second.
    expect(simulateSchedule(split, { times, kept }).stages[1]?.peakBytes).toBe(10 + 100 + 11 + 100);
  });

  test("refuses times and bytes that are none", () => {
    expect(() => simulateSchedule(two, { times: { F: -1, I: 1, W: 1 } })).toThrow(
      "[simulateSchedule] times.F is -1: use a number of at least 0",
    );
    const link = { bytes: 1, bandwidth: 0 };
    expect(() => simulateSchedule(two, { times, link })).toThrow("link.bandwidth is 0");
  });
});

/**
 * Qi, Wan, Huang, Lin: Zero Bubble (Almost) Pipeline Parallelism, ICLR 2024: the profiled times of table 6 in
 * milliseconds, and the bubble rates of table 5.
 */
const zeroBubbleTable = [
  { p: 8, m: 24, F: 18.522, I: 18.086, W: 9.337, comm: 0.601, v: 3, rates: [0.2431, 0.1055, 0.1585, 0.1083] },
  { p: 8, m: 32, F: 18.513, I: 18.086, W: 9.331, comm: 0.626, v: 3, rates: [0.1985, 0.0818, 0.1242, 0.0837] },
  { p: 8, m: 64, F: 18.546, I: 18.097, W: 9.321, comm: 0.762, v: 3, rates: [0.124, 0.0443, 0.0674, 0.0444] },
  {
    p: 8,
    m: 24,
    F: 29.718,
    I: 29.444,
    W: 19.927,
    comm: 0.527,
    v: 4,
    rates: [0.2347, 0.0808, 0.1323, 0.0698],
  },
  { p: 8, m: 32, F: 29.802, I: 29.428, W: 19.53, comm: 0.577, v: 4, rates: [0.1898, 0.0628, 0.1045, 0.0559] },
  { p: 8, m: 64, F: 29.935, I: 29.621, W: 19.388, comm: 0.535, v: 4, rates: [0.1091, 0.032, 0.0554, 0.0294] },
  {
    p: 16,
    m: 48,
    F: 11.347,
    I: 11.248,
    W: 8.132,
    comm: 0.377,
    v: 3,
    rates: [0.2552, 0.1104, 0.1397, 0.0672],
  },
  {
    p: 16,
    m: 64,
    F: 11.307,
    I: 11.254,
    W: 8.101,
    comm: 0.379,
    v: 3,
    rates: [0.2082, 0.0852, 0.1088, 0.0516],
  },
  {
    p: 16,
    m: 128,
    F: 11.325,
    I: 11.308,
    W: 8.109,
    comm: 0.378,
    v: 3,
    rates: [0.1251, 0.0445, 0.0576, 0.0266],
  },
  {
    p: 32,
    m: 96,
    F: 10.419,
    I: 10.207,
    W: 7.715,
    comm: 0.408,
    v: 2,
    rates: [0.2646, 0.1493, 0.1421, 0.0641],
  },
  {
    p: 32,
    m: 128,
    F: 10.408,
    I: 10.204,
    W: 7.703,
    comm: 0.408,
    v: 2,
    rates: [0.2168, 0.1164, 0.1106, 0.049],
  },
  {
    p: 32,
    m: 256,
    F: 10.402,
    I: 10.248,
    W: 7.698,
    comm: 0.46,
    v: 2,
    rates: [0.1352, 0.0624, 0.0594, 0.0257],
  },
] as const;

/** One row of each of the four models; all of them with `SCHEDULES=all`, as in `npm run test:schedules`. */
const zeroBubblePaper = zeroBubbleTable.filter((_, i) => process.env.SCHEDULES === "all" || i % 3 === 0);

describe("published results", () => {
  test.each(zeroBubblePaper)(
    "bubble rates of 1F1B, ZB-H1 and ZB-H2 with $p stages and $m microbatches (Qi et al. 2024, table 5)",
    ({ p, m, F, I, W, comm, rates }) => {
      const sizes = { numStages: p, numMicrobatches: m };
      const options = { times: { F, I, W }, link: { bytes: 0, bandwidth: 1, latency: comm } };
      const rate = (schedule: PipelineSchedule) => simulateSchedule(schedule, options).longestStageBubble;
      const [oneByOne, , h1, h2] = rates;
      // Within one in the last of the four digits that are printed, as the times have only so many.
      expect(Math.abs(rate(oneForwardOneBackward(sizes)) - oneByOne)).toBeLessThan(1.01e-4);
      expect(Math.abs(rate(zeroBubbleH1(sizes)) - h1)).toBeLessThan(1.01e-4);
      expect(Math.abs(rate(zeroBubbleH2(sizes)) - h2)).toBeLessThan(1.01e-4);
    },
  );

  test.each(zeroBubblePaper)(
    "bubble rate of interleaved 1F1B with $p stages, $m microbatches and $v chunks (Qi et al. 2024, table 5)",
    ({ p, m, v, F, I, W, comm, rates }) => {
      // Every layer is a chunk there. The paper's own calculation lets only the first microbatch of a group wait for
      // messages that go round, which spares it one message for every stage.
      const { seconds } = simulateSchedule(interleaved({ numStages: p, numMicrobatches: m, numChunks: v }), {
        times: { F: F / v, I: I / v, W: W / v },
        link: { bytes: 0, bandwidth: 1, latency: comm },
      });
      const time = seconds - p * comm;
      expect(Math.abs((time - m * (F + I + W)) / time - rates[1])).toBeLessThan(2e-4);
    },
  );

  test("memory of 1F1B, ZB-H1 and ZB-H2 (Qi et al. 2024, table 2): p, p and 2p − 1 times that of a microbatch", () => {
    // What is kept for the weight gradient alone is less than for both halves.
    const options = { times: { F: 1, I: 1, W: 1 }, kept: { input: 3, weight: 5 } };
    for (const p of [4, 8, 16]) {
      const sizes = { numStages: p, numMicrobatches: 3 * p };
      expect(peak(oneForwardOneBackward(sizes), options) / 8).toBe(p);
      expect(peak(zeroBubbleH1(sizes), options) / 8).toBe(p);
      expect(peak(zeroBubbleH2(sizes), options) / 8).toBe(2 * p - 1);
    }
  });

  test("ZB-V (Qi et al. 2024, section 6): no bubble where F, I and W are equal, with the memory of 1F1B", () => {
    const options = { times: { F: 1, I: 1, W: 1 }, kept: { input: 3, weight: 5 } };
    for (const p of [4, 8, 16, 24]) {
      const sizes = { numStages: p, numMicrobatches: 3 * p };
      expect(simulateSchedule(zeroBubbleV(sizes), options).longestStageBubble).toBe(0);
      // A chunk is half as large as a stage of 1F1B.
      expect(peak(zeroBubbleV(sizes), options) / 2).toBe(peak(oneForwardOneBackward(sizes), options));
    }
  });

  test("interleaved 1F1B (Narayanan et al. 2021, section 2.2): (p − 1) / (v m) of the ideal time, and the memory of Korthikanti et al. 2022", () => {
    for (const [p, m, v] of [
      [4, 8, 2],
      [8, 16, 4],
      [8, 64, 2],
      [12, 48, 3],
    ] as const) {
      const sizes = { numStages: p, numMicrobatches: m };
      const times = { F: 1 / v, I: 1 / v, W: 1 / v };
      const { seconds } = simulateSchedule(interleaved({ ...sizes, numChunks: v }), { times });
      expect((seconds - 3 * m) / (3 * m)).toBeCloseTo((p - 1) / (v * m), 12);
      const kept = (scale: number) => ({ times, kept: { input: 3 / scale, weight: 5 / scale } });
      const ratio =
        peak(interleaved({ ...sizes, numChunks: v }), kept(v)) / peak(oneForwardOneBackward(sizes), kept(1));
      expect(ratio).toBeCloseTo(1 + (p - 1) / (p * v), 12);
    }
  });

  test("DualPipeV (DeepSeek-AI 2025, table of DualPipe): (PP/2 − 1)(F&B + B − 3W) and PP + 1 activations for PP parts", () => {
    for (const [F, I, W, overlapped] of [
      [1, 1, 1, 1],
      [4, 5, 3, 1],
      [10, 10, 8, 1],
      [4, 5, 3, 0.75],
    ] as const) {
      for (const p of [2, 4, 8]) {
        // Forward and backward of a pair are computed at the same time, which takes F&B.
        const pair = overlapped * (F + I + W);
        const { stages } = simulateSchedule(dualPipeV({ numStages: p, numMicrobatches: 3 * p }), {
          times: { F, I, W },
          pairSeconds: () => pair,
        });
        const published = (p - 1) * (pair + (I + W) - 3 * W);
        if (overlapped === 1) expect(stages[0]?.idle).toBeCloseTo(published, 9);
        else expect(stages[0]?.idle).toBeLessThanOrEqual(published);
        expect(stages.map(({ activations }) => activations)).toEqual(range(p).map(() => 2 * p + 1));
      }
    }
  });
});
