/** Pictures of schedules: text for terminals, SVG for pages. */

import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { type ActionKind, needSchedule, type PipelineAction, type PipelineSchedule } from "./schedule.js";
import { type ActionCosts, type TimedAction, timeline, unitCosts } from "./timeline.js";

/** The microbatch of an action, and its chunk if there are several. */
function label({ chunk, microbatch }: PipelineAction, numChunks: number): string {
  return numChunks === 1 ? `${microbatch}` : `${microbatch}·${chunk}`;
}

/**
 * A schedule as text, a line for every stage and a column for every unit of time; dots are bubble.
 *
 * ```
 * stage 0  F0 F1 ·  ·  B0    ·  B1
 * stage 1  ·  F0 B0    F1 B1    ·  ·
 * ```
 *
 * @example
 * ```ts
 * const schedule = parallel.gpipe({ numStages: 2, numMicrobatches: 1 });
 * parallel.drawSchedule(schedule).split("\n").length; // 3
 * ```
 */
export function drawSchedule(schedule: PipelineSchedule): string {
  needSchedule(schedule, "drawSchedule");
  const { stages, length } = timeline(schedule, unitCosts);
  const text = (action: TimedAction) => `${action.kind}${label(action, schedule.numChunks)}`;
  const width = Math.max(1, ...stages.flat().map((action) => text(action).length));
  const lines = stages.map((actions, stage) => {
    const cells = Array.from({ length }, () => "·");
    for (const action of actions) {
      for (let time = action.begin; time < action.end; time++)
        cells[time] = time === action.begin ? text(action) : "";
    }
    const row = cells.map((cell) => cell.padEnd(width)).join(" ");
    return `stage ${stage}  ${row}`.trimEnd();
  });
  return `${lines.join("\n")}\n`;
}

const colours: { readonly [K in ActionKind]: string } = {
  F: "#4c78a8",
  B: "#54a24b",
  I: "#88b04b",
  W: "#eeca3b",
};

const meanings: { readonly [K in ActionKind]: string } = {
  F: "forward",
  B: "backward",
  I: "input gradient",
  W: "weight gradient",
};

const [left, top, rowHeight, rowGap] = [64, 34, 24, 4];

const scheduleSvgOptions = schema({
  /** How long actions take; a unit each by default, a whole backward pass two. */
  costs: optional<ActionCosts>("object", unitCosts),
  /** How many pixels the picture is wide; by default 22 for a unit of time. */
  width: optional("number"),
});

/** Options of {@link scheduleSvg}. */
export interface ScheduleSvgOptions extends OptionsOf<typeof scheduleSvgOptions> {}

/**
 * A schedule as an SVG picture: a row for every stage, boxes as long as their actions take, later chunks hatched lighter.
 *
 * @example
 * ```ts
 * parallel.scheduleSvg(parallel.zeroBubbleH1({ numStages: 2, numMicrobatches: 4 })).startsWith("<svg"); // true
 * ```
 */
export function scheduleSvg(schedule: PipelineSchedule, options?: ScheduleSvgOptions): string {
  needSchedule(schedule, "scheduleSvg");
  const given = scheduleSvgOptions.read(options, "scheduleSvg");
  const { stages, length } = timeline(schedule, given.costs);
  const { width = Math.ceil(left + 22 * length + 8) } = given;
  const scale = (width - left - 8) / (length || 1);
  const height = top + stages.length * (rowHeight + rowGap) + 4;
  const boxes = stages.flatMap((actions, stage) => {
    const y = top + stage * (rowHeight + rowGap);
    const name = `<text x="${left - 8}" y="${y + 16}" text-anchor="end">stage ${stage}</text>`;
    const track = `<rect x="${left}" y="${y}" width="${(scale * length).toFixed(1)}" height="${rowHeight}" fill="#8884" />`;
    return [name, track, ...actions.map((action) => box(action, y, scale, schedule.numChunks))];
  });
  const title = `${schedule.name}: ${stages.length} stages, ${schedule.numMicrobatches} microbatches`;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" ` +
    `role="img" font-family="sans-serif" font-size="11" fill="#777"><title>${title}</title>` +
    `${legend(new Set(stages.flat().map(({ kind }) => kind)))}${boxes.join("")}</svg>\n`
  );
}

function box(action: TimedAction, y: number, scale: number, numChunks: number): string {
  const { kind, chunk, microbatch, begin, end } = action;
  const [x, wide] = [left + begin * scale, (end - begin) * scale];
  const text = label(action, numChunks);
  const shade = numChunks === 1 ? 1 : 1 - (0.45 * chunk) / (numChunks - 1);
  const written =
    wide < 4 + 6 * text.length
      ? ""
      : `<text x="${(x + wide / 2).toFixed(1)}" y="${y + 16}" text-anchor="middle" fill="#111">${text}</text>`;
  const title = `${meanings[kind]} of microbatch ${microbatch}${numChunks > 1 ? `, chunk ${chunk}` : ""}`;
  return (
    `<g><title>${title}</title><rect x="${x.toFixed(1)}" y="${y}" width="${Math.max(0.5, wide - 1).toFixed(1)}" ` +
    `height="${rowHeight}" fill="${colours[kind]}" fill-opacity="${shade.toFixed(2)}" />${written}</g>`
  );
}

function legend(kinds: ReadonlySet<ActionKind>): string {
  let x = left;
  return (Object.keys(colours) as ActionKind[])
    .filter((kind) => kinds.has(kind))
    .map((kind) => {
      const entry = `<rect x="${x}" y="8" width="12" height="12" fill="${colours[kind]}" /><text x="${x + 17}" y="18">${meanings[kind]}</text>`;
      x += 32 + 6 * meanings[kind].length;
      return entry;
    })
    .join("");
}
