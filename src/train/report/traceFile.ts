/** Traces in the Chrome trace event format, which Perfetto and chrome://tracing open. */

import { closeSync, openSync, renameSync, rmSync, writeSync } from "#platform/fs";
import { need, needIfGiven } from "../../ir/arguments.js";
import { attempt, ValueError } from "../../ir/errors.js";
import type { Json } from "../files/checkpoints/checkpointManifest.js";
import { onFile } from "../files/disk/fileError.js";

/** A track of the trace: devices are processes of the trace, and have threads. */
export interface TraceTrack {
  readonly device: number;
  readonly thread?: number;
}

/** An event with a duration, or an instant event without one. */
export interface TraceFileEvent extends TraceTrack {
  readonly name: string;
  /** The kind, such as `kernel`, `gemm` or `collective`. */
  readonly category?: string;
  /** When it starts, in microseconds. */
  readonly start: number;
  /** How long it takes, in microseconds. */
  readonly duration?: number;
  /** Details that are shown when it is selected. */
  readonly args?: Readonly<Record<string, Json>>;
}

/** A number that changes over time, such as the memory in use. */
export interface TraceCounter {
  readonly device: number;
  readonly name: string;
  readonly at: number;
  readonly values: Readonly<Record<string, number>>;
}

/** Writes a trace event by event; the file is valid JSON after `close`, and readable by Perfetto before. */
export interface TraceFile {
  /** Names a device, and if `thread` is given one of its threads; tracks are sorted by their numbers. */
  name(track: TraceTrack, name: string): void;
  event(event: TraceFileEvent): void;
  counter(counter: TraceCounter): void;
  /** Draws an arrow from one event to another, such as from a send to its receive. */
  flow(
    id: number,
    from: TraceTrack & { readonly at: number },
    to: TraceTrack & { readonly at: number },
  ): void;
  close(): void;
}

/** A caller's value as JSON; throws if it cannot be serialised. */
function jsonText(value: Readonly<Record<string, unknown>>): string {
  const problem = (reason: string) => new ValueError(`[trace] this cannot be written as JSON: ${reason}`);
  return attempt(() => JSON.stringify(value), problem);
}

/** Number of characters to buffer before they are written. */
const pieceLength = 2 ** 16;

/**
 * Opens a new trace file. @param metadata what is known about the run
 *
 * @example
 * ```ts
 * const trace = train.openTraceFile("trace.json");
 * trace.event({ device: 0, name: "step", start: 0, duration: 5 });
 * trace.close();
 * JSON.parse(fs.readFileSync("trace.json", "utf8")).traceEvents.length; // 1
 * ```
 */
export function openTraceFile(path: string, metadata: Readonly<Record<string, Json>> = {}): TraceFile {
  need("string", path, "path", "openTraceFile");
  needIfGiven("object", metadata, "metadata", "openTraceFile");
  // It appears under its name when it is complete; "wx" writes through no symbolic link.
  const draft = `${path}.tmp`;
  const file = onFile("trace", path, () => {
    rmSync(draft, { force: true });
    return openSync(draft, "wx");
  });
  let waiting = `{"displayTimeUnit":"ms","otherData":${jsonText(metadata)},"traceEvents":[`;
  let first = true;
  const write = (entry: Readonly<Record<string, unknown>>) => {
    waiting += `${first ? "" : ","}\n${jsonText(entry)}`;
    first = false;
    if (waiting.length < pieceLength) return;
    writeSync(file, waiting);
    waiting = "";
  };
  const track = ({ device, thread = 0 }: TraceTrack) => ({ pid: device, tid: thread });
  return {
    name: ({ device, thread }, name) => {
      const [kind, index] = thread === undefined ? ["process", device] : ["thread", thread];
      const where = track({ device, thread: thread ?? 0 });
      write({ ph: "M", name: `${kind}_name`, ...where, args: { name } });
      write({ ph: "M", name: `${kind}_sort_index`, ...where, args: { sort_index: index } });
    },
    event: ({ name, category, start, duration, args, ...where }) => {
      write({
        name,
        ...(category === undefined ? {} : { cat: category }),
        ...(duration === undefined ? { ph: "i", s: "t" } : { ph: "X", dur: duration }),
        ts: start,
        ...track(where),
        ...(args === undefined ? {} : { args }),
      });
    },
    counter: ({ device, name, at, values }) => {
      write({ ph: "C", name, ts: at, pid: device, tid: 0, args: values });
    },
    flow: (id, from, to) => {
      write({ ph: "s", id, name: "flow", cat: "flow", ts: from.at, ...track(from) });
      write({ ph: "f", bp: "e", id, name: "flow", cat: "flow", ts: to.at, ...track(to) });
    },
    close: () => {
      writeSync(file, `${waiting}\n]}\n`);
      closeSync(file);
      onFile("trace", path, () => renameSync(draft, path));
    },
  };
}
