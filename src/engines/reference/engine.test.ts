import { describe, expect, test } from "vitest";
import { buildProgram } from "../../../test/support/interpreting.js";
import type { Engine } from "../../ir/engine.js";
import { ValueError } from "../../ir/errors.js";
import type { MeshShape } from "../../ir/mesh.js";
import { tensorType } from "../../ir/shape.js";
import { createReferenceEngine } from "./engine.js";

const single: MeshShape = { axes: [] };
const pair: MeshShape = { axes: [{ name: "x", size: 2 }] };
const type = tensorType("float32", [2]);
const double = buildProgram([type], (emit, x) => emit("add", [x, x], {}));
const total = buildProgram([type], (emit, x) => emit("psum", [x], { axes: pair.axes }));
const upload = (engine: Engine, values: readonly number[], device = 0) =>
  engine.upload(type, Float32Array.from(values), device);

// What every engine promises is in test/conformance/engine/contract.ts; this file checks the messages of this engine.
describe("the reference engine", () => {
  test("names the buffer that is gone and how it went", async () => {
    const engine = createReferenceEngine();
    const executable = engine.compile(double, { mesh: single, devices: [0], donated: [true] });
    const [released, donated] = [upload(engine, [1, 2]), upload(engine, [1, 2])];
    engine.release(released);
    executable.execute([[donated]]);
    expect(() => engine.release(released)).toThrow(/f32\[2\] on device 0 was released/);
    await expect(engine.download(donated)).rejects.toThrow(/was donated/);
  });

  test("says what is wrong with buffers and devices, in numbers", () => {
    const engine = createReferenceEngine({ numDevices: 2 });
    const executable = engine.compile(double, { mesh: single, devices: [0] });
    expect(() => upload(engine, [1, 2], 2)).toThrow(/no device 2: use 0 … 1/);
    expect(() => engine.compile(total, { mesh: pair, devices: [0] })).toThrow(
      /1 devices for the 2 positions/,
    );
    expect(() => engine.compile(total, { mesh: pair, devices: [0, 2] })).toThrow(ValueError);
    expect(() => executable.execute([[upload(engine, [1, 2], 1)]])).toThrow(
      /must be f32\[2\] on device 0, but is f32\[2\] on device 1/,
    );
    expect(() => executable.execute([])).toThrow(/0 inputs for 1/);
  });

  test("says that it is closed", async () => {
    const engine = createReferenceEngine();
    const buffer = upload(engine, [1, 2]);
    await engine.close();
    expect(() => upload(engine, [1, 2])).toThrow(/the reference engine is closed/);
    expect(() => engine.peek(buffer)).toThrow(/the reference engine is closed/);
  });
});
