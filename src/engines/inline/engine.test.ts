import { describe, expect, test } from "vitest";
import { buildProgram } from "../../../test/support/interpreting.js";
import "../../index.js";
import type { HostData } from "../../ir/dtype.js";
import type { DeviceBuffer } from "../../ir/engine.js";
import { newLiteral, type Program } from "../../ir/program.js";
import { at, range, type TensorType, tensorType } from "../../ir/shape.js";
import { createInlineEngine, type InlineEngine } from "./engine.js";

const MiB = 1024 * 1024;
const large = tensorType("float32", [MiB / 4]);
const single = { axes: [] };

const increment = (type: TensorType) =>
  buildProgram([type], (emit, x) => emit("add", [x, newLiteral(1, "float32")], {}));
const same = (type: TensorType) => buildProgram([type], (_emit, x) => [x]);

function filled(value: number, { shape }: TensorType): HostData {
  return new Float32Array(shape.reduce((n, size) => n * size, 1)).fill(value);
}

function runner(engine: InlineEngine, program: Program): (input: DeviceBuffer) => DeviceBuffer {
  const executable = engine.compile(program, { mesh: single, devices: [0] });
  return (input) => at(at(executable.execute([[input]]), 0), 0);
}

async function ends(engine: InlineEngine, buffer: DeviceBuffer): Promise<(number | undefined)[]> {
  const data = await engine.download(buffer);
  return [data[0], data.at(-1)];
}

describe("a program on the calling thread", () => {
  test("is compiled at once when it is large", () => {
    const engine = createInlineEngine();
    runner(engine, increment(large))(engine.upload(large, filled(1, large), 0));
    expect(engine.statistics).toMatchObject({ compiledRuns: 1, interpretedRuns: 0 });
  });

  test("is compiled for a mesh of one device, unless it calls a collective", () => {
    const engine = createInlineEngine();
    const mesh = { axes: [{ name: "x", size: 1 }] };
    const sum = buildProgram([large], (emit, x) => emit("psum", [x], { axes: mesh.axes }));
    for (const program of [increment(large), sum]) {
      const executable = engine.compile(program, { mesh, devices: [0] });
      executable.execute([[engine.upload(large, filled(1, large), 0)]]);
    }
    expect(engine.statistics).toMatchObject({ compiledRuns: 1, interpretedRuns: 1 });
  });

  test("is interpreted when it is small, until that has cost as much as compiling it", () => {
    const engine = createInlineEngine({ patience: 1024 / 65536 });
    const small = tensorType("float32", [256]);
    const run = runner(engine, increment(small));
    let buffer = engine.upload(small, filled(0, small), 0);
    for (const _ of range(10)) buffer = run(buffer);
    expect(engine.statistics).toMatchObject({ compiledRuns: 7, interpretedRuns: 3 });
    expect(engine.peek(buffer)).toEqual(filled(10, small));
  });

  test("counts what its loops and matrix products cost", () => {
    const engine = createInlineEngine();
    const matrix = tensorType("float32", [64, 64]);
    const params = {
      lhsContract: [1],
      rhsContract: [0],
      lhsBatch: [],
      rhsBatch: [],
      dtype: "float32",
    } as const;
    const product = buildProgram([matrix], (emit, x) => emit("dotGeneral", [x, x], params));
    const body = increment(tensorType("float32", [256]));
    const loop = buildProgram([tensorType("float32", [256])], (emit, x) =>
      emit("scan", [x], { body, length: 1000, reverse: false, numConsts: 0, numCarry: 1 }),
    );
    runner(engine, product)(engine.upload(matrix, filled(1, matrix), 0));
    const carry = tensorType("float32", [256]);
    runner(engine, loop)(engine.upload(carry, filled(1, carry), 0));
    expect(engine.statistics).toMatchObject({ compiledRuns: 2, interpretedRuns: 0 });
  });
});

describe("large tensors on the calling thread", () => {
  test("are kept in arrays of the host when the memory is full, and stay right", async () => {
    const engine = createInlineEngine({ memoryBytes: 64 * MiB });
    const run = runner(engine, increment(large));
    let buffer = engine.upload(large, filled(0, large), 0);
    const kept = range(100).map(() => {
      buffer = run(buffer);
      return buffer;
    });
    expect(engine.statistics.interpretedRuns).toBeGreaterThan(0);
    for (const [i, one] of kept.entries()) expect(await ends(engine, one)).toEqual([i + 1, i + 1]);
  });

  test("take no more memory in a loop that drops them", () => {
    const engine = createInlineEngine({ memoryBytes: 64 * MiB });
    const run = runner(engine, increment(large));
    const start = engine.upload(large, filled(0, large), 0);
    for (const _ of range(300)) run(start);
    expect(engine.statistics).toMatchObject({ compiledRuns: 300, interpretedRuns: 0 });
    expect(engine.statistics.usedBytes).toBeLessThan(64 * MiB);
  });

  test("give their memory back at once when they are released or donated", () => {
    const engine = createInlineEngine();
    const executable = engine.compile(increment(large), { mesh: single, devices: [0], donated: [true] });
    let buffer = engine.upload(large, filled(0, large), 0);
    for (const _ of range(5)) buffer = at(at(executable.execute([[buffer]]), 0), 0);
    expect(engine.statistics.usedBytes).toBeLessThan(1.1 * MiB);
    engine.release(buffer);
    executable.release();
    expect(engine.statistics.usedBytes).toBe(0);
  });

  test("can be looked at for ever, although they are released and their memory is wanted", () => {
    const engine = createInlineEngine({ memoryBytes: 64 * MiB });
    const run = runner(engine, increment(large));
    const buffer = run(engine.upload(large, filled(41, large), 0));
    const seen = engine.peek(buffer);
    engine.release(buffer);
    for (const i of range(200)) run(engine.upload(large, filled(i, large), 0));
    expect(seen?.every((x) => x === 42)).toBe(true);
  });

  test("that share their elements are released one by one", async () => {
    const engine = createInlineEngine({ memoryBytes: 64 * MiB });
    const run = runner(engine, increment(large));
    const first = run(engine.upload(large, filled(41, large), 0));
    const copy = engine.transfer(first, 3);
    const interpreted = engine.compile(same(large), {
      mesh: { axes: [{ name: "x", size: 1 }] },
      devices: [0],
    });
    const passed = at(at(interpreted.execute([[first]]), 0), 0);
    const again = at(at(interpreted.execute([[passed]]), 0), 0);
    run(passed);
    engine.release(first);
    engine.release(passed);
    for (const i of range(100)) run(engine.upload(large, filled(i, large), 0));
    expect(await ends(engine, copy)).toEqual([42, 42]);
    expect(await ends(engine, again)).toEqual([42, 42]);
  });
});
