import { describe, expect, test } from "vitest";
import { GEMM_SCRATCH_BYTES } from "../../compiler/gemm/blockedGemm.js";
import { PROGRESS, STAMP, WORDS } from "../collectives/collectiveWords.js";
import { SCRATCH } from "../devices/scratch.js";
import { newFlightRing } from "../flight/recorder.js";
import { pullCommand, readPull } from "./commands.js";
import { ABORT, deviceBase, EVENTS, newControl, WORD } from "./control.js";
import { CALL_FIELD, JOB_FIELD, KERNEL_FIELD, newCrewMemory, PRODUCT_FIELD } from "./crew.js";
import { newTraceBuffer } from "./deviceTrace.js";
import { aligned, float64Words, LINE_WORDS, layout, onNewLine, readFields } from "./layout.js";

describe("layout", () => {
  test("places fields one after the other, each at a multiple of its alignment", () => {
    const fields = layout({ a: 1, b: float64Words(), c: 3, d: aligned(8), e: 1 });
    expect(fields).toEqual({ a: 0, b: 2, c: 4, d: 8, e: 9, size: 16 });
  });

  test("begins a cache line where it is told to, and ends with one", () => {
    const fields = layout({ mine: 3, yours: onNewLine(), too: 2 });
    expect(fields).toEqual({ mine: 0, yours: 16, too: 17, size: 32 });
  });

  test("continues another layout", () => {
    const head = layout({ kind: 1, count: 1 });
    expect(layout({ first: 1, second: 4, third: 1 }, head.size)).toEqual({
      first: 2,
      second: 3,
      third: 7,
      size: 8,
    });
  });

  test("reads fields by their names", () => {
    const fields = layout({ x: 1, y: 1 });
    expect(readFields(fields, Float64Array.of(9, 1, 2, 8), 1)).toMatchObject({ x: 1, y: 2 });
  });
});

describe("the memory that devices share", () => {
  test("keeps words apart that different threads write", () => {
    const line = (word: number) => Math.floor(word / LINE_WORDS);
    expect(new Set([WORD.doorbell, WORD.tail, WORD.head, WORD.program].map(line)).size).toBe(4);
    expect(line(WORDS.ready)).not.toBe(line(WORDS.readyCount));
    expect(WORDS.size % LINE_WORDS).toBe(0);
  });

  test("has room for addresses where float64 are read", () => {
    const { source, target, staged, received } = WORDS;
    expect([source, target, staged, received].map((word) => word % 2)).toEqual([0, 0, 0, 0]);
    expect(PROGRESS.size).toBeLessThanOrEqual(WORDS.size);
  });

  test("has these offsets", () => {
    expect([ABORT, EVENTS, deviceBase(0), deviceBase(1), newControl(3).length]).toEqual([0, 16, 32, 96, 224]);
    expect(WORD).toEqual({
      doorbell: 0,
      sleeps: 1,
      tail: 16,
      answers: 17,
      head: 32,
      completed: 33,
      program: 48,
      step: 49,
      state: 50,
      progress: 51,
      waitsFor: 52,
      diverged: 53,
      loops: 54,
      calls: 55,
      size: 64,
    });
    expect(WORDS).toEqual({
      ready: 0,
      finished: 1,
      source: 2,
      target: 4,
      staged: 6,
      stamps: 10,
      arrived: 14,
      readyCount: 16,
      received: 20,
      finishedCount: 24,
      size: 32,
    });
    expect(STAMP).toEqual({ run: 0, sequence: 1, size: 2 });
    expect(PROGRESS).toEqual({ run: 0, sequence: 1, size: 2 });
    expect(JOB_FIELD).toEqual({ kind: 0, count: 1, size: 2 });
    expect(KERNEL_FIELD).toEqual({ program: 2, module: 3, kernel: 4, table: 5, args: 6, rows: 7, size: 8 });
    expect(PRODUCT_FIELD).toEqual({ runner: 2, ends: 3, calls: 67, size: 67 + 4 * 512 });
    expect(CALL_FIELD).toEqual({ program: 0, a: 1, b: 2, c: 3, size: 4 });
    expect([newCrewMemory(false).words.length, newCrewMemory(false).job.length]).toEqual([48, 2115]);
    expect(SCRATCH).toEqual({ collectives: 0, gemm: 65_536, size: 65_536 + GEMM_SCRATCH_BYTES });
    expect([newTraceBuffer(10).length, newFlightRing(10).length]).toEqual([51, 71]);
  });

  test("holds a command to copy in units of 64 bytes", () => {
    const pull = { target: 128, source: 64, bytes: 640, peer: 2, after: 7 };
    const command = pullCommand(pull);
    expect(command).toEqual([4, 2, 1, 10, 2, 7]);
    expect(readPull(Uint32Array.from(command))).toEqual(pull);
  });
});
