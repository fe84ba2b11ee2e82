import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { a64Assembler, testWith, toolPrefixes, x64Assembler } from "../../../test/support/optional.js";
import { randomKernel, randomSource } from "../../../test/support/randomKernel.js";
import { writeFeatureProbe } from "../../engines/system/cpu.js";
import type { AttentionKernel } from "../attention/attentionKernel.js";
import { attentionTile } from "../attention/attentionTile.js";
import { KernelLibrary } from "../kernel/kernelLibrary.js";
import { BASELINE_FEATURES } from "../wasm/features.js";
import { A64 } from "./a64/assembler.js";
import * as a64Instructions from "./a64/instructions.js";
import { d, q, sp, x } from "./a64/operands.js";
import { writeAttention } from "./attention/x64Attention.js";
import { a64Calls, x64Calls } from "./callList.js";
import { a64Gemm } from "./gemm/a64Gemm.js";
import type { FactorLayout, GemmKernel, GemmTarget } from "./gemm/target.js";
import { x64AmxGemm } from "./gemm/x64AmxGemm.js";
import { x64Gemm } from "./gemm/x64Gemm.js";
import { writeKernel } from "./kernels/x64Kernel.js";
import { a64Loop, x64Loop } from "./lookLoop.js";
import { X64 } from "./x64/assembler.js";
import * as x64Instructions from "./x64/instructions.js";
import { gpr, mem, repeated, ripTo, vec } from "./x64/operands.js";

const { rax, rbx, rsp, rbp, r12, r13 } = gpr;

/** Kernels of a target that reach every instruction and every kind of edge. */
function kernelsOf(target: GemmTarget): readonly GemmKernel[] {
  const { rows, columns, size, lanes, flat } = target;
  const widths = [1, 2, 3, lanes, lanes + 1, columns - 1, columns].filter((w) => w <= columns);
  const leftOvers = Array.from({ length: target.perLane }, (_, i) => i);
  const factors = ["a", "b"] as const;
  const zeros = target.depthUnit > target.perLane ? 3 : 0;
  const layouts: readonly (readonly [FactorLayout, FactorLayout])[] = [
    ["packed", "packed"],
    ...(target.direct.a > 0 ? ([[{ row: 1020, step: size }, "packed"]] as const) : []),
    ...(target.direct.b > 0
      ? ([
          [
            { row: size, step: 128 },
            { row: size, step: 1024 },
          ],
        ] as const)
      : []),
  ];
  const tiles = [1, rows - 1, rows].flatMap((height) => widths.map((width) => [height, width] as const));
  if (flat) tiles.push([flat.rows, flat.columns]);
  const scales = [
    { alpha: 1, beta: 0 },
    { alpha: 1, beta: 1 },
    { alpha: 0.5, beta: 1 },
    { alpha: 1, beta: 3 },
  ];
  return [
    ...leftOvers.flatMap((leftOver) =>
      widths.flatMap((extent) => [
        ...factors.flatMap((from) => [
          { kind: "packRows", from, extent, leftOver, zeros } as const,
          { kind: "packColumns", from, extent, leftOver, zeros } as const,
        ]),
      ]),
    ),
    ...tiles.flatMap(([height, width]) =>
      layouts.flatMap(([a, b]) =>
        scales.map((scale) => ({ kind: "multiply", height, width, a, b, ...scale }) as const),
      ),
    ),
    ...tiles.flatMap(([height, width]): GemmKernel[] => {
      const kernel = {
        kind: "multiply",
        height,
        width,
        a: "packed",
        b: "packed",
        alpha: 1,
        beta: 0,
      } as const;
      return target.prefetches ? [{ ...kernel, ahead: 1028 }] : [];
    }),
  ];
}

/** The bytes that GNU `as` makes of listings, one after the other, each from a multiple of 64 on. */
function assemble(prefix: string, header: string, listings: readonly (readonly string[])[]): Buffer {
  const folder = mkdtempSync(join(tmpdir(), "encodings-"));
  try {
    const text = listings.map((lines, i) =>
      lines.map((line) => line.replace(/\bL(\d+)\b/g, `L${i}_$1`)).join("\n"),
    );
    writeFileSync(join(folder, "a.s"), `${header}\n${text.join("\n.balign 64, 0\n")}\n`);
    execFileSync(`${prefix}as`, ["-o", join(folder, "a.o"), join(folder, "a.s")]);
    execFileSync(`${prefix}objcopy`, ["-O", "binary", "-j", ".text", join(folder, "a.o"), join(folder, "a")]);
    return readFileSync(join(folder, "a"));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

interface Piece {
  readonly name: string;
  readonly write: (listing: string[]) => Uint8Array;
}

function piecesOf(targets: readonly GemmTarget[], others: readonly Piece[]): readonly Piece[] {
  return [
    ...others,
    ...targets.flatMap((target) => [
      { name: `${target.name} runner`, write: (listing: string[]) => target.runner(listing) },
      ...kernelsOf(target).map((kernel) => ({
        name: `${target.name}, ${target.size} bytes: ${JSON.stringify(kernel)}`,
        write: (listing: string[]) => target.kernel(kernel, listing),
      })),
    ]),
  ];
}

/** Compares all pieces at once, since starting the assembler takes longer than what it does. */
function compare(prefix: string, header: string, pieces: readonly Piece[]): number {
  const listings: string[][] = [];
  const codes = pieces.map(({ write }) => {
    const listing: string[] = [];
    listings.push(listing);
    return write(listing);
  });
  const theirs = assemble(prefix, header, listings);
  let at = 0;
  codes.forEach((code, i) => {
    const expected = theirs.subarray(at, at + code.length);
    if (!expected.equals(code)) {
      const first = code.findIndex((byte, j) => byte !== expected[j]);
      expect.fail(`${pieces[i]?.name}: byte ${first} differs\n${hex(code, first)}\n${hex(expected, first)}`);
    }
    at += Math.ceil(code.length / 64) * 64;
  });
  return new Set(listings.flat().filter((line) => !line.endsWith(":") && !line.startsWith("."))).size;
}

function hex(bytes: Uint8Array, from: number): string {
  return Buffer.from(bytes.subarray(from, from + 16)).toString("hex");
}

const x64Targets = [
  ...([256, 512] as const).flatMap((bits) => [x64Gemm(bits, "float32"), x64Gemm(bits, "float64")]),
  x64Gemm(512, "bfloat16"),
  x64AmxGemm(),
];
const a64Targets = (["float32", "float64", "bfloat16"] as const).map(a64Gemm);
const probe: Piece = {
  name: "feature probe",
  write: (listing) => writeFeatureProbe(new X64(listing)).finish(),
};
/** What looks after messages. */
const messages = {
  x64: [
    { name: "look loop", write: (listing: string[]) => x64Loop(new X64(listing)) },
    { name: "call list", write: (listing: string[]) => x64Calls(new X64(listing)) },
  ],
  a64: [
    { name: "look loop", write: (listing: string[]) => a64Loop(new A64(listing)) },
    { name: "call list", write: (listing: string[]) => a64Calls(new A64(listing)) },
  ],
};
/** Random kernels, which reach the instructions on vectors in all kinds of registers. */
const kernels: readonly Piece[] = Array.from({ length: 40 }, (_, seed): Piece[] => {
  const { spec } = randomKernel(randomSource(seed));
  const { plan } = new KernelLibrary({ fma: seed % 2 === 0 }).add(spec);
  return ([256, 512] as const).map((bits) => ({
    name: `kernel ${seed} of ${bits} bits`,
    write: (listing) => {
      const target = { bits, addressType: seed % 3 === 0 ? "i64" : "i32" } as const;
      return writeKernel(plan, seed % 4 === 0, target, listing) ?? new Uint8Array();
    },
  }));
}).flat();

/** Attention with rest rows, keys and features, and limits on both sides; its cotangents, too. */
const attentions: readonly Piece[] = [false, true].flatMap((isBackward) => {
  const strides = { batch: 4 * 40 * 3 * 20, row: 4 * 3 * 20, head: 4 * 20 };
  const names = ["query", "key", "value", "mixed"] as const;
  const cotangents = ["mixedCotangent", "queryCotangent", "keyCotangent", "valueCotangent"] as const;
  const all = isBackward ? [...names, ...cotangents] : names;
  const targets = ([256, 512] as const).flatMap((bits) => [-1, 0, 5].map((ahead) => ({ bits, ahead })));
  return targets.map(({ bits, ahead }): Piece => {
    const kernel: AttentionKernel = {
      ...{ kind: "attention", batch: 2, length: 40, heads: 3, keyLength: 40, keyHeads: 3, headSize: 20 },
      ...{ scale: 0.5, before: ahead, ahead },
      args: [...all, "logSums", ...(isBackward ? (["logSumsCotangent"] as const) : [])],
      strides: Object.fromEntries(all.map((name) => [name, strides])),
      tile: attentionTile(BASELINE_FEATURES, bits),
    };
    const target = { bits, addressType: ahead === 0 ? "i32" : "i64" } as const;
    const write = (listing: string[]) => writeAttention(kernel, target, listing);
    return { name: `attention of ${bits} bits, ${isBackward ? "backward, " : ""}${ahead} ahead`, write };
  });
});

/** What the kernels above do not happen to reach. */
const rare: Piece = {
  name: "rare instructions",
  write: (listing) => {
    const code = new X64(listing).repStosb().repStosw().repStosd().cmov("l", rax, rbx);
    return code.vfnmadd213ps(vec(256, 1), vec(256, 9), mem(rax, 64)).finish();
  },
};
/** A pattern for a string as it is. */
function escaped(text: string): string {
  return text.replace(/[[\]{}.#]/g, "\\$&");
}

/** The lines of all listings. */
function listingsOf(pieces: readonly Piece[]): readonly string[] {
  return pieces.flatMap(({ write }) => {
    const listing: string[] = [];
    write(listing);
    return listing;
  });
}

const a64Pieces = piecesOf(a64Targets, messages.a64);
const x64Pieces = piecesOf(x64Targets, [probe, rare, ...messages.x64, ...kernels, ...attentions]);

// Where binutils for a target are missing the comparison is skipped; the bytes below are checked everywhere.
describe("machine code", () => {
  testWith(x64Assembler, "for x86-64 is what GNU as makes of its listing", {}, () => {
    const count = compare(toolPrefixes.x64, ".intel_syntax noprefix", x64Pieces);
    expect(count).toBeGreaterThan(1000);
  });

  it("for x86-64 has every instruction of the table in some listing", () => {
    const begins = [...new Set(listingsOf(x64Pieces).map((line) => line.split(" ", 2).join(" ")))];
    const isListed = (name: string) => begins.some((begin) => begin.startsWith(name));
    const { instructionNames, formsOf } = x64Instructions;
    const isUsed = (name: x64Instructions.InstructionName) =>
      formsOf(name).some((form) => isListed(form.mnemonic) || isListed(form.evexMnemonic));
    expect(instructionNames.filter((name) => !isUsed(name))).toEqual([]);
  });

  testWith(a64Assembler, "for AArch64 is what GNU as makes of its listing", {}, () => {
    const count = compare(toolPrefixes.arm64, ".arch armv8.2-a+bf16", a64Pieces);
    expect(count).toBeGreaterThan(200);
  });

  it("for AArch64 has every form of every instruction of the table in some listing", () => {
    const lines = [...new Set(listingsOf(a64Pieces))];
    const { instructionNames, formsOf } = a64Instructions;
    const missing = instructionNames.flatMap((name) =>
      formsOf(name)
        .filter(({ text, fields }) => {
          const operands = fields.map(({ kind }) => ("xqdsh".includes(kind) ? `(?:${kind}\\d+|sp)` : ".*"));
          const form = text.map((piece, i) => `${escaped(piece)}${operands[i] ?? ""}`).join("");
          const pattern = new RegExp(`^${form}$`);
          return !lines.some((line) => pattern.test(line));
        })
        .map(({ text }) => `${name}: ${text.join("…")}`),
    );
    expect(missing).toEqual([]);
  });

  // `code.ts` says so: whoever waits or signals does it by `Atomics`.
  it("makes plain accesses only, and has no fences", () => {
    const mnemonicsOf = (lines: readonly string[]) =>
      [...new Set(lines.map((line) => line.trim().split(/\s/)[0] ?? ""))].sort();
    const a64 = mnemonicsOf(listingsOf(a64Pieces)).filter((name) => /^(ld|st|cas|swp|[di][ms]b)/.test(name));
    expect(a64).toEqual(["ld1", "ldp", "ldr", "st1", "stp", "str"]);
    const ordered = /^(lock|xchg|cmpxchg|xadd|[lms]fence|v?movnt)/;
    expect(mnemonicsOf(listingsOf(x64Pieces)).filter((name) => ordered.test(name))).toEqual([]);
  });
});

describe("the x86-64 assembler", () => {
  const bytes = (write: (code: X64) => X64) => hex(write(new X64()).finish(), 0);

  it("uses the shortest form of addresses", () => {
    expect(bytes((c) => c.mov(rax, mem(rbx)))).toBe("488b03");
    expect(bytes((c) => c.mov(rax, mem(rbp)))).toBe("488b4500");
    expect(bytes((c) => c.mov(rax, mem(rsp, 8)))).toBe("488b442408");
    expect(bytes((c) => c.mov(mem(r13, 1024), rax))).toBe("49898500040000");
    expect(bytes((c) => c.lea(rax, mem(r12, 0, rbx, 4)))).toBe("498d049c");
  });

  it("prefixes vectors with VEX, and with EVEX where that is needed", () => {
    expect(bytes((c) => c.vfmadd231ps(vec(256, 1), vec(256, 2), vec(256, 3)))).toBe("c4e26db8cb");
    expect(bytes((c) => c.vfmadd231ps(vec(512, 1), vec(512, 30), vec(512, 28)))).toBe("62920d40b8cc");
    expect(bytes((c) => c.vmovupd(mem(rax, 128), vec(512, 17), { mask: 1 }))).toBe("62e1fd49114802");
  });

  it("repeats an element of memory in all lanes", () => {
    const [sum, factor] = [vec(512, 3), vec(512, 30)];
    expect(bytes((c) => c.vfmadd231ps(sum, factor, repeated(rbx, 56, 16)))).toBe("62f20d50b85b0e");
    expect(bytes((c) => c.vfmadd231pd(sum, factor, repeated(rbx, 56, 8)))).toBe("62f28d50b85b07");
    expect(bytes((c) => c.vfmadd231ps(sum, factor, repeated(rbx, 2056, 16)))).toBe("62f20d50b89b08080000");
  });

  it("refuses operands that an instruction has no form for", () => {
    expect(() => new X64().mov(mem(rax), mem(rbx))).toThrow(/mov has no form/);
    expect(() => new X64().mov(rax, 1)).toThrow(/mov has no form/);
    expect(() => new X64().vmovups(mem(rax), mem(rbx))).toThrow(/vmovups has no form/);
  });

  it("finds labels before and behind", () => {
    const code = new X64();
    const behind = code.label();
    const before = code.here();
    code.vmovups(vec(256, 0), ripTo(behind)).jmp(before).place(behind).data([1]);
    expect(hex(code.finish(), 0)).toBe("c5fc100505000000e9f3ffffff01");
  });

  it("does not finish with a label that is nowhere", () => {
    const code = new X64();
    code.jmp(code.label());
    expect(() => code.finish()).toThrow(/not placed/);
  });
});

describe("the AArch64 assembler", () => {
  const bytes = (write: (code: A64) => A64) => hex(write(new A64()).finish(), 0);

  it("writes what the manual says", () => {
    expect(bytes((c) => c.fmlaLane("4s", q(8), q(2), q(1), 3))).toBe("4818a14f");
    expect(bytes((c) => c.bfmmla(q(8), q(1), q(2)))).toBe("28ec426e");
    expect(bytes((c) => c.ldr(q(3), x(5), 48))).toBe("a30cc03d");
    expect(bytes((c) => c.stp(d(8), d(9), sp, 64))).toBe("e827046d");
  });

  it("refuses numbers that do not fit their field", () => {
    expect(() => new A64().ldr(q(0), x(0), 8)).toThrow(/0\.5/);
    expect(() => new A64().add(x(0), x(0), 4096)).toThrow(/4096 does not fit an unsigned field of 12 bits/);
    expect(() => new A64().ldp(x(0), x(1), sp, 512)).toThrow(/64 does not fit a signed field of 7 bits/);
    expect(() => new A64().fmlaLane("2d", q(0), q(0), q(0), 2)).toThrow(/field of 1 bits/);
  });

  it("refuses operands that an instruction has no form for", () => {
    expect(() => new A64().ldrPost(x(0), x(1), 8)).toThrow(/ldr .* has no form/);
    expect(() => new A64().fadd("4s", d(0), q(1), q(2))).toThrow(/fadd .* has no form/);
  });
});
