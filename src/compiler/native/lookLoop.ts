/** A loop that polls for an event, where a call from JavaScript would cost more than a poll. */
import { A64, saveRegisters } from "./a64/assembler.js";
import { x } from "./a64/operands.js";
import { X64 } from "./x64/assembler.js";
import { gpr, mem } from "./x64/operands.js";

const { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r12, r13, r14, r15 } = gpr;

/**
 * The code of `(count, requests, flag, statuses, look, times)`: calls `look(count, requests, flag, statuses)` up to
 * `times` times, until it returns a value other than 0 or the number at `flag` is not 0. The 32 bits after the flag are
 * 0, and the last result of `look` is stored in the 32 bits after those. The flag is read by plain loads, which order
 * nothing: if another thread sets it, `Atomics.load` must follow before what it announces is read.
 *
 * @param arch the processor's architecture as Node names it
 * @returns undefined if there is no assembler for it
 */
export function writeLookLoop(arch: string): Uint8Array<ArrayBuffer> | undefined {
  if (arch === "x64") return x64Loop(new X64());
  return arch === "arm64" ? a64Loop(new A64()) : undefined;
}

/** Bytes from the flag to the result of the last call. */
export const RESULT = 8;

/** The loop for x86-64, written with an assembler. */
export function x64Loop(code: X64): Uint8Array<ArrayBuffer> {
  // An odd number of words, which together with the return address keeps the stack aligned for calls.
  const kept = [rbx, rbp, r12, r13, r14, r15];
  for (const register of kept) code.push(register);
  code.sub(rsp, 8);
  code.mov(rbx, rdi).mov(rbp, rsi).mov(r12, rdx).mov(r13, rcx).mov(r14, r8).mov(r15, r9);
  const [loop, end] = [code.here(), code.label()];
  code.mov(rdi, rbx).mov(rsi, rbp).mov(rdx, r12).mov(rcx, r13).call(r14);
  code.mov(mem(r12, RESULT), rax).movsxd(rax, mem(r12, RESULT)).test(rax, rax).j("ne", end);
  code.movsxd(rax, mem(r12)).test(rax, rax).j("ne", end);
  code.dec(r15).j("ne", loop);
  code.place(end).add(rsp, 8);
  for (const register of kept.toReversed()) code.pop(register);
  return code.ret().finish();
}

/** The loop for AArch64, written with an assembler. */
export function a64Loop(code: A64): Uint8Array<ArrayBuffer> {
  const [flag, look, times, seen] = [x(21), x(23), x(24), x(9)];
  const restore = saveRegisters(code, [19, 20, 21, 22, 23, 24, 29, 30].map(x));
  for (let id = 0; id < 6; id++) code.mov(x(19 + id), x(id));
  const [loop, end, again] = [code.here(), code.label(), code.label()];
  for (let id = 0; id < 4; id++) code.mov(x(id), x(19 + id));
  code.blr(look).str(x(0), flag, RESULT);
  // Only 32 bits of the result count: they are read again together with the 0 before them.
  code
    .add(seen, flag, RESULT - 4)
    .ldr(seen, seen)
    .cbz(seen, again)
    .b(end);
  const next = code.label();
  code.place(again).ldr(seen, flag).cbz(seen, next).b(end);
  code.place(next).subs(times, times, 1).bCond("ne", loop);
  code.place(end);
  restore();
  return code.ret().finish();
}
