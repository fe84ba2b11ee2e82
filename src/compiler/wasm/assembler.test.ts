import { describe, expect, it } from "vitest";
import { type FuncType, ModuleBuilder } from "./assembler.js";
import { ByteWriter } from "./byteWriter.js";
import { detectFeatures } from "./features.js";
import type { FunctionBody } from "./functionBody.js";
import { VECTOR_OPS, type VectorOp } from "./opcodes.js";

function assemble(signature: FuncType, write: (code: FunctionBody) => void): (...args: number[]) => number {
  const builder = new ModuleBuilder();
  builder.function(signature, write, "run");
  const { run } = new WebAssembly.Instance(new WebAssembly.Module(builder.toBytes())).exports;
  if (typeof run !== "function") throw new Error("run is not exported");
  return (...args) => Number(run(...args));
}

describe("ByteWriter", () => {
  it("writes LEB128 as the specification's examples do", () => {
    const out = new ByteWriter();
    out.u32(624485);
    out.signed(-123456n);
    out.signed(64n);
    expect([...out.toBytes()]).toEqual([0xe5, 0x8e, 0x26, 0xc0, 0xbb, 0x78, 0xc0, 0x00]);
  });

  it("refuses numbers that are not unsigned 32-bit integers", () => {
    expect(() => new ByteWriter().u32(-1)).toThrow(RangeError);
    expect(() => new ByteWriter().u32(1.5)).toThrow(RangeError);
  });
});

describe("ModuleBuilder", () => {
  it("assembles loops, branches and conditions", () => {
    const factorial = assemble({ params: ["i32"], results: ["i32"] }, (code) => {
      const n = code.param(0);
      const product = code.local("i32");
      code.i32(1).set(product);
      code.block((done) => {
        code.loop((next) => {
          code.get(n).op("i32.eqz").brIf(done);
          code.get(product).get(n).op("i32.mul").set(product);
          code.increment(n, -1).br(next);
        });
      });
      code.get(product).i32(1000).op("i32.gt_s");
      code.if(
        () => code.get(product).op("f32.convert_i32_s").op("i32.trunc_sat_f32_s").set(product),
        () => code.i32(0).get(product).op("i32.sub").set(product),
      );
      code.get(product);
    });
    expect(factorial(5)).toBe(-120);
    expect(factorial(7)).toBe(5040);
  });

  it("encodes constants of every type", () => {
    expect(assemble({ params: [], results: ["i32"] }, (c) => c.i32(-2147483648))()).toBe(-2147483648);
    expect(assemble({ params: [], results: ["i32"] }, (c) => c.i32(0xffffffff))()).toBe(-1);
    expect(assemble({ params: [], results: ["i64"] }, (c) => c.i64(-(2n ** 40n)))()).toBe(-(2 ** 40));
    expect(assemble({ params: [], results: ["f32"] }, (c) => c.f32(0.5))()).toBe(0.5);
    expect(assemble({ params: [], results: ["f64"] }, (c) => c.f64(Math.PI))()).toBe(Math.PI);
    const second = assemble({ params: [], results: ["i32"] }, (c) =>
      c.v128([1, 2, 3, 4]).v128([5, 6, 7, 8]).shuffle([7, 6, 1, 0]).lane("i32x4.extract_lane", 1),
    );
    expect(second()).toBe(7);
  });

  it("imports a shared memory and functions, and runs loads, stores and copies", () => {
    const builder = new ModuleBuilder();
    builder.importMemory({
      module: "env",
      name: "memory",
      shared: true,
      minimumPages: 1,
      maximumPages: 65536,
    });
    const twice = builder.importFunction("env", "twice", { params: ["f64"], results: ["f64"] });
    builder.function(
      { params: [], results: ["i32"] },
      (code) => {
        code.i32(64).i32(7).i32(16).memoryFill();
        code.i32(80).i32(64).i32(16).memoryCopy();
        code.i32(96).f64(21).call(twice).op("f32.demote_f64");
        code.memory("f32.store", 4);
        code.i32(80).memory("v128.load", 0, 4).lane("i32x4.extract_lane", 3);
      },
      "run",
    );
    const memory = new WebAssembly.Memory({ initial: 1, maximum: 2, shared: true });
    const env = { memory, twice: (x: number) => 2 * x };
    const { run } = new WebAssembly.Instance(new WebAssembly.Module(builder.toBytes()), { env }).exports;
    expect(typeof run === "function" && run()).toBe(0x07070707);
    expect(new Float32Array(memory.buffer)[25]).toBe(42);
  });

  it("refuses imports after functions and shared memories without a maximum", () => {
    const builder = new ModuleBuilder();
    builder.function({ params: [], results: [] }, () => {});
    expect(() => builder.importFunction("env", "late", { params: [], results: [] })).toThrow(/precede/);
    const limitless = { module: "env", name: "memory", shared: true, minimumPages: 1 };
    expect(() => builder.importMemory(limitless)).toThrow(/maximumPages/);
  });

  it("knows the opcode and arity of every vector instruction", () => {
    for (const op of Object.keys(VECTOR_OPS) as VectorOp[]) {
      if (op.includes("relaxed") && !detectFeatures().fma) continue;
      const valid = [1, 2, 3].filter((arity) => {
        const builder = new ModuleBuilder();
        const write = (code: FunctionBody): void => {
          for (let i = 0; i < arity; i++) code.v128([0, 0, 0, 0]);
          code.vector(op).op("drop");
        };
        builder.function({ params: [], results: [] }, write);
        return WebAssembly.validate(builder.toBytes());
      });
      expect(valid, op).toHaveLength(1);
    }
  });
});
