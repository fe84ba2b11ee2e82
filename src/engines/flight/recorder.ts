/**
 * The flight recorder of one device: a ring of what it did last, in memory that outlives the device. Whoever
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

const HEADER = 1;
const FIELDS = 7;
const KIND = { run: 1, collective: 2 } as const;

/** How many records a device keeps. */
export const FLIGHT_RECORDS = 2048;

/** Longer rings would only take memory. */
const maxRecords = 2 ** 20;

function checkRing(ring: Float64Array, caller: string): void {
  if (ring instanceof Float64Array && ring.length >= HEADER + FIELDS) return;
  throw new ValueError(`[${caller}] the ring must be what newFlightRing returns, got ${describe(ring)}`);
}

/** An empty ring that threads can share. */
export function newFlightRing(capacity: number = FLIGHT_RECORDS): Float64Array<SharedArrayBuffer> {
  need("integer", capacity, "the capacity", "newFlightRing");
  if (capacity < 1 || capacity > maxRecords) {
    throw new ValueError(`[newFlightRing] the capacity must be from 1 to ${maxRecords}, got ${capacity}`);
  }
  return new Float64Array(new SharedArrayBuffer(8 * (HEADER + FIELDS * capacity)));
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
    this.capacity = Math.floor((ring.length - HEADER) / FIELDS);
    this.count = ring[0] ?? 0;
  }

  /** Notes the start of a run and returns the record's number, for {@link end}. */
  beginRun(program: number, run: number): number {
    return this.begin(KIND.run, program, run, 0, -1);
  }

  /** Notes the start of a collective and returns the record's number, for {@link end}. */
  beginCollective(program: number, run: number, sequence: number, collective: number): number {
    return this.begin(KIND.collective, program, run, sequence, collective);
  }

  /** Notes that something is over. */
  end(record: number): void {
    // A record that many others have followed is not there any more.
    if (this.count - record > this.capacity) return;
    this.ring[this.place(record) + FIELDS - 1] = this.now();
  }

  private begin(kind: number, program: number, run: number, sequence: number, collective: number): number {
    const { ring, count } = this;
    const at = this.place(count);
    ring[at] = kind;
    ring[at + 1] = program;
    ring[at + 2] = run;
    ring[at + 3] = sequence;
    ring[at + 4] = collective;
    ring[at + 5] = this.now();
    ring[at + 6] = 0;
    ring[0] = this.count = count + 1;
    return count;
  }

  private place(record: number): number {
    return HEADER + FIELDS * (record % this.capacity);
  }
}

/** What a ring holds, oldest first. */
export function readFlightRing(ring: Float64Array): FlightRecord[] {
  checkRing(ring, "readFlightRing");
  const capacity = Math.floor((ring.length - HEADER) / FIELDS);
  const count = ring[0] ?? 0;
  const records: FlightRecord[] = [];
  for (let n = Math.max(0, count - capacity); n < count; n++) {
    const at = HEADER + FIELDS * (n % capacity);
    const [kind, program = 0, run = 0, sequence = 0, collective = 0, begin = 0, end = 0] = ring.subarray(
      at,
      at + FIELDS,
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
