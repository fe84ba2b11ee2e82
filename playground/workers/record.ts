import type { TraceEvent } from "shardwise/engines";

/** What a device did for a while, in milliseconds from the first of all that was recorded. */
export interface Span {
  readonly device: number;
  readonly begin: number;
  readonly end: number;
  /** The kind of the step: `gemm`, `kernel`, `start`, `done` … */
  readonly kind: string;
  /** The ops that it computed. */
  readonly name: string;
}

/** The steps of a recorded run; loops are left out, because their steps are there. */
export function spansOf(events: readonly TraceEvent[]): Span[] {
  const steps = events.filter(({ kind }) => kind !== "iteration" && kind !== "loop");
  const from = Math.min(...steps.map(({ begin }) => begin));
  return steps.map(({ device, begin, end, kind, ops }) => ({
    device,
    begin: begin - from,
    end: end - from,
    kind,
    name: ops.join(", ") || kind,
  }));
}
