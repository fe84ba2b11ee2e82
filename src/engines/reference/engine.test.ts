import { describe, expect, test } from "vitest";
import { buildProgram } from "../../../test/support/interpreting.js";
import type { Engine } from "../../ir/engine.js";
import { DisposedError, ShardwiseError, ValueError } from "../../ir/errors.js";
import type { MeshShape } from "../../ir/mesh.js";
import { at, tensorType } from "../../ir/shape.js";
import { createReferenceEngine } from "./engine.js";

const single: MeshShape = { axes: [] };
const pair: MeshShape = { axes: [{ name: "x", size: 2 }] };
const type = tensorType("float32", [2]);
const double = buildProgram([type], (emit, x) => emit("add", [x, x], {}));
const total = buildProgram([type], (emit, x) => emit("psum", [x], { axes: pair.axes }));
const upload = (engine: Engine, values: readonly number[], device = 0) =>
  engine.upload(type, Float32Array.from(values), device);

describe("the reference engine", () => {
  test("runs a program on one device", async () => {
    const engine = createReferenceEngine();
    const executable = engine.compile(double, { mesh: single, devices: [0] });
    const y = at(at(executable.execute([[upload(engine, [1, 2])]]), 0), 0);
    expect(y.type).toEqual(type);
    expect(await engine.download(y)).toEqual(Float32Array.from([2, 4]));
  });

  test("runs a program on the devices of a mesh", async () => {
    const engine = createReferenceEngine({ numDevices: 4 });
    const executable = engine.compile(total, { mesh: pair, devices: [3, 1] });
    const [sums = []] = executable.execute([[upload(engine, [1, 2], 3), upload(engine, [10, 20], 1)]]);
    expect(await Promise.all(sums.map((sum) => engine.download(sum)))).toEqual([
      Float32Array.from([11, 22]),
      Float32Array.from([11, 22]),
    ]);
  });

  test("copies on the way in and out", async () => {
    const engine = createReferenceEngine();
    const data = Float32Array.from([1, 2]);
    const buffer = engine.upload(type, data, 0);
    data[0] = 9;
    const first = await engine.download(buffer);
    expect(first).toEqual(Float32Array.from([1, 2]));
    first[0] = 9;
    expect(await engine.download(buffer)).toEqual(Float32Array.from([1, 2]));
    expect(engine.peek(buffer)).toEqual(Float32Array.from([1, 2]));
  });

  test("copies from device to device", async () => {
    const engine = createReferenceEngine();
    const copy = engine.transfer(upload(engine, [1, 2], 0), 5);
    const executable = engine.compile(double, { mesh: single, devices: [5] });
    const y = at(at(executable.execute([[copy]]), 0), 0);
    expect(await engine.download(y)).toEqual(Float32Array.from([2, 4]));
  });

  test("refuses a buffer that was released", async () => {
    const engine = createReferenceEngine();
    const executable = engine.compile(double, { mesh: single, devices: [0] });
    const buffer = upload(engine, [1, 2]);
    engine.release(buffer);
    expect(() => executable.execute([[buffer]])).toThrow(DisposedError);
    expect(() => engine.release(buffer)).toThrow(/f32\[2\] on device 0 was released/);
    await expect(engine.download(buffer)).rejects.toThrow(DisposedError);
  });

  test("refuses a buffer that was donated, and keeps the others", async () => {
    const engine = createReferenceEngine();
    const sum = buildProgram([type, type], (emit, x, y) => emit("add", [x, y], {}));
    const executable = engine.compile(sum, { mesh: single, devices: [0], donated: [true, false] });
    const [given, kept] = [upload(engine, [1, 2]), upload(engine, [3, 4])];
    const y = at(at(executable.execute([[given], [kept]]), 0), 0);
    expect(await engine.download(y)).toEqual(Float32Array.from([4, 6]));
    expect(await engine.download(kept)).toEqual(Float32Array.from([3, 4]));
    await expect(engine.download(given)).rejects.toThrow(/was donated/);
  });

  test("does not let a donated input take its results along", async () => {
    const engine = createReferenceEngine();
    const same = buildProgram([type], (_emit, x) => [x]);
    const executable = engine.compile(same, { mesh: single, devices: [0], donated: [true] });
    const y = at(at(executable.execute([[upload(engine, [1, 2])]]), 0), 0);
    expect(await engine.download(y)).toEqual(Float32Array.from([1, 2]));
  });

  test("says what is wrong with buffers, devices and data", () => {
    const engine = createReferenceEngine({ numDevices: 2 });
    const executable = engine.compile(double, { mesh: single, devices: [0] });
    expect(() => upload(engine, [1, 2], 2)).toThrow(/device 2 is not one of the 2 devices/);
    expect(() => engine.compile(total, { mesh: pair, devices: [0] })).toThrow(
      /1 devices for the 2 positions/,
    );
    expect(() => engine.compile(total, { mesh: pair, devices: [0, 2] })).toThrow(ValueError);
    expect(() => upload(engine, [1, 2, 3])).toThrow(/f32\[2\] needs a Float32Array of 2/);
    expect(() => engine.upload(type, Int32Array.from([1, 2]), 0)).toThrow(/not a Int32Array/);
    expect(() => executable.execute([[upload(engine, [1, 2], 1)]])).toThrow(
      /lies on device 1, not on device 0/,
    );
    expect(() => executable.execute([[upload(createReferenceEngine(), [1, 2])]])).toThrow(/another engine/);
    expect(() => executable.execute([])).toThrow(/0 inputs for 1/);
  });

  test("refuses a program that is not per-device", () => {
    const engine = createReferenceEngine();
    const params = {
      mesh: pair,
      manual: ["x"],
      checked: false,
      inSpecs: [[[]]],
      outSpecs: [[[]]],
      body: double,
    };
    const program = buildProgram([type], (emit, x) => emit("shardMap", [x], params));
    expect(() => engine.compile(program, { mesh: single, devices: [0] })).toThrow(/shardMap must be gone/);
  });

  test("refuses everything once it is closed, but lets buffers go", async () => {
    const engine = createReferenceEngine();
    const executable = engine.compile(double, { mesh: single, devices: [0] });
    const buffer = upload(engine, [1, 2]);
    await engine.close();
    expect(() => executable.execute([[buffer]])).toThrow(ShardwiseError);
    expect(() => upload(engine, [1, 2])).toThrow(/the reference engine is closed/);
    expect(() => engine.compile(double, { mesh: single, devices: [0] })).toThrow(/closed/);
    expect(() => engine.peek(buffer)).toThrow(/closed/);
    await expect(engine.download(buffer)).rejects.toThrow(/closed/);
    engine.release(buffer);
    await engine.close();
  });
});
