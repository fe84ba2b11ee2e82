import { describe, expect, it } from "vitest";
import { x64Gemm } from "./x64Gemm.js";
import { X64Tile } from "./x64Multiply.js";
import { Vectors } from "./x64Vectors.js";

/** The instructions of a kernel for packed factors. */
function listing(bits: 256 | 512, height: number, width: number, beta = 0): readonly string[] {
  const lines: string[] = [];
  const factors = { a: "packed", b: "packed" } as const;
  x64Gemm(bits, "float32").kernel({ kind: "multiply", height, width, ...factors, alpha: 1, beta }, lines);
  return lines;
}

const count = (lines: readonly string[], pattern: RegExp) =>
  lines.filter((line) => pattern.test(line)).length;

describe("the kernel that multiplies on x86-64", () => {
  it("has elements of A as operands as far as a quarter of the loads is left", () => {
    const numRepeated = (bits: 256 | 512, height: number, vectors: number) =>
      new X64Tile(new Vectors(bits, "float32"), height, vectors).numRepeated;
    expect(numRepeated(512, 14, 2)).toBe(5);
    expect(numRepeated(512, 6, 4)).toBe(2);
    expect(numRepeated(512, 1, 2)).toBe(0);
    // An element that is used once needs no register.
    expect(numRepeated(512, 14, 1)).toBe(14);
    // Only AVX-512 repeats operands.
    expect(numRepeated(256, 6, 2)).toBe(0);
  });

  it("loads every other element of A once in a step", () => {
    // The loops have four steps, four and one.
    const lines = listing(512, 14, 32);
    expect(count(lines, /^vfmadd231ps .*{1to16}/)).toBe(9 * 2 * 5);
    expect(count(lines, /^vfmadd231ps/)).toBe(9 * 2 * 14);
    expect(count(lines, /^vbroadcastss/)).toBe(9 * (14 - 5));
    expect(count(listing(512, 14, 16), /^vbroadcastss/)).toBe(0);
  });

  it("prefetches the rows of C during the first steps, and the next strip of A", () => {
    const lines = listing(512, 14, 32);
    expect(count(lines, /^prefetcht1 \[rbp( \+ 64)?\]/)).toBe(2);
    // Before the first step if there are few of them and C is read.
    expect(count(listing(512, 14, 32, 1), /^prefetcht1 \[rbp( \+ 64)?\]/)).toBe(2 + 2 * 14);
    expect(count(lines, /^prefetcht1 \[rbx \+ rax \* 1\]/)).toBe(2);
  });
});
