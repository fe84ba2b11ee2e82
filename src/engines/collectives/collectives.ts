import type { CollectiveSpec } from "../../compiler/steps.js";
import { byteSize } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import { PeerLink } from "./collectiveGroup.js";
import { WORDS } from "./collectiveWords.js";
import { prepareWork, type Work, type WorkHost } from "./collectiveWork.js";
import type { CollectiveProgress, DesyncDetector } from "./desyncDetector.js";

/** Sources up to this size (times the number of members) are staged; sleeping costs more than copying. */
const STAGED_BYTES = { ownCore: 1024, sharedCore: 16 * 1024 } as const;
/** Messages up to this size are staged, so that the sender does not wait for the receiver to read them. */
const STAGED_MESSAGE_BYTES = 4 * 2 ** 20;
/** What a program may spend on staging. */
const MAX_STAGING_BYTES = 16 * 2 ** 20;

/** Where the staging memory of each collective lies, as an offset into the program's; undefined where it has none. */
export interface Staging {
  readonly bytes: number;
  readonly offsets: readonly (number | undefined)[];
}

/** Staging memory of one size, and the positions of the mesh that use theirs. */
interface Lane {
  readonly offset: number;
  readonly size: number;
  readonly senders: Set<number>;
}

/**
 * Which collectives inside this process are staged, and where their two copies lie. Messages of the same size share
 * the place of their copies if no device sends two of them, as between neighbours of a pipeline.
 */
export function planStaging(collectives: readonly CollectiveSpec[], crowded: boolean): Staging {
  const limit = crowded ? STAGED_BYTES.sharedCore : STAGED_BYTES.ownCore;
  const lanes: Lane[] = [];
  let bytes = 0;
  const offsets = collectives.map((spec) => {
    const size = Math.ceil((spec.elements * byteSize(spec.dtype)) / 64) * 64;
    const isSmall = size * spec.size <= limit || (isMessage(spec) && size <= STAGED_MESSAGE_BYTES);
    if (spec.size === 1 || !isSmall) return undefined;
    const senders = sendersOf(spec);
    const lane = lanes.find(
      (one) => one.size === size && senders.every((sender) => !one.senders.has(sender)),
    );
    if (lane) {
      for (const sender of senders) lane.senders.add(sender);
      return lane.offset;
    }
    if (bytes + 2 * size > MAX_STAGING_BYTES) return undefined;
    const offset = bytes;
    bytes += 2 * size;
    lanes.push({ offset, size, senders: new Set(senders) });
    return offset;
  });
  return { bytes, offsets };
}

/** The positions whose sources anybody reads. */
function sendersOf({ kind, groups, permutation }: CollectiveSpec): readonly number[] {
  if (kind !== "permute") return groups.flat();
  return groups.flatMap((group) => permutation.map(([from]) => at(group, from)));
}

/**
 * Whether members would only wait for their message to be read: some member sends without receiving, or those that
 * receive nothing do not need a result (`unset`). In a ring every member waits for another one anyway.
 */
function isMessage({ kind, permutation, unset }: CollectiveSpec): boolean {
  const readers = new Set(permutation.map(([, to]) => to));
  return kind === "permute" && (unset === true || permutation.some(([from]) => !readers.has(from)));
}

/**
 * Collectives on shared memory. `start` publishes where this device's source and target lie and never waits;
 * `work` waits until all members have started and does this device's share of the work; `settle` waits until all
 * members have done theirs, because only then its result is complete and its source free. If several collectives
 * end one after the other, all work is done before any of them settles, so that devices wait for each other once.
 *
 * Small collectives are *staged*: `start` copies the source aside and `work` computes the own result from the
 * copies of all members. That is more work but saves one wait, which takes longer than the work if the collective is
 * small. A copy is overwritten two uses later, when every member has finished reading it.
 */
export interface PreparedCollective {
  /** @param tables the addresses of the tables of a ragged exchange */
  start(source: number, target: number, tables?: ExchangeTables): void;
  work(): void;
  settle(): void;
}

/** Where the tables of a ragged exchange are. */
export interface ExchangeTables {
  readonly sends: number;
  readonly receives: number;
}

/** What a collective needs to know about the device it runs on. */
export interface CollectiveHost extends WorkHost {
  readonly desyncDetector: DesyncDetector;
}

/** Prepares a collective of a program; `stagingAddress` is where its two copies lie when it is staged. */
export function prepareCollective(
  spec: CollectiveSpec,
  index: number,
  host: CollectiveHost,
  stagingAddress: number | undefined,
): PreparedCollective {
  const group = groupOf(spec, host.position);
  const link = new PeerLink(index, host, group);
  const move = prepareWork(spec, link, host);
  if (group.length === 1) return aloneCollective(move);
  const progress = host.desyncDetector.follow(index, link);
  return stagingAddress === undefined
    ? directCollective(link, progress, move)
    : stagedCollective(spec, link, progress, move, host, stagingAddress);
}

/** The group of a collective that a position belongs to. */
export function groupOf({ groups }: CollectiveSpec, position: number): readonly number[] {
  const group = groups.find((positions) => positions.includes(position));
  if (group === undefined) throw new InternalError(`[threads] position ${position} is in no group`);
  return group;
}

function aloneCollective(work: Work): PreparedCollective {
  let [source, target, receives] = [0, 0, 0];
  return {
    start(from, to, tables) {
      [source, target, receives] = [from, to, tables?.receives ?? 0];
    },
    work: () => work.own([source], target, receives),
    settle() {},
  };
}

function directCollective(link: PeerLink, progress: CollectiveProgress, work: Work): PreparedCollective {
  let sequence = 0;
  let [target, receives] = [0, 0];
  const sources = link.members.map(() => 0);
  const targets = link.members.map(() => 0);
  return {
    start(from, to, tables) {
      sequence = (sequence + 1) | 0;
      [target, receives] = [to, tables?.receives ?? 0];
      link.putAddress(WORDS.source, from);
      link.putAddress(WORDS.target, to);
      progress.stamp(sequence);
      work.signal.ready(sequence);
      progress.publish();
    },
    work() {
      work.signal.awaitReady(sequence, progress.verifyWait);
      progress.verifyPeers();
      link.addressesRead(WORDS.source, sources);
      if (work.shared) {
        link.addresses(WORDS.target, targets);
        work.shared(sources, targets);
      } else {
        work.own(sources, target, receives);
      }
      work.signal.finished(sequence);
    },
    settle() {
      work.signal.awaitFinished(sequence);
      progress.end();
    },
  };
}

function stagedCollective(
  spec: CollectiveSpec,
  link: PeerLink,
  progress: CollectiveProgress,
  work: Work,
  host: WorkHost,
  stagingAddress: number,
): PreparedCollective {
  const bytes = spec.elements * byteSize(spec.dtype);
  const stride = Math.ceil(bytes / 64) * 64;
  let sequence = 0;
  let [target, receives] = [0, 0];
  const sources = link.members.map(() => 0);
  link.putAddress(WORDS.staged, stagingAddress);
  link.putAddress(WORDS.staged + 2, stagingAddress + stride);
  return {
    start(from, to, tables) {
      sequence = (sequence + 1) | 0;
      [target, receives] = [to, tables?.receives ?? 0];
      work.signal.awaitFinished((sequence - 2) | 0);
      if (work.isRead) host.kernels.copy(stagingAddress + (sequence & 1) * stride, from, bytes);
      progress.stamp(sequence);
      work.signal.ready(sequence);
      progress.publish();
    },
    work() {
      work.signal.awaitReady(sequence, progress.verifyWait);
      progress.verifyPeers();
      link.addressesRead(WORDS.staged + 2 * (sequence & 1), sources);
      work.own(sources, target, receives);
      work.signal.finished(sequence);
      progress.end();
    },
    settle() {},
  };
}
