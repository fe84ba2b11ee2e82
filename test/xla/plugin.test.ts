import { mkdtempSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, describe, expect, test } from "vitest";
import { OutOfMemoryError } from "../../src/engines/errors.js";
import { importEngine, openEngine } from "../../src/engines/table.js";
import { XlaError, XlaPluginError } from "../../src/engines/xla/errors.js";
import { createXlaEngine, flagsOf } from "../../src/engines/xla/openXla.js";
import { cacheFolder, ExecutableCache } from "../../src/engines/xla/pjrt/cache.js";
import { PjrtClient } from "../../src/engines/xla/pjrt/client.js";
import { compileOptions } from "../../src/engines/xla/pjrt/compileOptions.js";
import { locatePlugin } from "../../src/engines/xla/pjrt/locate.js";
import { Plugin } from "../../src/engines/xla/pjrt/plugin.js";
import type { DeviceBuffer, Engine } from "../../src/ir/engine.js";
import { DisposedError } from "../../src/ir/errors.js";
import { at, range, tensorType } from "../../src/ir/shape.js";
import * as lax from "../../src/lax/index.js";
import * as np from "../../src/numpy/index.js";
import { traceFlat } from "../../src/trace/builder.js";
import type { Tensor } from "../../src/trace/tensor.js";
import { buildProgram } from "../support/interpreting.js";
import { bothOf, compiler, describeWith, koffi as koffiPackage } from "../support/optional.js";
import { buildFakePlugin } from "./fakePlugin.js";

const folder = mkdtempSync(join(tmpdir(), "shardwise-xla-"));

const type = tensorType("float32", [3]);
const single = { axes: [] };
const both = buildProgram([type, type], (_emit, x, y) => [x, y]);
const values = (...numbers: number[]) => Float32Array.from(numbers);

describeWith(bothOf(compiler, koffiPackage), "a PJRT plug-in", ([, koffi]) => {
  const fake = buildFakePlugin(koffi);
  const engine: Engine = createXlaEngine({ plugin: fake.path, cache: false });
  const upload = (numbers: readonly number[], device = 0) => engine.upload(type, values(...numbers), device);
  const compile = (name: string, donated?: readonly boolean[]) =>
    engine.compile(both, { mesh: single, devices: [0], name, ...(donated ? { donated } : {}) });
  const run = (name: string): DeviceBuffer[] => {
    const [x, executable] = [upload([1, 2, 3]), compile(name)];
    const outputs = executable.execute([[x], [x]]).flat();
    executable.release();
    engine.release(x);
    return outputs;
  };

  afterAll(async () => {
    await engine.close();
    expect(fake.live()).toEqual({ buffers: 0, events: 0, programs: 0, errors: 0 });
  });

  test("tells what it runs on", () => {
    expect(engine.numDevices).toBe(2);
    expect(engine.info?.()).toMatchObject({ engine: "xla", deviceKind: "Fake", memoryBytes: 2 ** 20 });
  });

  test("holds exactly what was uploaded and made, and gives it back", async () => {
    const before = fake.live();
    const [x, y] = [upload([1, 2, 3]), upload([4, 5, 6], 0)];
    const executable = compile("pair", [true, false]);
    const [[a] = [], [b] = []] = executable.execute([[x], [y]]);
    if (!a || !b) throw new Error("two results");
    expect(await engine.download(a)).toEqual(values(1, 2, 3));
    expect(await engine.download(b)).toEqual(values(4, 5, 6));
    // One input was donated; the other and both results are there.
    expect(fake.live().buffers).toBe(before.buffers + 3);
    expect(() => executable.execute([[x], [y]])).toThrow(DisposedError);
    for (const buffer of [y, a, b]) engine.release(buffer);
    executable.release();
    await expect.poll(() => fake.live(), { timeout: 60_000 }).toEqual(before);
  });

  test("runs many programs in order without waiting, and never blocks the main thread", async () => {
    const executable = compile("chain", [true, false]);
    const other = upload([0, 0, 0]);
    let [buffer, turns] = [upload([7, 8, 9]), 0];
    let turn = setImmediate(function again() {
      turns++;
      turn = setImmediate(again);
    });
    for (const _ of range(100)) {
      const [[next] = [], [copy] = []] = executable.execute([[buffer], [other]]);
      if (!next || !copy) throw new Error("two results");
      engine.release(copy);
      buffer = next;
    }
    expect(await engine.download(buffer)).toEqual(values(7, 8, 9));
    clearImmediate(turn);
    // Runs wait for their turn on the main thread, which goes on in between.
    expect(turns).toBeGreaterThan(20);
    for (const one of [buffer, other]) engine.release(one);
    executable.release();
  });

  test("is called a few times for each run, however many nobody waits for", async () => {
    const quick = buildFakePlugin(koffi, { delay: 0 });
    if (!quick) return;
    const own = createXlaEngine({ plugin: quick.path, cache: false });
    const options = { mesh: single, devices: [0], name: "chain", donated: [true, true] };
    const executable = own.compile(both, options);
    const step = (row: readonly DeviceBuffer[]) => executable.execute(row.map((buffer) => [buffer])).flat();
    let row = step([1, 2].map((n) => own.upload(type, values(n, n, n), 0)));
    await own.ready(at(row, 0));
    const [before, rounds] = [quick.calls(), 200];
    for (const _ of range(rounds)) row = step(row);
    await own.ready(at(row, 0));
    // Starts, gives two inputs back, asks whether it is over and how, gives its event back; a callback where a start
    // had to wait, and what was under way before.
    expect(quick.calls() - before).toBeLessThanOrEqual(7 * rounds + 64);
    for (const buffer of row) own.release(buffer);
    executable.release();
    await own.close();
    expect(quick.live()).toEqual({ buffers: 0, events: 0, programs: 0, errors: 0 });
  });

  test("copies between devices and on one", async () => {
    const x = upload([1, 2, 3]);
    const copies = [0, 1].map((device) => engine.transfer(x, device));
    engine.release(x);
    for (const copy of copies) {
      expect(await engine.download(copy)).toEqual(values(1, 2, 3));
      engine.release(copy);
    }
  });

  test("says where a program that does not compile is wrong", async () => {
    const wrong = buildProgram([type, type], (emit, x, y) => [at(emit("add", [x, y], {}), 0), y]);
    const executable = engine.compile(wrong, { mesh: single, devices: [0], name: "bad" });
    const x = upload([1, 2, 3]);
    const outputs = executable.execute([[x], [x]]).flat();
    for (const output of outputs) {
      const error = await engine.ready(output).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(XlaError);
      expect(String(error)).toMatch(/use of value '%2' is wrong\nin %\d+:f32\[3\] = add/);
    }
    for (const buffer of [x, ...outputs]) engine.release(buffer);
    executable.release();
  });

  test("has attention compiled in one piece, and as products where that does not compile", async () => {
    const heads = tensorType("bfloat16", [1, 4, 2, 8]);
    const attend = buildProgram([heads, heads, heads], (emit, q, k, v) =>
      emit("attention", [q, k, v], { scale: 0.5, causal: true }),
    );
    const own = createXlaEngine({ plugin: fake.path, cache: false });
    const warnings: string[] = [];
    const listen = (warning: Error) => warnings.push(warning.message);
    process.on("warning", listen);
    for (const [name, attention] of [
      ["fused", "fused"],
      ["unfused", "plain"],
    ]) {
      const executable = own.compile(attend, { mesh: single, devices: [0], name: name ?? "" });
      const x = own.upload(heads, new Uint16Array(64), 0);
      const outputs = executable.execute([[x], [x], [x]]).flat();
      for (const output of outputs) await own.ready(output);
      expect(own.info?.()).toMatchObject({ attention });
      for (const buffer of [x, ...outputs]) own.release(buffer);
      executable.release();
    }
    await own.close();
    process.off("warning", listen);
    expect(warnings).toEqual([expect.stringMatching(/products and a softmax are used: .*__cudnn\$fmha/)]);
    expect(createXlaEngine({ plugin: fake.path, cache: false, attention: "plain" }).info?.()).toMatchObject({
      attention: "plain",
    });
  });

  test("gets large loops unrolled, unless they do not compile or the user has settings", async () => {
    const large = tensorType("float32", [2, 1 << 24]);
    const sines = (xs: Tensor) => lax.scan((c, x: Tensor) => [c, np.sin(x)], null, xs)[1];
    const { program } = traceFlat((args) => [sines(sines(at(args, 0)))], [large]);
    const warnings: string[] = [];
    const listen = (warning: Error) => warnings.push(warning.message);
    process.on("warning", listen);
    for (const [name, flags, said] of [
      ["straight", {}, 0],
      ["older", {}, 0],
      ["looped", { xla_gpu_autotune_level: 0 }, 0],
      ["looped", {}, 1],
      ["looped", {}, 1],
    ] as const) {
      const own = createXlaEngine({ plugin: fake.path, cache: false, flags });
      own.compile(program, { mesh: single, devices: [0], name });
      await own.close();
      await new Promise((resolve) => setImmediate(resolve));
      expect(warnings.length, name).toBe(said);
      warnings.length = 0;
    }
    process.off("warning", listen);
  });

  test("reports what goes wrong at the start and at the end of a run", async () => {
    for (const [name, kind] of [
      ["refused", XlaError],
      ["oom", OutOfMemoryError],
    ] as const) {
      for (const output of run(name)) {
        await expect(engine.ready(output)).rejects.toThrow(kind);
        engine.release(output);
      }
    }
  });

  test("takes what is donated to a run that fails, and nothing else", async () => {
    const executable = compile("refused", [true, false]);
    const [x, y] = [upload([1, 2, 3]), upload([4, 5, 6])];
    const outputs = executable.execute([[x], [y]]).flat();
    for (const output of outputs) await expect(engine.ready(output)).rejects.toThrow(XlaError);
    await expect(engine.download(x)).rejects.toThrow(/was donated/);
    expect(await engine.download(y)).toEqual(values(4, 5, 6));
    for (const buffer of [y, ...outputs]) engine.release(buffer);
    executable.release();
  });

  test("refuses what the device has no room for and goes on", async () => {
    const large = tensorType("float32", [2 ** 18 + 1]);
    const attempt = () => engine.upload(large, new Float32Array(2 ** 18 + 1), 0);
    expect(attempt).toThrow(OutOfMemoryError);
    const [x] = run("after");
    expect(await engine.download(x ?? upload([]))).toEqual(values(1, 2, 3));
  });

  test("runs its own replicas of programs that other processes run too", async () => {
    const own = createXlaEngine({ plugin: fake.path, cache: false, pretendDevices: 2 });
    expect([own.numDevices, own.process, own.isAddressable(0), own.isAddressable(1)]).toEqual([
      2,
      { index: 0, count: 2 },
      true,
      false,
    ]);
    const mesh = { axes: [{ name: "x", size: 2 }] };
    const sum = buildProgram([type], (emit, x) => emit("psum", [x], mesh));
    const executable = own.compile(sum, { mesh, devices: [0, 1], name: "both" });
    const x = own.upload(type, values(1, 2, 3), 0);
    const [row = []] = executable.execute([[x]]);
    expect(row).toHaveLength(1);
    expect(await own.download(at(row, 0))).toEqual(values(1, 2, 3));
    expect(() => own.upload(type, values(1, 2, 3), 1)).toThrow(
      "device 1 is not in process 0, which has 0 … 0 of 2",
    );
    const elsewhere = { mesh: single, devices: [1], name: "other" };
    expect(() => own.compile(both, elsewhere)).toThrow("process 0 of 2 holds none of the devices 1");
    expect(() => own.compile(both, { ...elsewhere, devices: [2] })).toThrow("use 0 … 1");
    for (const buffer of [x, ...row]) own.release(buffer);
    executable.release();
    await own.close();
    expect(() => createXlaEngine({ plugin: fake.path, pretendDevices: 1.5 })).toThrow(
      "an integer of at least 1",
    );
  });

  test("opens ahead, on another thread, what the engine then uses", async () => {
    const other = buildFakePlugin(koffi);
    process.env.SHARDWISE_PJRT_PLUGIN = other.path;
    await importEngine("xla");
    await importEngine("xla");
    const own = openEngine("xla", { numDevices: 1 });
    expect([own.numDevices, other.clients()]).toEqual([2, 1]);
    await own.close();
    delete process.env.SHARDWISE_PJRT_PLUGIN;
  });

  test("stays loaded while it is used, whatever is collected", async () => {
    setFlagsFromString("--expose-gc");
    const collect: () => void = runInNewContext("gc");
    const other = createXlaEngine({ plugin: buildFakePlugin(koffi, { minor: 116 }).path, cache: false });
    for (const _ of range(3)) {
      await new Promise((resolve) => setImmediate(resolve));
      collect();
    }
    const x = other.upload(tensorType("float32", [40_000]), new Float32Array(40_000).fill(7), 0);
    expect((await other.download(x))[39_999]).toBe(7);
    other.release(x);
    await other.close();
  });

  test("throws where native code would crash on what was given back", async () => {
    const client = PjrtClient.open(new Plugin(koffi, fake.path), {}, { flags: {}, cache: undefined });
    const buffer = client.upload(type, values(1, 2, 3), 0);
    client.destroy(buffer);
    expect(() => client.destroy(buffer)).toThrow(/f32\[3\] was used after its release/);
    await expect(client.download(buffer, type)).rejects.toThrow(DisposedError);
    await client.close();
  });

  test("keeps compiled programs on disk, and compiles those anew that cannot be read", async () => {
    const cache = new ExecutableCache(join(folder, "programs"));
    const client = PjrtClient.open(new Plugin(koffi, fake.path), {}, { flags: {}, cache });
    const text = "module @kept {\n  func.func public @main(%0: tensor<3xf32>) -> (tensor<3xf32>) {\n";
    const key = cache.key(text, compileOptions([0]), "0.115", "fake 1", "Fake");
    await cache.write(key, Buffer.from("broken"));
    (await client.compile(text, [0])).destroy();
    expect(await cache.read(key)).toBeUndefined();
    await cache.write(key, Buffer.from(text));
    (await client.compile(text, [0])).destroy();
    expect(readdirSync(cache.folder)).toEqual([key]);
  });

  test("writes what took long to compile to disk beside its first run, even if that is its last", async () => {
    const cache = new ExecutableCache(join(folder, "slow"));
    const client = PjrtClient.open(new Plugin(koffi, fake.path), {}, { flags: {}, cache });
    const text = "module @slow {\n  func.func public @main(%0: tensor<3xf32>) -> (tensor<3xf32>) {\n";
    (await client.compile(text, [0])).destroy();
    await client.close();
    const key = cache.key(text, compileOptions([0]), "0.115", "fake 1", "Fake");
    expect(Buffer.from((await cache.read(key)) ?? []).toString()).toBe(text);
  });

  test("of another version, or no plug-in at all, is refused with what to do", () => {
    const old = buildFakePlugin(koffi, { minor: 3 });
    expect(() => createXlaEngine({ plugin: old?.path ?? "" })).toThrow(/version 0\.3 of the PJRT API/);
    const nothing = join(folder, "nothing.so");
    writeFileSync(nothing, "no library");
    expect(() => createXlaEngine({ plugin: nothing })).toThrow(XlaPluginError);
  });
});

describe("compiled programs on disk", () => {
  test("are whole whenever they are read, while several engines write the same one", async () => {
    const caches = range(2).map(() => new ExecutableCache(join(folder, "shared")));
    // Compilers need not give the same bytes twice.
    const contents = [1, 2, 3, 4].map((value) => Buffer.alloc(value << 20, value));
    const writes = contents.map((content, i) => caches[i % 2]?.write("key", content));
    let isOver = false;
    const over = Promise.all(writes).then(() => {
      isOver = true;
    });
    const seen: (Uint8Array | undefined)[] = [];
    while (!isOver) seen.push(await caches[0]?.read("key"));
    await over;
    seen.push(await caches[1]?.read("key"));
    expect(seen.at(-1)).toBeDefined();
    for (const bytes of seen) if (bytes) expect(contents.some((content) => content.equals(bytes))).toBe(true);
    expect(readdirSync(join(folder, "shared"))).toEqual(["key"]);
  });
});

describe("finding a plug-in", () => {
  test("follows SHARDWISE_PJRT_PLUGIN, and says what to install where there is none", () => {
    const file = join(folder, "some.so");
    writeFileSync(file, "");
    expect(locatePlugin({ SHARDWISE_PJRT_PLUGIN: file })).toBe(file);
    expect(() => locatePlugin({ SHARDWISE_PJRT_PLUGIN: "/nowhere.so" })).toThrow(/no such file: install jax/);
    expect(() => locatePlugin({ SHARDWISE_PYTHON: "/no/python" })).toThrow(/does not run here; install jax/);
  });

  test("settings are read from text", () => {
    expect(flagsOf("xla_a=true, xla_b=3,xla_c=text")).toEqual({ xla_a: true, xla_b: 3, xla_c: "text" });
    expect(() => flagsOf("xla_a")).toThrow(/"xla_a" is not a setting/);
    expect(cacheFolder({ SHARDWISE_XLA_CACHE: "off" })).toBeUndefined();
    expect(cacheFolder({ XDG_CACHE_HOME: "/c" })).toBe("/c/shardwise/xla");
  });

  test("options of a compilation are what XLA's own writer gives", () => {
    // 17 bytes are those of one replica without an assignment: field 3 { 1: −1, 4: 1, 5: 1 }.
    const one = [0x08, ...range(9).map(() => 0xff), 0x01, 0x20, 0x01, 0x28, 0x01];
    const assignment = [0x4a, 0x09, 0x08, 0x01, 0x10, 0x01, 0x1a, 0x03, 0x0a, 0x01, 0x00];
    expect([...compileOptions([0])]).toEqual([0x1a, one.length + assignment.length, ...one, ...assignment]);
    const flag = [0x3a, 0x0b, 0x0a, 0x05, ...Buffer.from("xla_a"), 0x12, 0x02, 0x10, 0x01];
    expect([...compileOptions([0], { xla_a: true })].slice(-flag.length)).toEqual(flag);
    expect(() => compileOptions([])).toThrow(/devices must be integers of at least 0, not \[\]/);
  });
});
