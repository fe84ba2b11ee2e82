/**
 * What a device did when: one preallocated array of float64 per device,
 * `[count, (program, step, part, begin, end)…]`, that the worker fills and the main thread reads afterwards. When
 * it is full, later steps are not recorded.
 */
import { layout, readFields } from "./layout.js";

const HEADER = layout({ count: 1 });
const ENTRY = layout({ program: 1, step: 1, part: 1, begin: 1, end: 1 });

/** How many entries a device records at most while a trace runs. */
export const DEFAULT_TRACE_CAPACITY = 1 << 16;

/** What of a step an entry is about; a number from 0 is one iteration of a loop. */
export const PART = { whole: -1, wait: -2 } as const;

/** An empty recording. */
export function newTraceBuffer(capacity: number): Float64Array<SharedArrayBuffer> {
  return new Float64Array(new SharedArrayBuffer(8 * (HEADER.size + ENTRY.size * capacity)));
}

/** Adds a step, an iteration of it or a wait in it to the recording; times are in milliseconds. */
export function recordPart(
  trace: Float64Array,
  program: number,
  step: number,
  part: number,
  begin: number,
  end: number,
): void {
  const count = trace[HEADER.count] ?? 0;
  const at = HEADER.size + ENTRY.size * count;
  if (at + ENTRY.size > trace.length) return;
  trace[at + ENTRY.program] = program;
  trace[at + ENTRY.step] = step;
  trace[at + ENTRY.part] = part;
  trace[at + ENTRY.begin] = begin;
  trace[at + ENTRY.end] = end;
  trace[HEADER.count] = count + 1;
}

/** A time during which a device waited for others. */
export interface TraceWait {
  readonly begin: number;
  readonly end: number;
}

/** One recorded step, or one iteration of it, before it has a name. */
export interface RawTraceEvent {
  readonly program: number;
  readonly step: number;
  /** Which iteration of a loop this is; undefined for a whole step. */
  readonly iteration: number | undefined;
  readonly begin: number;
  readonly end: number;
  readonly waits: readonly TraceWait[];
}

/** All recorded steps and iterations in the order in which they ended. */
export function readTrace(trace: Float64Array): RawTraceEvent[] {
  const events: RawTraceEvent[] = [];
  let waits: TraceWait[] = [];
  for (let i = 0; i < (trace[HEADER.count] ?? 0); i++) {
    const { program, step, part, begin, end } = readFields(ENTRY, trace, HEADER.size + ENTRY.size * i);
    if (part === PART.wait) {
      // The step that waited ends next: loops and branches do not wait themselves.
      waits.push({ begin, end });
      continue;
    }
    events.push({ program, step, iteration: part === PART.whole ? undefined : part, begin, end, waits });
    waits = [];
  }
  return events;
}
