/**
 * The flight recorder of one device, from which errors and `shardwise blame` tell where devices stood when they had
 * diverged (docs/divergence.md): a ring of what it did last, in memory that outlives the device. Whoever
 * records writes a dozen numbers and never waits; whoever reads may do so at any time and from another thread, and
 * can find the newest record half written.
 *
 * The ring is one array of float64: `[count, (kind, program, run, sequence, collective, begin, end)…]`, where record
 * number n lies at n modulo the capacity.
 */
import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ValueError } from "../../ir/errors.js";
import type { FlightRecord } from "../../ir/flight.js";
import { layout, readFields } from "../protocol/layout.js";

const HEADER = layout({ count: 1 });
const RECORD = layout({ kind: 1, program: 1, run: 1, sequence: 1, collective: 1, begin: 1, end: 1 });
const KIND = { run: 1, collective: 2 } as const;

/** How many records a device keeps. */
export const FLIGHT_RECORDS = 2048;

/** Maximum capacity of a ring. */
const maxRecords = 2 ** 20;

function capacityOf(ring: Float64Array): number {
  return Math.floor((ring.length - HEADER.size) / RECORD.size);
}

function offsetOf(record: number, capacity: number): number {
  return HEADER.size + RECORD.size * (record % capacity);
}

function checkRing(ring: Float64Array, caller: string): void {
  if (ring instanceof Float64Array && capacityOf(ring) >= 1) return;
  throw new ValueError(`[${caller}] the ring must be what newFlightRing returns, got ${describe(ring)}`);
}

/**
 * An empty ring that threads can share.
 *
 * @example
 * ```ts
 * engines.readFlightRing(engines.newFlightRing(8)).length; // 0
 * ```
 */
export function newFlightRing(capacity: number = FLIGHT_RECORDS): Float64Array {
  need("integer", capacity, "the capacity", "newFlightRing");
  if (capacity < 1 || capacity > maxRecords) {
    throw new ValueError(`[newFlightRing] the capacity must be from 1 to ${maxRecords}, got ${capacity}`);
  }
  return new Float64Array(new SharedArrayBuffer(8 * (HEADER.size + RECORD.size * capacity)));
}

/** The device's end of its ring. */
export class FlightRecorder {
  private count: number;
  private readonly capacity: number;

  /** @param now milliseconds since 1970 */
  constructor(
    private readonly ring: Float64Array,
    private readonly now: () => number,
  ) {
    checkRing(ring, "FlightRecorder");
    need("function", now, "the clock", "FlightRecorder");
    this.capacity = capacityOf(ring);
    this.count = ring[HEADER.count] ?? 0;
  }

  /** Records the start of a run and returns the record's number, for {@link end}. */
  beginRun(program: number, run: number): number {
    return this.begin(KIND.run, program, run, 0, -1);
  }

  /** Records the start of a collective and returns the record's number, for {@link end}. */
  beginCollective(program: number, run: number, sequence: number, collective: number): number {
    return this.begin(KIND.collective, program, run, sequence, collective);
  }

  /** Records the end of an event. */
  end(record: number): void {
    // The record may have been overwritten by later ones.
    if (this.count - record > this.capacity) return;
    this.ring[offsetOf(record, this.capacity) + RECORD.end] = this.now();
  }

  private begin(kind: number, program: number, run: number, sequence: number, collective: number): number {
    const { ring, count } = this;
    const at = offsetOf(count, this.capacity);
    ring[at + RECORD.kind] = kind;
    ring[at + RECORD.program] = program;
    ring[at + RECORD.run] = run;
    ring[at + RECORD.sequence] = sequence;
    ring[at + RECORD.collective] = collective;
    ring[at + RECORD.begin] = this.now();
    ring[at + RECORD.end] = 0;
    ring[HEADER.count] = this.count = count + 1;
    return count;
  }
}

/**
 * The records in a ring, oldest first.
 *
 * @example
 * ```ts
 * engines.readFlightRing(engines.newFlightRing(8)); // []
 * ```
 */
export function readFlightRing(ring: Float64Array): FlightRecord[] {
  checkRing(ring, "readFlightRing");
  const capacity = capacityOf(ring);
  const count = ring[HEADER.count] ?? 0;
  const records: FlightRecord[] = [];
  for (let n = Math.max(0, count - capacity); n < count; n++) {
    const { kind, program, run, sequence, collective, begin, end } = readFields(
      RECORD,
      ring,
      offsetOf(n, capacity),
    );
    records.push({
      kind: kind === KIND.run ? "run" : "collective",
      program,
      run,
      sequence,
      collective,
      begin,
      end: end === 0 ? null : end,
    });
  }
  return records;
}
