/** Schedules as text: JSON, and the CSV that PyTorch's pipeline runtime reads and writes. */
import { need, needIfGiven } from "../../ir/arguments.js";
import { ParseError, ValueError } from "../../ir/errors.js";
import { parseJson } from "../../ir/jsonReaders.js";
import { at, range } from "../../ir/shape.js";
import { checkSchedule } from "./check.js";
import {
  type ActionKind,
  formatAction,
  layoutOf,
  needSchedule,
  type PipelineAction,
  type PipelineLayout,
  type PipelinePlacement,
  type PipelineSchedule,
  placeOf,
} from "./schedule.js";

/**
 * A schedule as JSON text, with a row of actions such as `3F0` (part, kind, microbatch) for every stage.
 *
 * @example
 * ```ts
 * const schedule = parallel.scheduleOf("mine", [["0F0", "0B0"], ["1F0", "1B0"]]);
 * JSON.parse(parallel.scheduleToJson(schedule)).stages; // [["0F0", "0B0"], ["1F0", "1B0"]]
 * ```
 */
export function scheduleToJson(schedule: PipelineSchedule): string {
  needSchedule(schedule, "scheduleToJson");
  const { name, numMicrobatches, numChunks, placement } = schedule;
  const rows = rowsOf(schedule).map((row) => `    ${JSON.stringify(row)}`);
  const head = Object.entries({ name, numMicrobatches, numChunks, placement }).map(
    ([key, value]) => `  ${JSON.stringify(key)}: ${JSON.stringify(value)},\n`,
  );
  return `{\n${head.join("")}  "stages": [\n${rows.join(",\n")}\n  ]\n}\n`;
}

/**
 * A schedule as CSV, a line for every stage, as PyTorch's pipeline runtime writes the actions that compute.
 *
 * @example
 * ```ts
 * const schedule = parallel.scheduleOf("mine", [["0F0", "0B0"], ["1F0", "1B0"]]);
 * parallel.scheduleToCsv(schedule).split("\n"); // ["0F0,0B0", "1F0,1B0", ""]
 * ```
 */
export function scheduleToCsv(schedule: PipelineSchedule): string {
  needSchedule(schedule, "scheduleToCsv");
  return rowsOf(schedule)
    .map((row) => `${row.join(",")}\n`)
    .join("");
}

function rowsOf(schedule: PipelineSchedule): string[][] {
  const layout = layoutOf(schedule);
  return schedule.stages.map((row, stage) => row.map((action) => formatAction(layout, stage, action)));
}

/** An action as it is written: of a part of the model, and of no stage yet. */
interface Cell {
  readonly kind: ActionKind | "BW";
  readonly part: number;
  readonly microbatch: number;
}

const cellPattern = /^(\d{1,6})(BW|[FBIW])(\d{1,6})$/;
/** Communication of messages and weights, which follows from the actions that compute. */
const ignoredPattern = /^\d+(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)\d*$/;
/** Two actions that PyTorch lets run at the same time; here they follow one another. */
const pairPattern = /^\(([^)]*)\)OVERLAP_F_B$/;

function readCell(text: string, line: number, column: number): Cell[] {
  need("string", text, "an action", "readSchedule");
  const trimmed = text.trim();
  if (trimmed === "" || ignoredPattern.test(trimmed)) return [];
  const pair = pairPattern.exec(trimmed);
  if (pair) return (pair[1] ?? "").split(";").flatMap((part) => readCell(part, line, column));
  const [, part, kind, microbatch] = cellPattern.exec(trimmed) ?? [];
  if (part === undefined || kind === undefined || microbatch === undefined) {
    throw new ParseError(
      "readSchedule",
      line,
      column,
      `"${trimmed}" is not an action: write the part of the model, F, B, I or W, and the microbatch, as in 2F0`,
    );
  }
  return [{ kind: kind as Cell["kind"], part: Number(part), microbatch: Number(microbatch) }];
}

/**
 * Reads a schedule from the CSV of PyTorch's pipeline runtime, with or without its messages. Where a table has both
 * `B` and `W` of a part and microbatch, as older ones do, `B` is the input gradient. Throws where it cannot run.
 *
 * @example
 * ```ts
 * parallel.scheduleFromCsv("0F0,,,0B0\n,1F0,1B0,").stages.length; // 2
 * ```
 */
export function scheduleFromCsv(text: string, name = "csv"): PipelineSchedule {
  need("string", text, "text", "scheduleFromCsv");
  needIfGiven("string", name, "name", "scheduleFromCsv");
  const lines = text.split(/\r?\n/);
  while (lines.at(-1)?.trim() === "") lines.pop();
  const rows = lines.map((line, i) =>
    line.split(",").flatMap((cell, k, cells) => {
      const column = cells.slice(0, k).join(",").length + (k > 0 ? 2 : 1);
      return readCell(cell, i + 1, column);
    }),
  );
  return fromRows(name, rows);
}

/**
 * Reads a schedule from the JSON of {@link scheduleToJson}. Throws if it cannot run.
 *
 * @example
 * ```ts
 * const schedule = parallel.scheduleOf("mine", [["0F0", "0B0"], ["1F0", "1B0"]]);
 * parallel.scheduleFromJson(parallel.scheduleToJson(schedule)).name; // "mine"
 * ```
 */
export function scheduleFromJson(text: string): PipelineSchedule {
  need("string", text, "the text", "scheduleFromJson");
  const json = parseJson(
    text,
    (reason) => new ValueError(`[scheduleFromJson] the text is not JSON: ${reason}`),
  );
  const fields = typeof json === "object" && json !== null ? new Map(Object.entries(json)) : new Map();
  const stages: unknown = fields.get("stages");
  const isRows = (value: unknown): value is string[][] =>
    Array.isArray(value) &&
    value.every((row) => Array.isArray(row) && row.every((cell) => typeof cell === "string"));
  if (!isRows(stages)) {
    throw new ValueError(
      '[readSchedule] the JSON has no "stages": a list with a list of actions such as "2F0" for every stage is expected',
    );
  }
  const rows = stages.map((row, i) => row.flatMap((cell, k) => readCell(cell, i + 1, k + 1)));
  const name: unknown = fields.get("name");
  const schedule = fromRows(typeof name === "string" ? name : "json", rows);
  for (const field of ["numMicrobatches", "numChunks", "placement"] as const) {
    const given: unknown = fields.get(field);
    if (given === undefined || given === schedule[field]) continue;
    throw new ValueError(
      `[readSchedule] the JSON says ${field} ${JSON.stringify(given)}, its actions say ${JSON.stringify(schedule[field])}: leave the field out or correct it`,
    );
  }
  return schedule;
}

/**
 * A custom schedule: a row of actions such as `3F0` (part of the model, kind, microbatch) for every stage. Throws where
 * it cannot run.
 *
 * @example
 * ```ts
 * parallel.scheduleOf("mine", [["0F0", "0B0"], ["1F0", "1I0", "1W0"]]).stages.length; // 2
 * ```
 */
export function scheduleOf(name: string, rows: readonly (readonly string[])[]): PipelineSchedule {
  need("string", name, "name", "scheduleOf");
  need("list", rows, "rows", "scheduleOf");
  for (const row of rows) need("strings", row, "each row", "scheduleOf");
  return fromRows(
    name,
    rows.map((row, i) => row.flatMap((cell, k) => readCell(cell, i + 1, k + 1))),
  );
}

function fromRows(name: string, rows: readonly (readonly Cell[])[]): PipelineSchedule {
  const cells = rows.flat();
  const count = (pick: (cell: Cell) => number) => cells.reduce((n, cell) => Math.max(n, pick(cell) + 1), 0);
  const [parts, numMicrobatches] = [count(({ part }) => part), count(({ microbatch }) => microbatch)];
  if (rows.length === 0 || cells.length === 0) throw new ValueError("[readSchedule] there are no actions");
  if (parts % rows.length !== 0) {
    throw new ValueError(
      `[readSchedule] ${parts} parts do not spread over ${rows.length} stages (${parts} / ${rows.length} = ${(parts / rows.length).toFixed(2)}): give every stage as many`,
    );
  }
  const layout = { numStages: rows.length, numChunks: parts / rows.length };
  const placement = placementOf(rows, layout);
  const split = new Set(
    cells.filter(({ kind }) => kind === "W").map(({ part, microbatch }) => `${part} ${microbatch}`),
  );
  const kindOf = ({ kind, part, microbatch }: Cell): ActionKind => {
    if (kind === "BW") return "B";
    return kind === "B" && split.has(`${part} ${microbatch}`) ? "I" : kind;
  };
  const schedule: PipelineSchedule = {
    name,
    numMicrobatches,
    numChunks: layout.numChunks,
    placement,
    stages: rows.map((row) =>
      row.map((cell): PipelineAction => {
        const { chunk } = placeOf({ ...layout, placement }, cell.part);
        return { kind: kindOf(cell), chunk, microbatch: cell.microbatch };
      }),
    ),
  };
  checkSchedule(schedule);
  return schedule;
}

/** The placement under which every part of a table is on the stage that works on it. */
function placementOf(
  rows: readonly (readonly Cell[])[],
  layout: Omit<PipelineLayout, "placement">,
): PipelinePlacement {
  const misplaced = (placement: PipelinePlacement) =>
    range(rows.length).flatMap((stage) =>
      at(rows, stage)
        .filter(({ part }) => placeOf({ ...layout, placement }, part).stage !== stage)
        .map(({ part }) => ({ stage, part, wanted: placeOf({ ...layout, placement }, part).stage })),
    );
  const [inLoop] = misplaced("loop");
  if (!inLoop) return "loop";
  const [inV] = misplaced("v");
  if (!inV) return "v";
  throw new ValueError(
    `[readSchedule] part ${inLoop.part} is on stage ${inLoop.stage}, but on stage ${inLoop.wanted} where parts go round, and part ${inV.part} is on stage ${inV.stage}, but on stage ${inV.wanted} of a V: parts lie in one of the two ways`,
  );
}
