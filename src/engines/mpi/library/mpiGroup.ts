import type { CollectiveSpec } from "../../../compiler/steps.js";
import { byteSize } from "../../../ir/dtype.js";
import { at, range } from "../../../ir/shape.js";
import { roundUp } from "../../memory/heap.js";
import type { DeviceLocations } from "../../protocol/locations.js";
import { type SummedType, summedTypes } from "./mpiFamilies.js";

/** A member of a group: which process it is in, and its device there. */
export interface Member {
  readonly process: number;
  readonly device: number;
}

/**
 * A group of a collective with members in several processes, as one of them sees it; members are named by their
 * index in the group. What goes from one member to all members of another process crosses over once: one of them
 * receives it for all.
 */
export class MpiGroup {
  readonly size: number;
  readonly me: number;
  readonly members: readonly Member[];
  /** The members of this process, and those of others. */
  readonly here: readonly number[];
  readonly elsewhere: readonly number[];
  /** For each of the other processes its members. */
  readonly processes: readonly (readonly number[])[];

  constructor(
    readonly positions: readonly number[],
    position: number,
    locations: DeviceLocations,
  ) {
    this.size = positions.length;
    this.me = positions.indexOf(position);
    this.members = positions.map((p) => ({
      process: at(locations.processes, p),
      device: at(locations.devices, p),
    }));
    const all = range(this.size);
    this.here = all.filter((i) => at(this.members, i).process === locations.process);
    // Beginning with the next one, so that they do not all send to the same one first.
    const inTurn = [...all.slice(this.me + 1), ...all.slice(0, Math.max(0, this.me))];
    this.elsewhere = inTurn.filter((i) => at(this.members, i).process !== locations.process);
    const others = [...new Set(this.elsewhere.map((i) => at(this.members, i).process))];
    this.processes = others.map((process) => all.filter((i) => at(this.members, i).process === process));
  }

  /** The members of this process besides this one. */
  get neighbours(): number[] {
    return this.here.filter((i) => i !== this.me);
  }

  /**
   * The members that add up the same part of a tensor as this one, one in each process, in the order of processes;
   * undefined where processes have different numbers of members, or all are in one.
   */
  get sharers(): Member[] | undefined {
    const { here, processes } = this;
    if (processes.length === 0 || processes.some((members) => members.length !== here.length))
      return undefined;
    const place = here.indexOf(this.me);
    const sharers = [here, ...processes].map((members) => at(this.members, at(members, place)));
    return sharers.sort((a, b) => a.process - b.process);
  }

  /** Which of some members of one process receives what a member of another one sends to all of them. */
  receiver(sender: number, members: readonly number[]): number {
    return at(members, sender % members.length);
  }

  /** The members elsewhere from which one of this process receives for all of it, in an order that all of it know. */
  receivedBy(member: number): number[] {
    const senders = this.elsewhere.filter((sender) => this.receiver(sender, this.here) === member);
    return senders.sort((a, b) => a - b);
  }
}

/** What devices that add up together are called in a table of communicators; undefined where they cannot by MPI. */
export function sharersName(group: MpiGroup): string | undefined {
  return group.sharers?.map(({ process, device }) => `${process}.${device}`).join(" ");
}

/** A sum that MPI forms itself: on which communicator, and of what. */
export interface MpiSum {
  readonly comm: number;
  readonly dtype: SummedType;
}

/** The sum that a collective leaves to MPI; undefined where the engine combines itself. */
export function mpiSum(
  spec: CollectiveSpec,
  group: MpiGroup,
  { channels }: DeviceLocations,
): MpiSum | undefined {
  const dtype = summedTypes.find((one) => one === spec.dtype);
  if (channels === undefined || spec.kind !== "allReduce" || spec.combine !== "sum") return undefined;
  const comm = channels[sharersName(group) ?? ""];
  return comm === undefined || dtype === undefined ? undefined : { comm, dtype };
}

/** How a reduction to all is done: every process gets all sources, or every member combines a part for all. */
export type ReductionMethod = "whole" | "parts";

/** Up to this size one exchange is quicker than two of parts. */
const WHOLE_BYTES = 16 * 1024;

/** How a reduction of `bytes` bytes is done. */
export function reductionOf(bytes: number): ReductionMethod {
  return bytes <= WHOLE_BYTES ? "whole" : "parts";
}

/** Where the part of each member of a reduction begins, and where the last one ends. */
export function partBounds(bytes: number, size: number): number[] {
  const part = roundUp(Math.ceil(bytes / size));
  return range(size + 1).map((i) => Math.min(bytes, i * part));
}

/** The bytes of a block that one member of a collective contributes to, or gets of, another one. */
export function blockBytes(spec: CollectiveSpec): number {
  return spec.outer * spec.inner * byteSize(spec.dtype);
}

/** The bytes that a member of a group needs besides source and target. */
export function stagingBytes(spec: CollectiveSpec, group: MpiGroup, locations: DeviceLocations): number {
  if (mpiSum(spec, group, locations) !== undefined) return 0;
  const bytes = spec.elements * byteSize(spec.dtype);
  const numReceived = group.receivedBy(group.me).length;
  const numOthers = group.elsewhere.length;
  switch (spec.kind) {
    case "allReduce": {
      // Neighbours read the own source from a copy, because the result may take its place.
      if (reductionOf(bytes) === "whole") {
        return (numReceived + (group.here.length > 1 ? 1 : 0)) * roundUp(bytes);
      }
      const bounds = partBounds(bytes, group.size);
      return numOthers * roundUp(at(bounds, group.me + 1) - at(bounds, group.me));
    }
    case "reduceScatter":
      return numOthers * roundUp(blockBytes(spec)) * (spec.outer > 1 ? 2 : 1);
    case "allGather":
      return spec.outer > 1 ? numReceived * roundUp(blockBytes(spec)) : 0;
    case "permute":
    case "allToAll":
      return 0;
  }
}
