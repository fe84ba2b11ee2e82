import { InternalError } from "../../../ir/errors.js";
import type { X64 } from "../x64/assembler.js";
import { type Mem, type Vector, type VectorBits, vec } from "../x64/operands.js";

/** A vector while straight-line code is written: in a register, in memory, or in both. */
export interface HeldVector {
  register: number | undefined;
  /** Where it can be read again. */
  home: Mem | undefined;
  /** The numbers of the instructions that read it, ascending. */
  readonly uses: readonly number[];
}

/**
 * Gives vectors registers in straight-line code. When there are too few, the one whose next use is furthest away goes
 * to memory, which is the best choice there is when all uses are known.
 */
export class Registers {
  private readonly free: number[];
  private readonly owners = new Map<number, HeldVector>();
  private readonly locked = new Set<number>();
  /** The instruction that is being written. */
  now = 0;

  /** @param spill a place on the stack for one vector */
  constructor(
    private readonly x: X64,
    private readonly bits: VectorBits,
    ids: readonly number[],
    private readonly spill: () => Mem,
  ) {
    this.free = ids.toReversed();
  }

  vec(id: number): Vector {
    return vec(this.bits, id);
  }

  /** A register that stays what it is until `unlock`. */
  take(): number {
    const id = this.free.pop() ?? this.evict();
    this.locked.add(id);
    return id;
  }

  /** Puts a vector into a register until others need it more. */
  load(held: HeldVector): Vector {
    if (held.register === undefined) {
      const { home } = held;
      if (home === undefined) throw new InternalError("[Registers] a vector is read before its definition");
      held.register = this.take();
      this.owners.set(held.register, held);
      this.x.vmovups(this.vec(held.register), home);
    }
    this.locked.add(held.register);
    return this.vec(held.register);
  }

  /** Says what a register from `take` holds from now on. */
  own(id: number, held: HeldVector): void {
    held.register = id;
    this.owners.set(id, held);
  }

  /** Gives the register of a vector back. */
  drop(held: HeldVector): void {
    if (held.register === undefined) return;
    this.give(held.register);
    held.register = undefined;
  }

  /** Gives a register back. */
  give(id: number): void {
    this.owners.delete(id);
    this.locked.delete(id);
    this.free.push(id);
  }

  /** Ends an instruction: all registers may be needed for others. */
  unlock(): void {
    this.locked.clear();
  }

  private evict(): number {
    let [furthest, chosen] = [-1, -1];
    for (const [id, { uses }] of this.owners) {
      if (this.locked.has(id)) continue;
      const next = uses.find((use) => use >= this.now) ?? Number.POSITIVE_INFINITY;
      if (next > furthest) [furthest, chosen] = [next, id];
    }
    const held = this.owners.get(chosen);
    if (held === undefined) throw new InternalError("[Registers] one instruction needs all registers");
    if (held.home === undefined) {
      held.home = this.spill();
      this.x.vmovups(held.home, this.vec(chosen));
    }
    held.register = undefined;
    this.owners.delete(chosen);
    return chosen;
  }
}
