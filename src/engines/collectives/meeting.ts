import type { CollectiveSpec } from "../../compiler/steps.js";
import type { ExchangeTables } from "./collectives.js";
import { type MemberWork, type MoveHost, prepareMemberWork } from "./collectiveWork.js";

/** What one member of a collective has said about its operands. */
interface Member {
  readonly moves: MemberWork;
  source: number;
  target: number;
  receives: number;
}

/**
 * A collective of devices that take turns in one thread and share a memory: each says where its operands lie, and once
 * the members of a group have all come, the work of all of them is done at once. It moves and combines as that of
 * devices with threads of their own does, so that the results have the same bits.
 */
export class Meeting {
  private readonly members = new Map<number, Member>();
  private readonly groupAt = new Map<number, readonly number[]>();

  constructor(
    readonly spec: CollectiveSpec,
    host: MoveHost,
  ) {
    for (const group of spec.groups) {
      group.forEach((position, me) => {
        const moves = prepareMemberWork(spec, { members: group, me }, host);
        this.members.set(position, { moves, source: 0, target: 0, receives: 0 });
        this.groupAt.set(position, group);
      });
    }
  }

  /** The positions that meet with this one, itself included. */
  groupOf(position: number): readonly number[] {
    return this.groupAt.get(position) ?? [];
  }

  /** Notes where the operands of the device at a position lie. */
  start(position: number, source: number, target: number, tables?: ExchangeTables): void {
    const member = this.members.get(position);
    if (member) Object.assign(member, { source, target, receives: tables?.receives ?? 0 });
  }

  /** Does the work of a group, all of whose members have started. */
  work(group: readonly number[]): void {
    const members = group.flatMap((position) => this.members.get(position) ?? []);
    const sources = members.map(({ source }) => source);
    const targets = members.map(({ target }) => target);
    for (const { moves, target, receives } of members) {
      // A sum may overwrite its source, which the others read, too: each member computes a share for all.
      if (moves.shared && members.length > 1) moves.shared(sources, targets);
      else moves.own(sources, target, receives);
    }
  }
}
