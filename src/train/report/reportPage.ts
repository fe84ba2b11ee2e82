import { formatBytes } from "../../ir/shape.js";
import { details, escapeHtml, legend, lineChart, type Span, stackedBars, table, timeline } from "./charts.js";
import { labelRules, pipelineChart } from "./pipelineChart.js";
import type { MeasuredPipeline, PipelinePlan } from "./pipelineSchedule.js";
import type { DeviceShares } from "./stepTrace.js";

/** The metrics of one training step. */
export interface StepRecord {
  readonly step: number;
  /** The loss that is minimised, in nats per token. */
  readonly loss: number;
  /** The loss without regularisation. */
  readonly crossEntropy: number;
  readonly gradientNorm: number;
  readonly learningRate: number;
  readonly tokensPerSecond: number;
  /** Time from the previous step's metrics to those of this one. */
  readonly seconds: number;
  /** The factor on the loss of a float16 run. */
  readonly lossScale?: number;
}

/** The result of one evaluation. */
export interface EvaluationRecord {
  readonly step: number;
  readonly loss: number;
}

/** What the model wrote after a step. */
export interface SampleRecord {
  readonly step: number;
  readonly text: string;
}

/** The part of a report that grows with every step. */
export interface CourseReport {
  /** A few facts for the top of the page. */
  readonly facts: readonly (readonly [name: string, value: string])[];
  readonly steps: readonly StepRecord[];
  readonly evaluations: readonly EvaluationRecord[];
  readonly samples: readonly SampleRecord[];
  /** The folders of the checkpoints, relative to the run's folder. */
  readonly checkpoints: readonly string[];
}

/** The part of a report about the devices and one recorded step. */
export interface DeviceReport {
  /** What every device did during one step; times in milliseconds. */
  readonly timeline: readonly { readonly device: number; readonly spans: readonly Span[] }[];
  /** Where the time of every device went during that step. */
  readonly shares: readonly DeviceShares[];
  /** For a pipeline: what each stage should work on at each iteration, and what it did if that was recorded. */
  readonly pipeline: { readonly plan: PipelinePlan; readonly measured?: MeasuredPipeline } | undefined;
  readonly parameters: readonly {
    readonly path: string;
    readonly shape: string;
    readonly spec: string;
    readonly bytes: number;
    readonly bytesPerDevice: number;
  }[];
  /** What the memory of every device holds. */
  readonly memory: readonly {
    readonly device: number;
    readonly parts: readonly { readonly what: string; readonly bytes: number }[];
  }[];
  readonly collectives: readonly {
    readonly kind: string;
    readonly axis: string;
    readonly count: number;
    readonly bytes: number;
  }[];
}

/** Everything a report shows. */
export interface RunReport extends CourseReport, DeviceReport {
  readonly title: string;
}

/** A part of a page, which a live page replaces when it changes. */
export interface PageSection {
  readonly id: string;
  readonly html: string;
}

const style = `
:root { color-scheme: light dark; --ink: #1d2330; --soft: #5f6b80; --paper: #ffffff; --card: #f4f5f8; --line: #e2e5ea; --shade: #1d233040;
  --loss: #3266d6; --eval: #d6642b; --speed: #2b8a5f; --norm: #8a4fc7; --rate: #b03a6b; --other: #6b7684;
  --kernel: #8fb3f2; --gemm: #2f5fd0; --collective: #e0893b; --copy: #5fb3b3; --wait: #d3d7e0;
  --hue0: #a9c5f5; --hue1: #f7c59a; --hue2: #a8dcc0; --hue3: #e3b5e6; --hue4: #f2e08f; --hue5: #9fdbe3; --hue6: #f5b1b1; --hue7: #c9cfa0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebf1; --soft: #98a2b3; --paper: #14171d; --card: #1c2129; --line: #2c333e; --shade: #00000099;
  --loss: #7aa5f0; --eval: #f0a36b; --speed: #62c796; --norm: #b993e8; --rate: #e88bb0; --other: #a3adba;
  --kernel: #3d5d99; --gemm: #7aa5f0; --collective: #f0a36b; --copy: #3f8080; --wait: #434b59;
  --hue0: #2f5597; --hue1: #8f5520; --hue2: #2a6e4c; --hue3: #733b7f; --hue4: #756416; --hue5: #1d6873; --hue6: #8b3838; --hue7: #596428; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 980px; padding: clamp(16px, 4vw, 40px) clamp(14px, 3vw, 20px) 80px; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: clamp(22px, 5vw, 28px); line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; } h2 { font-size: 18px; margin: 40px 0 6px; }
p { color: var(--soft); margin: 4px 0 12px; } .empty { font-style: italic; } .caption { font-size: 13.5px; margin-top: 8px; } .unit { font-size: 13px; margin: 8px 0 2px; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(150px, 46%), 1fr)); gap: 10px; margin-top: 22px; }
.facts div { background: var(--card); border-radius: 10px; padding: 12px 14px; }
.facts b { display: block; font-size: 19px; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; } .facts span { color: var(--soft); font-size: 13px; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 280px), 1fr)); column-gap: 18px; } .columns > * { min-width: 0; }
.chart { container-type: inline-size; } svg { display: block; overflow: visible; } svg svg { overflow: hidden; width: 100%; height: 100%; }
svg text { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; } svg .label { fill: var(--ink); }
@container (width < 460px) { .spare { display: none; } }
${labelRules}
.grid { stroke: var(--line); } .rule { stroke: var(--soft); } .track { fill: var(--card); }
.kind-kernel { fill: var(--kernel); } .kind-gemm { fill: var(--gemm); } .kind-collective { fill: var(--collective); } .kind-copy { fill: var(--copy); } .kind-wait { fill: var(--wait); }
${Array.from({ length: 8 }, (_, i) => `.hue${i} { --hue: var(--hue${i}); }`).join(" ")}
.slot { stroke: var(--paper); stroke-width: 1; fill: var(--hue); } .shade1 { fill: color-mix(in srgb, var(--hue) 80%, var(--ink)); } .shade2 { fill: color-mix(in srgb, var(--hue) 64%, var(--ink)); }
.bubble { fill: url(#hatch); stroke: var(--line); } .hatch-line { fill: var(--soft); opacity: 0.5; }
.legend { margin-bottom: 8px; } .legend span { display: inline-block; margin-right: 16px; font-size: 13.5px; } .legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 6px; vertical-align: -1px; }
.scroll { overflow-x: auto; background: linear-gradient(90deg, var(--paper) 30%, transparent) 0 0 / 40px 100% no-repeat local,
  linear-gradient(270deg, var(--paper) 30%, transparent) 100% 0 / 40px 100% no-repeat local,
  linear-gradient(90deg, var(--shade), transparent) 0 0 / 12px 100% no-repeat scroll,
  linear-gradient(270deg, var(--shade), transparent) 100% 0 / 12px 100% no-repeat scroll; }
a { color: var(--loss); overflow-wrap: anywhere; } ul { margin: 4px 0; padding-left: 20px; }
:focus-visible { outline: 2px solid var(--loss); outline-offset: 2px; }
details { margin: 4px 0; } summary { color: var(--soft); font-size: 13.5px; cursor: pointer; padding: 4px 0; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; } .scroll + .scroll { margin-top: 12px; }
th, td { text-align: left; padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); white-space: nowrap; } th { color: var(--soft); font-weight: 500; }
@media (width < 600px) { td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 11em; } }
th.number, td.number { padding-left: 12px; padding-right: 0; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: var(--card); border-radius: 10px; padding: 16px; white-space: pre-wrap; overflow-wrap: anywhere; }`;

/** The colours of the parts of a device's memory, in their order. */
const memoryColours = ["var(--gemm)", "var(--collective)", "var(--copy)", "var(--kernel)"];

/** A self-contained page about a run: loss, speed, what the devices did, and how tensors are placed. */
export function reportHtml(report: RunReport): string {
  return pageHtml(report.title, [...courseSections(report), ...deviceSections(report)]);
}

/** A page of sections. @param head what else belongs into the head */
export function pageHtml(title: string, sections: readonly PageSection[], head = ""): string {
  const parts = sections.map(({ id, html }) => `<div id="${id}">${html}</div>`).join("");
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title><style>${style}</style>${head}</head>
<body><header><h1>${escapeHtml(title)}</h1></header><main>${parts}</main></body></html>
`;
}

/** A part of a page with a heading. */
export function section(title: string, note: string, body: string): string {
  return `<section><h2>${escapeHtml(title)}</h2><p>${escapeHtml(note)}</p>${body}</section>`;
}

/** What has come of a run so far: loss, metrics, samples and checkpoints. */
export function courseSections(report: CourseReport): PageSection[] {
  const facts = report.facts
    .map(([name, value]) => `<div><b>${escapeHtml(value)}</b><span>${escapeHtml(name)}</span></div>`)
    .join("");
  return [
    { id: "facts", html: `<div class="facts">${facts}</div>` },
    ...metricSections(report),
    ...samplesOf(report),
    ...checkpointsOf(report),
  ];
}

/** What the devices did, and how the state is placed on them. */
export function deviceSections(report: DeviceReport): PageSection[] {
  return [...stepSections(report), ...stateSections(report)];
}

/** What is known about metrics; others are drawn under their own names. */
const known: Readonly<Record<string, { title: string; note: string; y: string; colour: string }>> = {
  tokensPerSecond: {
    title: "Throughput",
    note: "Tokens per second over all devices, in the last five steps.",
    y: "tokens / s",
    colour: "var(--speed)",
  },
  gradientNorm: {
    title: "Gradient norm",
    note: "Of all parameters together, before clipping.",
    y: "norm",
    colour: "var(--norm)",
  },
  learningRate: {
    title: "Learning rate",
    note: "As the schedule sets it.",
    y: "learning rate",
    colour: "var(--rate)",
  },
  routerImbalance: {
    title: "Fullest expert",
    note: "Its load as a multiple of the mean; 1 is balanced.",
    y: "load / mean",
    colour: "var(--other)",
  },
  routerDeviceImbalance: {
    title: "Fullest device",
    note: "The load of its experts as a multiple of the mean of all devices; the others wait for it.",
    y: "load / mean",
    colour: "var(--other)",
  },
  routerDropped: {
    title: "Dropped choices",
    note: "The share of the choices of tokens that found their expert full.",
    y: "share",
    colour: "var(--other)",
  },
  routerEntropy: {
    title: "Router entropy",
    note: "How undecided routers are, in nats.",
    y: "nats",
    colour: "var(--other)",
  },
  routerBalance: {
    title: "Load-balance loss",
    note: "Before its weight; the number of experts per token when all get as many tokens.",
    y: "loss",
    colour: "var(--other)",
  },
  routerZ: { title: "Router z-loss", note: "Before its weight.", y: "loss", colour: "var(--other)" },
  lossScale: {
    title: "Loss scale",
    note: "Keeps float16 gradients from vanishing.",
    y: "factor",
    colour: "var(--other)",
  },
};

/** Metrics that other charts show. */
const shownElsewhere = new Set(["step", "loss", "crossEntropy", "seconds"]);

/**
 * The speed of a run by step, over the last five steps after the first, which compiles: a busy host notices the ends of
 * several steps at once, and all but one of them then seem to have taken no time.
 */
export function speedLine(
  steps: readonly Pick<StepRecord, "step" | "tokensPerSecond">[],
): readonly (readonly [step: number, tokensPerSecond: number])[] {
  return steps.map(({ step }, i) => {
    const last = steps.slice(Math.max(Math.min(i, 1), i - 4), i + 1);
    const secondsPerToken = last.reduce((sum, { tokensPerSecond }) => sum + 1 / tokensPerSecond, 0);
    return [step, last.length / secondsPerToken] as const;
  });
}

/** The loss, and every other metric of the run, by step. */
function metricSections({ steps, evaluations }: CourseReport): PageSection[] {
  const line = (key: string) =>
    key === "tokensPerSecond"
      ? speedLine(steps)
      : steps.map((s) => [s.step, Number(Reflect.get(s, key))] as const);
  const isRegularised = steps.some(({ loss, crossEntropy }) => Math.abs(loss - crossEntropy) > 1e-6);
  const loss = lineChart(
    [
      { name: "training", colour: "var(--loss)", points: line("loss") },
      ...(isRegularised
        ? [{ name: "without regularisation", colour: "var(--norm)", points: line("crossEntropy") }]
        : []),
      {
        name: "validation",
        colour: "var(--eval)",
        points: evaluations.map((e) => [e.step, e.loss] as const),
      },
    ],
    { x: "step", y: "loss (nats per token)" },
  );
  const recorded = new Set([...Object.keys(known), ...steps.flatMap((record) => Object.keys(record))]);
  const others = [...recorded]
    .filter((key) => !shownElsewhere.has(key) && steps.some((record) => key in record))
    .map((key) => {
      const about = known[key] ?? { title: key, note: "", y: key, colour: "var(--other)" };
      const { title, note, y, colour } = about;
      return section(title, note, lineChart([{ name: y, colour, points: line(key) }], { x: "step", y }));
    });
  return [
    { id: "loss", html: section("Loss", "Every step, and the validation loss where it was measured.", loss) },
    { id: "metrics", html: `<div class="columns">${others.join("")}</div>` },
  ];
}

/** What the devices did in one step. */
function stepSections({ timeline: devices, shares, pipeline }: DeviceReport): PageSection[] {
  const rows = devices.map(({ device, spans }) => ({ name: `device ${device}`, spans }));
  const step = section(
    "One step, device by device",
    "Bars are what a device did, gaps are idle time. Pointing at a bar shows its operations; the longest ones are listed below.",
    `${timelineLegend}${timeline(rows, "ms")}${sharesTable(shares)}`,
  );
  const timed = { id: "step", html: step };
  if (!pipeline) return [timed];
  const schedule = section(
    "Pipeline schedule",
    "Which microbatch each stage works on: as planned, with iterations of equal length, and as a step was recorded.",
    pipelineChart(pipeline.plan, pipeline.measured),
  );
  return [timed, { id: "pipeline", html: schedule }];
}

/** How parameters are placed, what devices hold, and what they send. */
function stateSections({ parameters, memory, collectives }: DeviceReport): PageSection[] {
  const places = table(
    ["parameter", "shape", "split over", "size", "on each device"],
    parameters.map((p) => [p.path, p.shape, p.spec, { bytes: p.bytes }, { bytes: p.bytesPerDevice }]),
  );
  const sent = table(
    ["collective", "axis", "count", "sent each time", "sent in all"],
    collectives.map((c) => [c.kind, c.axis, c.count, { bytes: c.bytes / c.count }, { bytes: c.bytes }]),
  );
  return [
    { id: "parameters", html: section("Parameters", "How every parameter is split over the mesh.", places) },
    {
      id: "memory",
      html: section("Memory of each device", "What every device holds during a step.", memorySection(memory)),
    },
    {
      id: "communication",
      html: section(
        "Communication of a step",
        "Collectives that one device takes part in, and the bytes it sends.",
        collectives.length > 0 ? sent : '<p class="empty">none: everything runs on one device</p>',
      ),
    },
  ];
}

/** The newest sample, and those before it to be opened. */
function samplesOf({ samples }: CourseReport): PageSection[] {
  const [newest, ...earlier] = [...samples].reverse();
  if (!newest) return [];
  const text = (sample: SampleRecord) => `<pre>${escapeHtml(sample.text)}</pre>`;
  const before = earlier.map((sample) => details(`After step ${sample.step}`, text(sample))).join("");
  const note = `What the model writes after step ${newest.step}.`;
  return [{ id: "samples", html: section("A sample", note, `${text(newest)}${before}`) }];
}

function checkpointsOf({ checkpoints }: CourseReport): PageSection[] {
  if (checkpoints.length === 0) return [];
  const links = checkpoints.map((path) => `<li><a href="${escapeHtml(path)}/">${escapeHtml(path)}</a></li>`);
  const note = "Complete states of the run, to continue from or to sample with.";
  return [{ id: "checkpoints", html: section("Checkpoints", note, `<ul>${links.join("")}</ul>`) }];
}

const timelineLegend = legend([
  ["var(--gemm)", "matrix products"],
  ["var(--kernel)", "kernels"],
  ["var(--copy)", "copies"],
  ["var(--collective)", "communication"],
  ["var(--wait)", "waiting for another device"],
]);

function sharesTable(shares: readonly DeviceShares[]): string {
  if (shares.length === 0) return "";
  const percent = (share: number) => Number((100 * share).toFixed(1));
  const lost = shares.reduce((sum, { wait, idle }) => sum + wait + idle, 0) / shares.length;
  const rows = shares.map(({ device, gemm, kernel, copy, collective, wait, idle }) => [
    `device ${device}`,
    ...[gemm, kernel + copy, collective, wait, idle].map(percent),
  ]);
  const columns = ["", "products %", "kernels, copies %", "communication %", "waiting %", "idle %"];
  return `${table(columns, rows)}<p class="caption">Waiting and idle are time without work: ${percent(lost)} % of the step.</p>`;
}

function memorySection(devices: DeviceReport["memory"]): string {
  const kinds = [...new Set(devices.flatMap(({ parts }) => parts.map(({ what }) => what)))];
  const colour = (what: string) => memoryColours[kinds.indexOf(what) % memoryColours.length] ?? "";
  const bars = devices.map(({ device, parts }) => ({
    name: `device ${device}`,
    parts: parts.map(({ what, bytes }) => ({ what, value: bytes, colour: colour(what) })),
  }));
  const rows = devices.map(({ device, parts }) => [
    `device ${device}`,
    ...kinds.map((what) => ({ bytes: parts.find((part) => part.what === what)?.bytes ?? 0 })),
  ]);
  return `${legend(kinds.map((what) => [colour(what), what] as const))}${stackedBars(bars, formatBytes)}${table(["", ...kinds], rows)}`;
}
