import { describe, expect, test } from "vitest";
import { fromBfloat16Bits, fromFloat16Bits, toBfloat16Bits, toFloat16Bits } from "../../ir/dtype.js";
import { buildMoveModule, instantiateMoveKernels } from "./moveKernels.js";

const memory = new WebAssembly.Memory({ initial: 16, maximum: 65536, shared: true });
const kernels = instantiateMoveKernels(new WebAssembly.Module(buildMoveModule()), memory);
const f32 = new Float32Array(memory.buffer);
const u32 = new Uint32Array(memory.buffer);
const u16 = new Uint16Array(memory.buffer);
const u8 = new Uint8Array(memory.buffer);

describe("the move kernels", () => {
  test("widen every 16-bit float exactly", () => {
    for (const [dtype, from] of [
      ["bfloat16", fromBfloat16Bits],
      ["float16", fromFloat16Bits],
    ] as const) {
      for (let i = 0; i < 65536; i++) u16[i] = i;
      kernels.widen[dtype](1 << 18, 0, 65536);
      const wrong = Array.from({ length: 65536 }, (_, i) => i).filter(
        (i) => !Object.is(f32[65536 + i], from(i)),
      );
      expect(wrong, dtype).toEqual([]);
    }
  });

  test("narrow float32 to the nearest 16-bit float, ties to even", () => {
    const patterns: number[] = [];
    for (let high = 0; high < 65536; high += 3) {
      for (const low of [0, 1, 0x0fff, 0x1000, 0x1001, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff]) {
        patterns.push(high * 65536 + low);
      }
    }
    for (const [dtype, to] of [
      ["bfloat16", toBfloat16Bits],
      ["float16", toFloat16Bits],
    ] as const) {
      const wrong: string[] = [];
      for (let first = 0; first < patterns.length; first += 4096) {
        const chunk = patterns.slice(first, first + 4096);
        u32.set(chunk, 0);
        kernels.narrow[dtype](1 << 18, 0, chunk.length);
        chunk.forEach((pattern, i) => {
          const value = f32[i] ?? 0;
          const got = u16[(1 << 17) + i] ?? 0;
          const nan = (bits: number) =>
            Number.isNaN(dtype === "float16" ? fromFloat16Bits(bits) : fromBfloat16Bits(bits));
          if (Number.isNaN(value) ? !nan(got) : got !== to(value))
            wrong.push(`${pattern.toString(16)}: ${got.toString(16)}`);
        });
      }
      expect(wrong.slice(0, 5), dtype).toEqual([]);
    }
  });

  test("combine any number of elements without touching what follows", () => {
    for (const n of [0, 1, 3, 4, 15, 16, 17, 64, 67]) {
      for (let i = 0; i < 200; i++) {
        f32[i] = i;
        f32[200 + i] = 1000 - i * 20;
        f32[400 + i] = -7;
      }
      kernels.combine("float32", "max")(1600, 0, 800, 4 * n);
      const expected = Array.from({ length: n }, (_, i) => Math.max(i, 1000 - i * 20));
      expect([...f32.subarray(400, 401 + n)]).toEqual([...expected, -7]);
    }
  });

  test("keep NaN in max and min, and order unsigned integers", () => {
    f32.set([Number.NaN, 1], 0);
    f32.set([1, Number.NaN], 16);
    kernels.combine("float32", "min")(128, 0, 64, 8);
    expect([f32[32], f32[33]]).toEqual([Number.NaN, Number.NaN]);
    u32.set([0xffffffff, 1], 0);
    u32.set([1, 2], 16);
    kernels.combine("uint32", "max")(128, 0, 64, 8);
    expect([u32[32], u32[33]]).toEqual([0xffffffff, 2]);
  });

  test("combine bools as or and and", () => {
    u8.set([0, 0, 1, 1], 0);
    u8.set([0, 1, 0, 1], 64);
    kernels.combine("bool", "max")(128, 0, 64, 4);
    expect([...u8.subarray(128, 132)]).toEqual([0, 1, 1, 1]);
    kernels.combine("bool", "min")(128, 0, 64, 4);
    expect([...u8.subarray(128, 132)]).toEqual([0, 0, 0, 1]);
  });

  test.each([4, 8, 12])("copy rows of %d bytes", (bytes) => {
    for (let i = 0; i < 256; i++) u8[i] = i;
    u8.fill(0, 1024, 1280);
    kernels.copyRows(1024, 8, bytes, 3, 16, 32);
    for (let r = 0; r < 3; r++) {
      for (let i = 0; i < 16; i++) expect(u8[1024 + r * 16 + i]).toBe(i < bytes ? 8 + r * 32 + i : 0);
    }
  });
});
