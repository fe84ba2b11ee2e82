/** Makes several native calls in one, where a call from JavaScript would cost more than the function itself. */
import { A64, saveRegisters } from "./a64/assembler.js";
import { x } from "./a64/operands.js";
import { RESULT } from "./lookLoop.js";
import { X64 } from "./x64/assembler.js";
import { gpr, mem } from "./x64/operands.js";

const { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r12 } = gpr;

/** Number of arguments of every call of a list. */
export const LISTED_ARGUMENTS = 7;

/** The 64-bit words of a call in a list: the address of the function, and its arguments. */
export const CALL_WORDS = 1 + LISTED_ARGUMENTS;

const CALL_BYTES = 8 * CALL_WORDS;

/**
 * The code of `(list, count, flag)`: makes the `count` calls that a list describes, until one returns a value other
 * than 0. The last result is stored after the flag, where `writeLookLoop` stores it; the 32 bits before it are 0.
 *
 * @param arch the processor's architecture as Node names it
 * @returns undefined if there is no assembler for it
 */
export function writeCallList(arch: string): Uint8Array<ArrayBuffer> | undefined {
  if (arch === "x64") return x64Calls(new X64());
  return arch === "arm64" ? a64Calls(new A64()) : undefined;
}

/** The calls for x86-64, written with an assembler. */
export function x64Calls(code: X64): Uint8Array<ArrayBuffer> {
  const [list, count, flag] = [rbx, rbp, r12];
  const kept = [list, count, flag];
  for (const register of kept) code.push(register);
  // Space for the last argument, the only one that is not passed in a register, and for alignment.
  code.sub(rsp, 16).mov(list, rdi).mov(count, rsi).mov(flag, rdx);
  const [loop, end] = [code.here(), code.label()];
  [rdi, rsi, rdx, rcx, r8, r9, rax].forEach((register, i) => {
    code.mov(register, mem(list, 8 * (i + 1)));
  });
  code.mov(mem(rsp), rax).mov(rax, mem(list)).call(rax);
  code.mov(mem(flag, RESULT), rax).movsxd(rax, mem(flag, RESULT)).test(rax, rax).j("ne", end);
  code.add(list, CALL_BYTES).dec(count).j("ne", loop);
  code.place(end).add(rsp, 16);
  for (const register of kept.toReversed()) code.pop(register);
  return code.ret().finish();
}

/** The calls for AArch64, written with an assembler. */
export function a64Calls(code: A64): Uint8Array<ArrayBuffer> {
  const [list, count, flag, seen] = [x(19), x(20), x(21), x(9)];
  const restore = saveRegisters(code, [19, 20, 21, 22, 29, 30].map(x));
  code.mov(list, x(0)).mov(count, x(1)).mov(flag, x(2));
  const [loop, end, next] = [code.here(), code.label(), code.label()];
  for (let i = 0; i < LISTED_ARGUMENTS; i++) code.ldr(x(i), list, 8 * (i + 1));
  code.ldr(seen, list).blr(seen).str(x(0), flag, RESULT);
  // Only 32 bits of the result count: they are read again together with the 0 before them.
  code
    .add(seen, flag, RESULT - 4)
    .ldr(seen, seen)
    .cbz(seen, next)
    .b(end);
  code.place(next).add(list, list, CALL_BYTES).subs(count, count, 1).bCond("ne", loop);
  code.place(end);
  restore();
  return code.ret().finish();
}
