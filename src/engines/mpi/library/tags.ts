import { EngineLoadError } from "../../errors.js";

/** The bits of a tag: the devices at both ends, the phase, the sequence number, and a fingerprint of what is sent. */
const DEVICE_BITS = 6;
const PHASE_BITS = 1;
const LEAST_SEQUENCE_BITS = 4;
const MAX_SEQUENCE_BITS = 8;
const MAX_FINGERPRINT_BITS = 8;

/** The most devices that a process can have: their numbers are part of every message's tag. */
export const MAX_LOCAL_DEVICES = 2 ** DEVICE_BITS;

/** How many collectives two devices of different processes have begun together; both sides count alike. */
export class DevicePair {
  /** The number of the last one, counted around. */
  sequence = 0;

  constructor(private readonly largest: number) {}

  /** Counts one more. */
  next(): number {
    this.sequence = (this.sequence + 1) & this.largest;
    return this.sequence;
  }
}

/** The tag of a message in the collective of a number. @param kind what {@link Tags.kind} gave */
export function tagOf(kind: number, sequence: number): number {
  return kind | (sequence << (PHASE_BITS + 2 * DEVICE_BITS));
}

/**
 * How messages of collectives are named. Devices that came to different collectives wait for messages that never come,
 * instead of taking those of others for theirs.
 */
export class Tags {
  private readonly sequenceBits: number;
  private readonly fingerprintBits: number;

  /**
   * @param largest the largest tag of a message
   * @param library which library says so
   */
  constructor(largest: number, library: string) {
    const spare = Math.floor(Math.log2(largest + 1)) - 2 * DEVICE_BITS - PHASE_BITS;
    if (spare < LEAST_SEQUENCE_BITS) {
      throw new EngineLoadError(`[mpi] ${library} allows tags up to ${largest}, which are too few`);
    }
    this.sequenceBits = Math.min(MAX_SEQUENCE_BITS, spare);
    this.fingerprintBits = Math.min(MAX_FINGERPRINT_BITS, spare - this.sequenceBits);
  }

  /** What two devices count together. */
  newPair(): DevicePair {
    return new DevicePair(2 ** this.sequenceBits - 1);
  }

  /** The tag of messages from one device to another but for the number of their collective. */
  kind(fingerprint: number, phase: number, from: number, to: number): number {
    const what = fingerprint & (2 ** this.fingerprintBits - 1);
    const use = ((what << this.sequenceBits) << PHASE_BITS) | phase;
    return (((use << DEVICE_BITS) | from) << DEVICE_BITS) | to;
  }
}
