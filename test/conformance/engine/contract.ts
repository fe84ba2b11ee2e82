import { afterEach, describe, expect, test } from "vitest";
import { HostFunction } from "../../../src/ir/callbacks.js";
import type { DeviceBuffer, Engine, Executable } from "../../../src/ir/engine.js";
import { DisposedError, ShardwiseError, ValueError } from "../../../src/ir/errors.js";
import type { MeshShape } from "../../../src/ir/mesh.js";
import { newLiteral } from "../../../src/ir/program.js";
import { at, range, tensorType } from "../../../src/ir/shape.js";
import { buildProgram } from "../../support/interpreting.js";

const single: MeshShape = { axes: [] };
const pair: MeshShape = { axes: [{ name: "x", size: 2 }] };
const type = tensorType("float32", [2]);
const double = buildProgram([type], (emit, x) => emit("add", [x, x], {}));
const increment = buildProgram([type], (emit, x) => emit("add", [x, newLiteral(1, "float32")], {}));
const total = buildProgram([type], (emit, x) => emit("psum", [x], { axes: pair.axes }));

/** What the interface promises of every engine. */
export function describeContract(open: (numDevices: number) => Engine): void {
  const opened: Engine[] = [];
  const newEngine = (numDevices = 2): Engine => {
    const engine = open(numDevices);
    opened.push(engine);
    return engine;
  };
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((engine) => engine.close()));
  });
  const upload = (engine: Engine, values: readonly number[], device = 0): DeviceBuffer =>
    engine.upload(type, Float32Array.from(values), device);
  const only = (outputs: readonly (readonly DeviceBuffer[])[]): DeviceBuffer => at(at(outputs, 0), 0);

  const runOnce = (engine: Engine, executable: Executable, device = 0): [DeviceBuffer, DeviceBuffer] => {
    const input = upload(engine, [1, 2], device);
    return [input, only(executable.execute([[input]]))];
  };

  describe("to the contract", () => {
    test("a program runs on one device", async () => {
      const engine = newEngine();
      const executable = engine.compile(double, { mesh: single, devices: [1] });
      const y = only(executable.execute([[upload(engine, [1, 2], 1)]]));
      expect(y.type).toEqual(type);
      expect(await engine.download(y)).toEqual(Float32Array.from([2, 4]));
    });

    test("a program runs on the devices of a mesh, whatever their order", async () => {
      const engine = newEngine(3);
      const executable = engine.compile(total, { mesh: pair, devices: [2, 0] });
      const [sums = []] = executable.execute([[upload(engine, [1, 2], 2), upload(engine, [10, 20], 0)]]);
      const values = await Promise.all(sums.map((sum) => engine.download(sum)));
      expect(values).toEqual([Float32Array.from([11, 22]), Float32Array.from([11, 22])]);
    });

    test("many runs can be on their way, each reading what the one before wrote", async () => {
      const engine = newEngine();
      const executable = engine.compile(increment, { mesh: single, devices: [0], donated: [true] });
      let buffer = upload(engine, [0, 10]);
      for (const _ of range(200)) buffer = only(executable.execute([[buffer]]));
      expect(await engine.download(buffer)).toEqual(Float32Array.from([200, 210]));
    });

    test("elements are copied on the way in and out", async () => {
      const engine = newEngine();
      const data = Float32Array.from([1, 2]);
      const buffer = engine.upload(type, data, 0);
      data[0] = 9;
      const first = await engine.download(buffer);
      expect(first).toEqual(Float32Array.from([1, 2]));
      first[0] = 9;
      expect(await engine.download(buffer)).toEqual(Float32Array.from([1, 2]));
      expect(engine.peek(buffer)).toEqual(Float32Array.from([1, 2]));
    });

    test("what was downloaded can be peeked at", async () => {
      const engine = newEngine();
      const y = only(
        engine.compile(double, { mesh: single, devices: [0] }).execute([[upload(engine, [1, 2])]]),
      );
      await engine.download(y);
      expect(engine.peek(y)).toEqual(Float32Array.from([2, 4]));
    });

    test("buffers are copied from device to device", async () => {
      const engine = newEngine();
      const y = only(
        engine.compile(double, { mesh: single, devices: [0] }).execute([[upload(engine, [1, 2])]]),
      );
      const copy = engine.transfer(y, 1);
      engine.release(y);
      const z = only(engine.compile(double, { mesh: single, devices: [1] }).execute([[copy]]));
      expect(await engine.download(z)).toEqual(Float32Array.from([4, 8]));
    });

    test("a released buffer is refused", async () => {
      const engine = newEngine();
      const executable = engine.compile(double, { mesh: single, devices: [0] });
      const buffer = upload(engine, [1, 2]);
      engine.release(buffer);
      expect(() => executable.execute([[buffer]])).toThrow(DisposedError);
      expect(() => engine.release(buffer)).toThrow(DisposedError);
      await expect(engine.download(buffer)).rejects.toThrow(DisposedError);
    });

    test("a donated buffer is refused, the others are kept", async () => {
      const engine = newEngine();
      const sum = buildProgram([type, type], (emit, x, y) => emit("add", [x, y], {}));
      const executable = engine.compile(sum, { mesh: single, devices: [0], donated: [true, false] });
      const [given, kept] = [upload(engine, [1, 2]), upload(engine, [3, 4])];
      const y = only(executable.execute([[given], [kept]]));
      expect(await engine.download(y)).toEqual(Float32Array.from([4, 6]));
      expect(await engine.download(kept)).toEqual(Float32Array.from([3, 4]));
      await expect(engine.download(given)).rejects.toThrow(/donated/);
    });

    describe("donation", () => {
      const sum = buildProgram([type, type], (emit, x, y) => emit("add", [x, y], {}));
      const compileSum = (engine: Engine, donated: readonly boolean[]) =>
        engine.compile(sum, { mesh: single, devices: [0], donated, name: "sum" });

      test("of a buffer that is another input too is refused with both, and takes nothing", async () => {
        const engine = newEngine();
        const x = upload(engine, [1, 2]);
        for (const donated of [
          [true, false],
          [true, true],
        ]) {
          const run = () => compileSum(engine, donated).execute([[x], [x]]);
          expect(run).toThrow(ValueError);
          expect(run).toThrow(/sum: input 0 is donated, but its buffer of f32\[2\] is also input 1/);
        }
        const second = () => compileSum(engine, [false, true]).execute([[x], [x]]);
        expect(second).toThrow(/input 1 is donated, but its buffer of f32\[2\] is also input 0/);
        const y = only(compileSum(engine, [false, false]).execute([[x], [x]]));
        expect(await engine.download(y)).toEqual(Float32Array.from([2, 4]));
        expect(await engine.download(x)).toEqual(Float32Array.from([1, 2]));
      });

      test("leaves a copy of the buffer alone", async () => {
        const engine = newEngine();
        const x = upload(engine, [1, 2]);
        const copy = engine.transfer(x, 0);
        const y = only(compileSum(engine, [true, false]).execute([[x], [copy]]));
        expect(await engine.download(y)).toEqual(Float32Array.from([2, 4]));
        expect(await engine.download(copy)).toEqual(Float32Array.from([1, 2]));
      });

      test("takes the buffer from everybody, also while the run is under way", async () => {
        const engine = newEngine();
        const executable = engine.compile(increment, { mesh: single, devices: [0], donated: [true] });
        const x = upload(engine, [1, 2]);
        const y = only(executable.execute([[x]]));
        expect(() => executable.execute([[x]])).toThrow(DisposedError);
        expect(() => engine.transfer(x, 1)).toThrow(DisposedError);
        expect(() => engine.peek(x)).toThrow(DisposedError);
        expect(() => engine.release(x)).toThrow(DisposedError);
        await expect(engine.ready(x)).rejects.toThrow(DisposedError);
        await expect(engine.download(x)).rejects.toThrow(DisposedError);
        expect(await engine.download(y)).toEqual(Float32Array.from([2, 3]));
      });

      test("does not happen in a run that is refused", async () => {
        const engine = newEngine();
        const executable = compileSum(engine, [true, false]);
        const [x, far] = [upload(engine, [1, 2]), upload(engine, [3, 4], 1)];
        const gone = upload(engine, [5, 6]);
        engine.release(gone);
        const wide = engine.upload(tensorType("float32", [3]), new Float32Array(3), 0);
        for (const inputs of [[[x]], [[x], [far]], [[x], [gone]], [[x], [wide]], [[x], []]]) {
          expect(() => executable.execute(inputs)).toThrow(ShardwiseError);
        }
        executable.release();
        expect(() => executable.execute([[x], [upload(engine, [1, 1])]])).toThrow(DisposedError);
        expect(await engine.download(x)).toEqual(Float32Array.from([1, 2]));
      });

      test("holds although the run fails, and the other inputs stay", async ({ skip }) => {
        const engine = newEngine();
        skip(engine.name === "xla", "its programs cannot call host callbacks");
        const fail = new HostFunction("fail", () => {
          throw new Error("on purpose");
        });
        const failing = buildProgram([type, type], (emit, x, y) => {
          const outs = emit("callback", [x], {
            fn: fail,
            kind: "pure",
            batching: "sequential",
            results: [type],
            once: [],
          });
          return emit("add", [at(outs, 0), y], {});
        });
        const executable = engine.compile(failing, { mesh: single, devices: [0], donated: [true, false] });
        const [x, y] = [upload(engine, [1, 2]), upload(engine, [3, 4])];
        const run = async () => engine.download(only(executable.execute([[x], [y]])));
        await expect(run()).rejects.toThrow(/on purpose/);
        await expect(engine.download(x)).rejects.toThrow(/donated/);
        expect(await engine.download(y)).toEqual(Float32Array.from([3, 4]));
      });
    });

    test("results are buffers of their own, also when they are inputs or the same value", async () => {
      const engine = newEngine();
      const same = buildProgram([type], (_emit, x) => [x, x, newLiteral(3, "float32")]);
      for (const donated of [[true], [false]]) {
        const executable = engine.compile(same, { mesh: single, devices: [0], donated });
        const x = upload(engine, [1, 2]);
        const [[a] = [], [b] = [], [c] = []] = executable.execute([[x]]);
        if (!a || !b || !c) throw new Error("an output is missing");
        expect(await engine.download(a)).toEqual(Float32Array.from([1, 2]));
        engine.release(a);
        expect(await engine.download(b)).toEqual(Float32Array.from([1, 2]));
        expect(await engine.download(c)).toEqual(Float32Array.from([3]));
        if (!donated[0]) expect(await engine.download(x)).toEqual(Float32Array.from([1, 2]));
      }
    });

    test("buffers, devices and data that do not fit are refused", () => {
      const engine = newEngine();
      const executable = engine.compile(double, { mesh: single, devices: [0] });
      expect(() => upload(engine, [1, 2], -1)).toThrow(ValueError);
      expect(() => engine.compile(total, { mesh: pair, devices: [0] })).toThrow(ValueError);
      expect(() => engine.compile(total, { mesh: pair, devices: [0, -1] })).toThrow(ValueError);
      expect(() => upload(engine, [1, 2, 3])).toThrow(/f32\[2\] needs a Float32Array of 2/);
      expect(() => engine.upload(type, Int32Array.from([1, 2]), 0)).toThrow(/not a Int32Array/);
      expect(() => executable.execute([[upload(engine, [1, 2], 1)]])).toThrow(ValueError);
      expect(() => executable.execute([[upload(newEngine(), [1, 2])]])).toThrow(/another engine/);
      expect(() => executable.execute([])).toThrow(ShardwiseError);
    });

    test("a program that is not per-device is refused", () => {
      const engine = newEngine();
      const params = {
        mesh: pair,
        manual: ["x"],
        checked: false,
        inSpecs: [[[]]],
        outSpecs: [[[]]],
        body: double,
      };
      const halves = { body: double, forward: double, backward: double, numCaptures: 0, numResiduals: 0 };
      const programs = {
        shardMap: buildProgram([type], (emit, x) => emit("shardMap", [x], params)),
        shardingConstraint: buildProgram([type], (emit, x) =>
          emit("shardingConstraint", [x], { mesh: pair, spec: [["x"]] }),
        ),
        remat: buildProgram([type], (emit, x) =>
          emit("remat", [x], { body: double, policy: { kind: "nothing" } }),
        ),
        customVjp: buildProgram([type], (emit, x) => emit("customVjp", [x], halves)),
      };
      for (const [op, program] of Object.entries(programs)) {
        expect(() => engine.compile(program, { mesh: single, devices: [0] })).toThrow(`${op} must not occur`);
      }
    });

    test("a released program is not run again; what it was running finishes", async () => {
      const engine = newEngine();
      const executable = engine.compile(increment, { mesh: single, devices: [0], donated: [true] });
      let buffer = upload(engine, [0, 10]);
      for (const _ of range(50)) buffer = only(executable.execute([[buffer]]));
      executable.release();
      executable.release();
      expect(() => executable.execute([[upload(engine, [1, 2])]])).toThrow(DisposedError);
      expect(await engine.download(buffer)).toEqual(Float32Array.from([50, 60]));
    });

    test("programs that are released leave no memory taken", async () => {
      const engine = newEngine();
      const taken = () => engine.memoryUsage?.(0).used ?? 0;
      const [other, free] = [engine.compile(double, { mesh: single, devices: [0] }), taken()];
      for (const i of range(20)) {
        const program = buildProgram([type], (emit, x) => emit("add", [x, newLiteral(i, "float32")], {}));
        const executable = engine.compile(program, { mesh: single, devices: [0] });
        const [input, output] = runOnce(engine, executable);
        executable.release();
        for (const buffer of [input, output]) engine.release(buffer);
      }
      // What comes after a program is given back when a device has got that far.
      const [input, output] = runOnce(engine, other);
      await engine.download(output);
      for (const buffer of [input, output]) engine.release(buffer);
      await expect.poll(taken).toBe(free);
    });

    test("it says which process it is and which devices are here, and has none beyond its number", () => {
      const engine = newEngine();
      const { index, count } = engine.process;
      expect(engine.numDevices).toBeGreaterThanOrEqual(2);
      expect(index).toBeGreaterThanOrEqual(0);
      expect(index).toBeLessThan(count);
      expect(range(2).map((device) => engine.isAddressable(device))).toContain(true);
      if (count === 1) expect(range(2).every((device) => engine.isAddressable(device))).toBe(true);
      for (const wrong of [-1, 0.5, engine.numDevices]) {
        if (wrong !== Number.POSITIVE_INFINITY) expect(engine.isAddressable(wrong)).toBe(false);
      }
    });

    test("what it can tell of itself agrees", async () => {
      const engine = newEngine();
      const info = engine.info?.();
      if (info) expect(info).toMatchObject({ engine: engine.name, numDevices: engine.numDevices });
      const usage = engine.memoryUsage?.(0);
      if (usage) {
        const buffer = upload(engine, [1, 2]);
        expect(engine.memoryUsage?.(0).used).toBeGreaterThanOrEqual(usage.used + 8);
        engine.release(buffer);
        expect(usage.capacity).toBeGreaterThan(usage.used);
      }
      expect(engine.isOpen ?? true).toBe(true);
      await engine.close();
      if (engine.isOpen !== undefined) expect(engine.isOpen).toBe(false);
    });

    test("a tracer records the runs between its start and its stop", async () => {
      const engine = newEngine();
      const { tracer } = engine;
      if (!tracer) return;
      const executable = engine.compile(double, { mesh: single, devices: [1], name: "twice" });
      runOnce(engine, executable, 1);
      tracer.start();
      runOnce(engine, executable, 1);
      const events = await tracer.stop();
      runOnce(engine, executable, 1);
      expect(events.length).toBeGreaterThan(0);
      expect(new Set(events.map(({ device, program }) => `${program} ${device}`))).toEqual(
        new Set(["twice 1"]),
      );
      for (const { begin, end } of events) expect(end).toBeGreaterThanOrEqual(begin);
      await expect(tracer.stop()).rejects.toThrow(ValueError);
    });

    test("nothing runs on a closed engine, but buffers may be let go", async () => {
      const engine = newEngine();
      const executable = engine.compile(double, { mesh: single, devices: [0] });
      const buffer = upload(engine, [1, 2]);
      await engine.close();
      expect(() => executable.execute([[buffer]])).toThrow(DisposedError);
      expect(() => upload(engine, [1, 2])).toThrow(DisposedError);
      expect(() => engine.compile(double, { mesh: single, devices: [0] })).toThrow(DisposedError);
      expect(() => engine.peek(buffer)).toThrow(DisposedError);
      await expect(engine.download(buffer)).rejects.toThrow(DisposedError);
      engine.release(buffer);
      executable.release();
      await engine.close();
    });
  });
}
