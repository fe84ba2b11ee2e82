import { describe, expect, test } from "vitest";
import { lineChart, mergeNarrow, table, thinOut, timeline } from "./charts.js";
import { measurePipeline, planPipeline } from "./pipelineSchedule.js";
import { type RunReport, reportHtml, speedLine } from "./reportPage.js";
import { stepTimes } from "./runReport.js";
import type { DeviceWork, LoopIteration, StepTrace } from "./stepTrace.js";

/** Two stages that run two microbatches: iterations of 2 ms, and stage 1 waits half a ms in its second. */
const plan = planPipeline({ numStages: 2, numRepeats: 1 }, 2);
const trace: StepTrace = {
  iterations: [0, 1].flatMap((device) =>
    [0, 1].flatMap((pass) =>
      [0, 1, 2].map((iteration): LoopIteration => {
        const begin = 10 * pass + 2 * iteration;
        return {
          device,
          program: "step",
          loop: pass,
          role: plan.loops[pass],
          iteration,
          depth: 0,
          begin,
          end: begin + 2,
        };
      }),
    ),
  ),
  work: [2, 12].map(
    (begin): DeviceWork => ({
      device: 1,
      kind: "wait",
      name: "wait",
      program: "step",
      source: undefined,
      begin,
      end: begin + 0.5,
    }),
  ),
};
const measured = measurePipeline(plan, trace, (device) => device);

const report: RunReport = {
  title: 'A run called <script>alert("no")</script>',
  facts: [["loss", "6.1 → 2.0"]],
  steps: [1, 2, 3].map((step) => ({
    step,
    loss: 4 - step,
    crossEntropy: 4 - step,
    gradientNorm: 1 / step,
    learningRate: step / 1000,
    tokensPerSecond: 1000 * step,
    seconds: 1 / step,
  })),
  evaluations: [{ step: 3, loss: 1.5 }],
  timeline: [0, 1].map((device) => ({
    device,
    spans: [
      { begin: device, end: 4, kind: "gemm", title: "dotGeneral" },
      { begin: 4, end: 4.5, kind: "wait", title: "wait: psum" },
      { begin: 4.5, end: 5, kind: "collective", title: "psum" },
    ],
  })),
  shares: [0, 1].map((device) => ({
    device,
    gemm: 0.7,
    kernel: 0.05,
    copy: 0,
    collective: 0.1,
    wait: 0.1,
    idle: 0.05,
  })),
  pipeline: measured ? { plan, measured } : { plan },
  parameters: [{ path: "embed/embedding", shape: "f32[4,4]", spec: "P()", bytes: 64, bytesPerDevice: 64 }],
  memory: [0, 1].map((device) => ({ device, parts: [{ what: "parameters", bytes: 2048 }] })),
  collectives: [{ kind: "psum", axis: "data", count: 2, bytes: 128 }],
  samples: [
    { step: 1, text: "Call" },
    { step: 3, text: "Call me <b>Ishmael</b>" },
  ],
  checkpoints: ["checkpoints/step-00000003"],
};

test("the speed is that of five steps, so that a late look at two of them shows as no peak", () => {
  const speeds = [25, 1000, 500, 5e8, 1000, 1000, 1000, 1000];
  const line = speedLine(speeds.map((tokensPerSecond, i) => ({ step: i + 1, tokensPerSecond })));
  expect(line.map(([step]) => step)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  expect(line.map(([, speed]) => Math.round(speed))).toEqual([25, 1000, 667, 1000, 1000, 1000, 1000, 1250]);
});

describe("a report", () => {
  const html = reportHtml(report);

  test("shows everything that is known and needs no network and no script", () => {
    for (const text of ["validation", "device 1", "stage 1", "33.3 %", "embed/embedding", "2 KiB", "psum"]) {
      expect(html).toContain(text);
    }
    expect(html).not.toMatch(/<script|https?:\/\//);
    expect(html).not.toContain("<b>Ishmael");
  });

  test("draws the pipeline as planned and as it ran, with what was lost", () => {
    for (const text of ["planned", "measured", "stage 0, forward, iteration 1: microbatch 1"]) {
      expect(html).toContain(text);
    }
    // Two stages, two passes, three iterations: planned and measured.
    expect(html.match(/<rect [^>]*class="slot /g)).toHaveLength(2 * 2 * 2 * 3);
    expect(html.match(/class="slot bubble"/g)).toHaveLength(2 * 2 * 2);
    expect(html).toContain("Planned: 33.3 % of the slots are bubble.");
    expect(html).toMatch(
      /62\.5 % of the iterations' time on microbatches, 33\.3 % computing unused values in the bubble/,
    );
    expect(html).toContain("4.2 % waiting; 37.5 % lost in all");
    const unmeasured = reportHtml({ ...report, pipeline: { plan } });
    expect(unmeasured).toContain("no step of this pipeline was recorded");
    expect(unmeasured.match(/<rect [^>]*class="slot /g)).toHaveLength(2 * 2 * 3);
  });

  test("draws every metric of the run, known or not", () => {
    for (const title of ["Throughput", "Gradient norm", "Learning rate"])
      expect(html).toContain(`<h2>${title}</h2>`);
    expect(html).not.toContain("Loss scale");
    expect(html).not.toContain("without regularisation");
    const [first, ...others] = report.steps;
    if (!first) throw new Error("the report has no steps");
    const odd = { ...first, crossEntropy: 2, lossScale: 1024, entropyOfRouter: 3 };
    const more = reportHtml({ ...report, steps: [odd, ...others] });
    for (const text of ["<h2>Loss scale</h2>", "<h2>entropyOfRouter</h2>", "without regularisation"])
      expect(more).toContain(text);
  });

  test("tells waiting from work", () => {
    expect(html).toContain('<rect class="kind-wait"');
    expect(html).toContain("time without work: 15 % of the step");
  });
});

test("charts say so when there is nothing to draw, and show a single point", () => {
  expect(lineChart([], { x: "step", y: "loss" })).toContain("nothing was recorded");
  expect(timeline([], "ms")).toContain("no step was recorded");
  const one = lineChart([{ name: "a", colour: "red", points: [[1, 2]] }], { x: "step", y: "loss" });
  expect(one).toContain("<circle");
  expect(one).not.toContain("NaN");
  expect(table(["a", "size"], [["x", { bytes: 1024 }]])).toContain('<td class="number">1 KiB</td>');
});

test("a line is interrupted where its values are not finite", () => {
  const points = [1, Number.NaN, 3, 4].map((y, x) => [x, y] as const);
  const [, path = ""] =
    / d="(.*?)"/.exec(lineChart([{ name: "a", colour: "red", points }], { x: "step", y: "a" })) ?? [];
  expect(path.replace(/[\d. ]/g, "")).toBe("MML");
});

test("a long line keeps its peaks in a page of bounded size", () => {
  const points = Array.from({ length: 300_000 }, (_, x) => [x, x === 123_456 ? 9 : x % 2] as const);
  const thin = thinOut(points);
  expect(thin.length).toBeLessThanOrEqual(1000);
  expect(thin).toContainEqual([123_456, 9]);
  expect(thin.map(([x]) => x)).toEqual([...thin.map(([x]) => x)].sort((a, b) => a - b));
  const html = lineChart([{ name: "a", colour: "red", points }], { x: "step", y: "a" });
  expect(html.length).toBeLessThan(30_000);
});

test("neighbours that are too narrow to be seen are drawn as one", () => {
  const span = (begin: number, end: number, kind: string) => ({ begin, end, kind, title: kind });
  const wide = span(10, 20, "gemm");
  const narrow = [span(0, 0.4, "kernel"), span(0.4, 0.5, "copy"), span(0.5, 0.9, "kernel")];
  expect(mergeNarrow([...narrow, span(5, 5.1, "copy"), wide], 1)).toEqual([
    { begin: 0, end: 0.9, kind: "kernel", title: "3 short operations, mostly kernel" },
    span(5, 5.1, "copy"),
    wide,
  ]);
  const many = Array.from({ length: 10_000 }, (_, i) => span(i, i + 0.9, i % 2 ? "kernel" : "copy"));
  const html = timeline([{ name: "device 0", spans: many }], "ms");
  expect(html.match(/<rect/g)?.length).toBeLessThan(800);
});

describe("the time of steps", () => {
  test("is told as the median and the slow ends, in the unit that suits it", () => {
    const times = Array.from({ length: 200 }, (_, i) => (200 - i) / 1000);
    expect(stepTimes(times)).toBe("100, 180, 198 ms");
    expect(stepTimes([0.25])).toBe("250, 250, 250 ms");
    expect(stepTimes([1, 12, 2])).toBe("2, 12, 12 s");
  });
});
