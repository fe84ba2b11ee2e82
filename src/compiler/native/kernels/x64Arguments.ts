import { ADDRESS_BYTES, type AddressType } from "../../wasm/addresses.js";
import type { Label } from "../code.js";
import type { X64 } from "../x64/assembler.js";
import { type Gpr, gpr, low32, type Mem, mem } from "../x64/operands.js";
import type { Extent } from "./kernelBounds.js";

const { rax, rdx, rsi, rdi, r10 } = gpr;

/**
 * The record that a kernel's first argument points to: the address of the memory, its bytes, and a number that a kernel
 * sets to 1 plus the index of an argument that leaves the memory; it does nothing else then.
 */
export const CONTEXT = { base: 0, end: 8, failed: 16, bytes: 24 };

/** An argument of a kernel: its index, what is touched of it, and if it is scratch memory, which part is a thread's own. */
export interface ArgumentPlace {
  readonly index: number;
  readonly extent: Extent;
  readonly part?: { readonly number: Mem; readonly bytes: number } | undefined;
}

/**
 * Writes the code that finds the address of an argument, and jumps to `done` if any of it is outside the memory. The
 * arguments of the kernel, context, address table and argument list, are still in their registers.
 */
export function resolveArgument(
  x: X64,
  addressType: AddressType,
  { index, extent: { from, to }, part }: ArgumentPlace,
  target: Mem,
  done: Label,
): void {
  const [context, table, args] = [rdi, rsi, rdx];
  const isWide = addressType === "i64";
  const bytes = ADDRESS_BYTES[addressType];
  const at32 = (register: Gpr) => (isWide ? register : low32(register));
  const load = (register: Gpr, place: Mem) =>
    isWide ? x.cvttsd2si(register, place) : x.mov(low32(register), place);
  load(rax, mem(args, 2 * index * bytes));
  load(rax, mem(table, 0, rax));
  load(r10, mem(args, (2 * index + 1) * bytes));
  x.add(at32(rax), at32(r10));
  if (part !== undefined) x.mov(r10, part.number).imul(r10, r10, part.bytes).add(rax, r10);
  const [inside, outside] = [x.label(), x.label()];
  x.lea(r10, mem(rax, from)).cmp(r10, 0).j("l", outside);
  x.add(r10, to - from)
    .cmp(r10, mem(context, CONTEXT.end))
    .j("le", inside);
  x.place(outside)
    .mov(low32(rax), index + 1)
    .mov(mem(context, CONTEXT.failed), rax)
    .jmp(done);
  x.place(inside).add(rax, mem(context, CONTEXT.base)).mov(target, rax);
}
