/**
 * What a device did when: one preallocated array of float64 per device, `[count, (program, step, begin, end)…]`,
 * that the worker fills and the main thread reads afterwards. When it is full, later steps are not recorded.
 */

const HEADER = 1;
const FIELDS = 4;

/** How many steps a device records at most while a trace runs. */
export const DEFAULT_TRACE_CAPACITY = 1 << 16;

/** An empty recording. */
export function newTraceBuffer(capacity: number): Float64Array<SharedArrayBuffer> {
  return new Float64Array(new SharedArrayBuffer(8 * (HEADER + FIELDS * capacity)));
}

/** Adds one step to the recording; times are in milliseconds. */
export function recordStep(
  trace: Float64Array,
  program: number,
  step: number,
  begin: number,
  end: number,
): void {
  const count = trace[0] ?? 0;
  const at = HEADER + FIELDS * count;
  if (at + FIELDS > trace.length) return;
  trace[at] = program;
  trace[at + 1] = step;
  trace[at + 2] = begin;
  trace[at + 3] = end;
  trace[0] = count + 1;
}

/** One recorded step before it has a name. */
export interface RawTraceEvent {
  readonly program: number;
  readonly step: number;
  readonly begin: number;
  readonly end: number;
}

/** All recorded steps in the order in which they ended. */
export function readTrace(trace: Float64Array): RawTraceEvent[] {
  return Array.from({ length: trace[0] ?? 0 }, (_, i) => {
    const at = HEADER + FIELDS * i;
    return {
      program: trace[at] ?? 0,
      step: trace[at + 1] ?? 0,
      begin: trace[at + 2] ?? 0,
      end: trace[at + 3] ?? 0,
    };
  });
}
