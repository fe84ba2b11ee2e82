/** Draws the schedule of a pipeline: as planned and, below it on the same scale, as measured. */
import { chart, escapeHtml, extent, leftFor, legend, percent, short, xLabels } from "./charts.js";
import {
  type MeasuredPipeline,
  type MeasuredSlot,
  numIterations,
  type Pass,
  type PipelinePlan,
  type PipelineTask,
  passOf,
  plannedBubble,
  taskLabel,
} from "./pipelineSchedule.js";

const [rowHeight, rowGap, headHeight, titleHeight] = [24, 4, 26, 24];

/** Slots are at least this many pixels wide: a schedule of many iterations scrolls on narrow pages. */
const narrowestSlot = 4;
/** Approximate width of a label's character in pixels. */
const pixelsPerCharacter = 6.5;
/** Widths of a chart, in pixels, from which labels may be shown. */
const labelWidths = Array.from({ length: 24 }, (_, i) => 200 + 50 * i);

/** Hides labels of boxes in charts in which they do not fit. */
export const labelRules = labelWidths
  .map(
    (width) =>
      `@container (width < ${width}px) { .from-${width} { display: none; } } @container (width >= ${width}px) { .below-${width} { display: none; } }`,
  )
  .join("\n");

/** The colours repeat after this many microbatches. */
const numHues = 8;
/** The shades repeat after this many repeats. */
const numShades = 3;

/** What the letters of interleaved actions mean. */
const kinds = { F: "forward", B: "backward", I: "input gradient", W: "weight gradient" } as const;

/** From the earliest begin of a pass on any device to its latest end. */
interface PassSpan {
  readonly pass: Pass;
  readonly begin: number;
  readonly end: number;
}

/** A box of the chart. */
interface Box {
  readonly task: PipelineTask | null;
  readonly begin: number;
  readonly end: number;
  readonly title: string;
  readonly waits: readonly { readonly begin: number; readonly end: number }[];
}

/** Draws a plan, and its measurement if there is one. */
export function pipelineChart(plan: PipelinePlan, measured: MeasuredPipeline | undefined): string {
  // The accumulated parts of a batch look alike, so only the first is drawn.
  const slots = measured?.slots.filter(({ part }) => part === 0) ?? [];
  const count = numIterations(plan);
  // Without times an iteration is one unit long.
  const spans = separatePasses(
    plan.loops
      .map(passOf)
      .map((pass, i) =>
        measured
          ? { pass, ...extent(slots.filter((slot) => slot.pass === pass)) }
          : { pass, begin: i * count, end: (i + 1) * count },
      ),
  );
  const [begin, end] = [spans[0]?.begin ?? 0, spans.at(-1)?.end ?? 0];
  const share = (time: number) => (time - begin) / (end - begin || 1);
  const parts: string[] = [passHeads(spans, share)];
  const labels: string[] = [];
  let y = headHeight;
  const rows = (title: string, names: readonly string[], boxes: readonly (readonly Box[])[]) => {
    parts.push(`<text x="-8" y="${y + 15}" text-anchor="end" class="label">${title}</text>`);
    y += titleHeight;
    names.forEach((name, i) => {
      labels.push(name);
      parts.push(`<text x="-8" y="${y + 16}" text-anchor="end">${escapeHtml(name)}</text>`);
      parts.push(`<rect class="track" x="0" y="${y}" width="100%" height="${rowHeight}"/>`);
      parts.push(...(boxes[i] ?? []).map((box) => drawBox(box, y, share, plan)));
      y += rowHeight + rowGap;
    });
    y += rowGap;
  };
  rows(
    "planned",
    plan.stages.map((_, stage) => `stage ${stage}`),
    plan.stages.map((tasks, stage) => plannedBoxes(tasks, stage, spans, plan)),
  );
  if (measured) {
    const devices = [...new Map(slots.map(({ device, stage }) => [device, stage]))];
    devices.sort(([a, stageA], [b, stageB]) => stageA - stageB || a - b);
    const several = devices.length > plan.stages.length;
    rows(
      "measured",
      devices.map(([device, stage]) => (several ? `stage ${stage}, dev ${device}` : `stage ${stage}`)),
      devices.map(([device]) =>
        slots.filter((slot) => slot.device === device).map((slot) => measuredBox(slot, plan)),
      ),
    );
    parts.push(xLabels(0, end - begin, (time) => time / (end - begin), " ms"));
  }
  const left = leftFor([...labels, "measured"]);
  const picture = chart({
    height: y,
    left,
    bottom: measured ? 24 : 0,
    minWidth: left + plan.loops.length * count * narrowestSlot,
    label: `which microbatch each of ${plan.stages.length} stages works on`,
    content: `${hatch}${parts.join("")}`,
  });
  return `${pipelineLegend(plan, measured)}${picture}${caption(plan, measured)}`;
}

const hatch =
  '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-line" width="1.5" height="6"/></pattern></defs>';

/**
 * The spans of the passes without overlap: if some devices start backward before all have finished forward, the
 * midpoint separates them.
 */
function separatePasses(spans: readonly PassSpan[]): PassSpan[] {
  return spans.map((span, i) => {
    const [before, after] = [spans[i - 1], spans[i + 1]];
    const begin = before && before.end > span.begin ? (before.end + span.begin) / 2 : span.begin;
    const end = after && span.end > after.begin ? (span.end + after.begin) / 2 : span.end;
    return { ...span, begin, end };
  });
}

function passHeads(spans: readonly PassSpan[], share: (time: number) => number): string {
  const heads = spans.map(({ pass, begin, end }) => {
    const [from, to] = [share(begin), share(end)];
    return (
      `<line class="rule" x1="${percent(from + 0.001)}" x2="${percent(to - 0.001)}" y1="20" y2="20"/>` +
      `<text x="${percent((from + to) / 2)}" y="13" text-anchor="middle">${pass}</text>`
    );
  });
  return heads.join("");
}

function plannedBoxes(
  tasks: readonly (PipelineTask | null)[],
  stage: number,
  spans: readonly PassSpan[],
  plan: PipelinePlan,
): Box[] {
  const count = tasks.length;
  return spans.flatMap(({ pass, begin, end }) => {
    const length = (end - begin) / count;
    return tasks.map((task, iteration) => {
      const place = pass === "backward" ? count - 1 - iteration : iteration;
      return {
        task,
        begin: begin + place * length,
        end: begin + (place + 1) * length,
        title: describe({ stage, pass, iteration, task }, plan),
        waits: [],
      };
    });
  });
}

function measuredBox(slot: MeasuredSlot, plan: PipelinePlan): Box {
  const { task, begin, end, waits, device } = slot;
  const waited = waits.reduce((sum, wait) => sum + wait.end - wait.begin, 0);
  const times = `${short(end - begin)} ms on device ${device}, ${short(waited)} ms of it waiting`;
  return { task, begin, end, waits, title: `${describe(slot, plan)}\n${times}` };
}

function describe(
  { stage, pass, iteration, task }: Pick<MeasuredSlot, "stage" | "pass" | "iteration" | "task">,
  { numRepeats }: PipelinePlan,
): string {
  const repeat = task && numRepeats > 1 ? `, repeat ${task.repeat}` : "";
  const kind = task?.kind === undefined ? "" : `${kinds[task.kind]} of `;
  const what = task ? `${kind}microbatch ${task.microbatch}${repeat}` : "bubble";
  return `stage ${stage}, ${pass}, iteration ${iteration}: ${what}`;
}

function drawBox(
  { task, begin, end, title, waits }: Box,
  y: number,
  share: (time: number) => number,
  plan: PipelinePlan,
): string {
  const rect = (from: number, to: number, attributes: string) => {
    const wide = Math.max(0.0005, share(to) - share(from));
    return `<rect x="${percent(share(from))}" y="${y}" width="${percent(wide)}" height="${rowHeight}" ${attributes}/>`;
  };
  const fill = task ? `class="slot ${taskClass(task)}"` : 'class="slot bubble"';
  // If the whole label does not fit, the microbatch alone may; the shade shows the repeat.
  const candidates = task ? [...new Set([taskLabel(task, plan), `${task.microbatch}`])] : [];
  const wide = share(end) - share(begin);
  const widths = candidates.map(({ length }) =>
    labelWidths.find((width) => wide * (width - leftFor(["stage 0"])) >= 3 + length * pixelsPerCharacter),
  );
  const middle = percent((share(begin) + share(end)) / 2);
  const texts = candidates.map((label, i) => {
    const [from, below] = [widths[i], widths[i - 1]];
    if (from === undefined || from === below) return "";
    const hidden = below === undefined ? "" : ` below-${below}`;
    return `<text class="label from-${from}${hidden}" x="${middle}" y="${y + 16}" text-anchor="middle">${label}</text>`;
  });
  const waited = waits
    .filter((wait) => share(wait.end) - share(wait.begin) >= 0.0005)
    .map((wait) => rect(wait.begin, wait.end, 'class="kind-wait"'))
    .join("");
  return `<g><title>${escapeHtml(title)}</title>${rect(begin, end, fill)}${waited}${texts.join("")}</g>`;
}

/** The shade shows the repeat, or the half of the backward pass if it is split. */
const taskClass = ({ microbatch, repeat, kind }: PipelineTask) =>
  `hue${microbatch % numHues} shade${(kind === undefined ? repeat : "FIW".indexOf(kind)) % numShades}`;

function pipelineLegend({ numMicrobatches }: PipelinePlan, measured: MeasuredPipeline | undefined): string {
  const hues = Array.from({ length: Math.min(numHues, numMicrobatches) }, (_, i) => `var(--hue${i})`);
  const step = 100 / hues.length;
  const stripes = hues.map((hue, i) => `${hue} ${i * step}% ${(i + 1) * step}%`).join(",");
  return legend([
    [`linear-gradient(90deg,${stripes})`, "microbatches, a colour each", 6 * hues.length],
    ["repeating-linear-gradient(45deg,var(--soft) 0 1px,transparent 1px 4px)", "bubble"],
    ...(measured ? [["var(--wait)", "waiting for another device"] as const] : []),
  ]);
}

function caption(plan: PipelinePlan, measured: MeasuredPipeline | undefined): string {
  const inPercent = (share: number) => `${short(Number((100 * share).toFixed(1)))} %`;
  const planned = `Planned: ${inPercent(plannedBubble(plan))} of the slots are bubble.`;
  if (!measured) return `<p class="caption">${planned} Measured: no step of this pipeline was recorded.</p>`;
  const { useful, bubble, waiting } = measured.shares;
  const parts =
    measured.numParts > 1 ? ` Drawn is the first of ${measured.numParts} parts of the batch.` : "";
  return `<p class="caption">${planned}${parts} Measured: the devices spent ${inPercent(useful)} of the iterations' time on microbatches, ${inPercent(bubble)} computing unused values in the bubble, and ${inPercent(waiting)} waiting; ${inPercent(bubble + waiting)} lost in all.</p>`;
}
