/** Draws the schedule of a pipeline: as planned and, below it on the same scale, as measured. */
import { chart, escapeHtml, extent, legend, short, timeAxis } from "./charts.js";
import {
  type MeasuredPipeline,
  type MeasuredSlot,
  numIterations,
  type Pass,
  type PipelinePlan,
  type PipelineTask,
  plannedBubble,
  taskLabel,
} from "./pipelineSchedule.js";

const [left, right, rowHeight, rowGap, headHeight, titleHeight] = [104, 12, 24, 4, 26, 24];

/** The usual width of a chart; a schedule of many iterations is wider and scrolls. */
const usualWidth = 760;
const narrowestSlot = 9;
/** Approximate width of a label's character in pixels. */
const pixelsPerCharacter = 6.5;

/** The colours repeat after this many microbatches. */
const numHues = 8;
/** The shades repeat after this many repeats. */
const numShades = 3;

/** What the letters of interleaved actions mean. */
const kinds = { F: "forward", I: "input gradient", W: "weight gradient" } as const;

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
  const wide = Math.max(usualWidth, left + right + plan.passes.length * count * narrowestSlot);
  // Without times an iteration is one unit long.
  const spans = separatePasses(
    plan.passes.map((pass, i) =>
      measured
        ? { pass, ...extent(slots.filter((slot) => slot.pass === pass)) }
        : { pass, begin: i * count, end: (i + 1) * count },
    ),
  );
  const [begin, end] = [spans[0]?.begin ?? 0, spans.at(-1)?.end ?? 0];
  const scale = (wide - left - right) / (end - begin || 1);
  const px = (time: number) => left + (time - begin) * scale;
  const parts: string[] = [passHeads(spans, px)];
  let y = headHeight;
  const rows = (title: string, names: readonly string[], boxes: readonly (readonly Box[])[]) => {
    parts.push(`<text x="0" y="${y + 15}" class="label">${title}</text>`);
    y += titleHeight;
    names.forEach((name, i) => {
      parts.push(`<text x="${left - 8}" y="${y + 16}" text-anchor="end">${escapeHtml(name)}</text>`);
      parts.push(
        `<rect class="track" x="${left}" y="${y}" width="${wide - left - right}" height="${rowHeight}"/>`,
      );
      parts.push(...(boxes[i] ?? []).map((box) => drawBox(box, y, px, plan)));
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
    parts.push(timeAxis(end - begin, px(begin), scale, y + 12, "ms"));
    y += 20;
  }
  return `${pipelineLegend(plan, measured)}${chart(wide, y, `${hatch}${parts.join("")}`)}${caption(plan, measured)}`;
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

function passHeads(spans: readonly PassSpan[], px: (time: number) => number): string {
  const heads = spans.map(({ pass, begin, end }) => {
    const [from, to] = [px(begin), px(end)];
    return (
      `<line class="rule" x1="${(from + 1).toFixed(1)}" x2="${(to - 1).toFixed(1)}" y1="20" y2="20"/>` +
      `<text x="${((from + to) / 2).toFixed(1)}" y="13" text-anchor="middle">${pass}</text>`
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
  px: (time: number) => number,
  plan: PipelinePlan,
): string {
  const rect = (from: number, to: number, attributes: string) => {
    const wide = Math.max(0.4, px(to) - px(from));
    return `<rect x="${px(from).toFixed(1)}" y="${y}" width="${wide.toFixed(1)}" height="${rowHeight}" ${attributes}/>`;
  };
  const fill = task ? `class="slot ${taskClass(task)}"` : 'class="slot bubble"';
  const wide = px(end) - px(begin);
  // If the whole label does not fit, the microbatch alone may; the shade shows the repeat.
  const labels = task ? [taskLabel(task, plan), `${task.microbatch}`] : [];
  const label = labels.find(({ length }) => wide >= 3 + length * pixelsPerCharacter);
  const text =
    label !== undefined
      ? `<text class="label" x="${((px(begin) + px(end)) / 2).toFixed(1)}" y="${y + 16}" text-anchor="middle">${label}</text>`
      : "";
  const waited = waits
    .filter((wait) => px(wait.end) - px(wait.begin) >= 0.3)
    .map((wait) => rect(wait.begin, wait.end, 'class="kind-wait"'))
    .join("");
  return `<g><title>${escapeHtml(title)}</title>${rect(begin, end, fill)}${waited}${text}</g>`;
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
  const percent = (share: number) => `${short(Number((100 * share).toFixed(1)))} %`;
  const planned = `Planned: ${percent(plannedBubble(plan))} of the slots are bubble.`;
  if (!measured) return `<p class="caption">${planned} Measured: no step of this pipeline was recorded.</p>`;
  const { useful, bubble, waiting } = measured.shares;
  const parts =
    measured.numParts > 1 ? ` Drawn is the first of ${measured.numParts} parts of the batch.` : "";
  return `<p class="caption">${planned}${parts} Measured: the devices spent ${percent(useful)} of the iterations' time on microbatches, ${percent(bubble)} computing unused values in the bubble, and ${percent(waiting)} waiting; ${percent(bubble + waiting)} lost in all.</p>`;
}
