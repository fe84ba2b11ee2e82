import { escapeHtml, lineChart, type Span, short, table, timeline } from "./charts.js";

/** What one training step told. */
export interface StepRecord {
  readonly step: number;
  readonly loss: number;
  readonly gradientNorm: number;
  readonly tokensPerSecond: number;
}

/** Everything a report shows. */
export interface RunReport {
  readonly title: string;
  /** A few facts for the top of the page. */
  readonly facts: readonly (readonly [name: string, value: string])[];
  readonly steps: readonly StepRecord[];
  readonly evaluations: readonly { readonly step: number; readonly loss: number }[];
  /** What every device did during one step; times in milliseconds. */
  readonly timeline: readonly { readonly device: number; readonly spans: readonly Span[] }[];
  /** For a pipeline: what each stage works on at each iteration, `null` when it is idle. */
  readonly schedule: readonly (readonly (string | null)[])[];
  readonly parameters: readonly {
    readonly path: string;
    readonly shape: string;
    readonly spec: string;
    readonly bytes: number;
    readonly bytesPerDevice: number;
  }[];
  readonly memory: readonly { readonly what: string; readonly bytesPerDevice: number }[];
  readonly collectives: readonly {
    readonly kind: string;
    readonly axis: string;
    readonly count: number;
    readonly bytes: number;
  }[];
  readonly sample: string;
}

const style = `
:root { color-scheme: light dark; --ink: #1d2330; --soft: #667085; --paper: #ffffff; --card: #f6f7f9; --line: #e2e5ea;
  --loss: #3266d6; --eval: #d6642b; --speed: #2b8a5f; --kernel: #7aa5f0; --gemm: #3266d6; --collective: #e0893b; --copy: #9aa4b5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebf1; --soft: #98a2b3; --paper: #14171d; --card: #1c2129; --line: #2c333e;
  --loss: #7aa5f0; --eval: #f0a36b; --speed: #62c796; --kernel: #4a6fb5; --gemm: #7aa5f0; --collective: #f0a36b; --copy: #667085; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 880px; padding: 40px 20px 80px; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: 28px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 44px 0 10px; }
p { color: var(--soft); margin: 4px 0 12px; } .empty { font-style: italic; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(180px, 1fr)); gap: 10px; margin-top: 22px; }
.facts div { background: var(--card); border-radius: 10px; padding: 12px 14px; }
.facts b { display: block; font-size: 19px; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; } .facts span { color: var(--soft); font-size: 13px; }
svg { width: 100%; height: auto; display: block; } svg text { font-size: 12px; fill: var(--soft); } svg .label { fill: var(--ink); }
.grid { stroke: var(--line); } .track { fill: var(--card); }
.kind-kernel { fill: var(--kernel); } .kind-gemm { fill: var(--gemm); } .kind-collective { fill: var(--collective); } .kind-copy { fill: var(--copy); }
.legend span { display: inline-block; margin-right: 16px; } .legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 6px; vertical-align: -1px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th, td { text-align: left; padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); white-space: nowrap; } th { color: var(--soft); font-weight: 500; }
th.number, td.number { padding-left: 12px; padding-right: 0; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.schedule td { text-align: center; padding: 4px 8px; border: 1px solid var(--line); min-width: 34px; } .schedule .busy { background: var(--kernel); color: #fff; }
pre { background: var(--card); border-radius: 10px; padding: 16px; white-space: pre-wrap; overflow-wrap: anywhere; }`;

/** A self-contained page about a run: loss, speed, what the devices did, where everything lies. */
export function reportHtml(report: RunReport): string {
  const { steps, evaluations } = report;
  const section = (title: string, note: string, body: string) =>
    `<section><h2>${escapeHtml(title)}</h2><p>${escapeHtml(note)}</p>${body}</section>`;
  const facts = report.facts
    .map(([name, value]) => `<div><b>${escapeHtml(value)}</b><span>${escapeHtml(name)}</span></div>`)
    .join("");
  const loss = lineChart(
    [
      { name: "training", colour: "var(--loss)", points: steps.map((s) => [s.step, s.loss] as const) },
      {
        name: "validation",
        colour: "var(--eval)",
        points: evaluations.map((e) => [e.step, e.loss] as const),
      },
    ],
    { x: "step", y: "loss (nats per token)" },
  );
  const speed = lineChart(
    [
      {
        name: "tokens per second",
        colour: "var(--speed)",
        points: steps.map((s) => [s.step, s.tokensPerSecond] as const),
      },
    ],
    { x: "step", y: "tokens / s" },
  );
  const rows = report.timeline.map(({ device, spans }) => ({ name: `device ${device}`, spans }));
  const busy = report.timeline.map(({ device, spans }) => [`device ${device}`, ...shares(spans)]);
  const parts = [
    section("Loss", "Every step, and the validation loss where it was measured.", loss),
    section("Throughput", "Tokens per second over all devices.", speed),
    section(
      "One step, device by device",
      "Bars are what a device did, gaps are idle time. Point at a bar to see its operations.",
      `<p class="legend"><span><i class="kind-gemm" style="background:var(--gemm)"></i>matrix products</span><span><i style="background:var(--kernel)"></i>kernels</span><span><i style="background:var(--collective)"></i>collectives, and waiting for them</span></p>${timeline(rows, "ms")}${table(["", "products %", "kernels %", "collectives %", "idle %"], busy)}`,
    ),
    report.schedule.length > 0
      ? section(
          "Pipeline schedule",
          "Planned: which micro-batch (and repeat) each stage works on, iteration by iteration.",
          schedule(report.schedule),
        )
      : "",
    section(
      "Parameters",
      "How every parameter is split over the mesh.",
      table(
        ["parameter", "shape", "split over", "size", "on each device"],
        report.parameters.map((p) => [
          p.path,
          p.shape,
          p.spec,
          { bytes: p.bytes },
          { bytes: p.bytesPerDevice },
        ]),
      ),
    ),
    section(
      "Memory of a device",
      "What one device holds.",
      table(
        ["what", "size"],
        report.memory.map((m) => [m.what, { bytes: m.bytesPerDevice }]),
      ),
    ),
    section(
      "Communication of a step",
      "Collectives that one device takes part in, and the bytes it sends.",
      report.collectives.length > 0
        ? table(
            ["collective", "axis", "count", "sent"],
            report.collectives.map((c) => [c.kind, c.axis, c.count, { bytes: c.bytes }]),
          )
        : '<p class="empty">none: everything runs on one device</p>',
    ),
    report.sample
      ? section(
          "A sample",
          "What the model writes at the end of the run.",
          `<pre>${escapeHtml(report.sample)}</pre>`,
        )
      : "",
  ];
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(report.title)}</title><style>${style}</style></head>
<body><header><h1>${escapeHtml(report.title)}</h1><div class="facts">${facts}</div></header>${parts.join("")}</body></html>
`;
}

/** The share of a device's time in each kind of work, in percent. */
function shares(spans: readonly Span[]): number[] {
  if (spans.length === 0) return [0, 0, 0, 100];
  const total = Math.max(...spans.map((s) => s.end)) - Math.min(...spans.map((s) => s.begin));
  const of = (kind: string) =>
    (100 * spans.filter((s) => s.kind === kind).reduce((sum, s) => sum + s.end - s.begin, 0)) / (total || 1);
  const [gemm, kernel, collective] = [of("gemm"), of("kernel"), of("collective")];
  return [gemm, kernel, collective, Math.max(0, 100 - gemm - kernel - collective)];
}

function schedule(stages: readonly (readonly (string | null)[])[]): string {
  const rows = stages.map((cells, stage) => {
    const boxes = cells.map((cell) =>
      cell === null ? "<td></td>" : `<td class="busy">${escapeHtml(cell)}</td>`,
    );
    return `<tr><th>stage ${stage}</th>${boxes.join("")}</tr>`;
  });
  const idle = stages.flat().filter((cell) => cell === null).length / Math.max(1, stages.flat().length);
  return `<div class="scroll"><table class="schedule">${rows.join("")}</table></div><p>${short(100 * idle)} % of the slots are idle.</p>`;
}
