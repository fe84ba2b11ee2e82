import { afterAll, beforeAll, expect, test } from "vitest";
import { buildProgram } from "../../../test/support/interpreting.js";
import { describeWith, webGpu } from "../../../test/support/optional.js";
import { compileForGpu } from "../../compiler/compileForGpu.js";
import type { ShaderTile } from "../../compiler/wgsl/gemmTile.js";
import { lax, np, type Tensor } from "../../index.js";
import type { Attention } from "../../ir/ops.js";
import type { Program } from "../../ir/program.js";
import { at, bytesOf, range, type Shape, tensorType } from "../../ir/shape.js";
import { traceFlat } from "../../trace/builder.js";
import { OutOfMemoryError } from "../errors.js";
import { limitLoops } from "../loopLimit.js";
import { type HostTensor, hostTensor, numbersOf } from "../reference/hostTensor.js";
import { interpret } from "../reference/interpret.js";
import { createWebGpuEngine } from "./engine.js";
import { type Gpu, type GpuFacts, openGpu } from "./gpu.js";
import { Machine } from "./gpuMachine.js";
import { MachineProgram } from "./gpuProgram.js";
import { Run } from "./run.js";

/** What a program makes of float32 inputs on a GPU that says other things of itself. */
async function onGpu(
  { device, facts, largeTile }: Gpu,
  changes: Partial<GpuFacts>,
  program: Program,
  inputs: readonly HostTensor[],
): Promise<number[][]> {
  const own = { ...facts, ...changes };
  const machine = new Machine({ device, facts: own, largeTile }, Number.POSITIVE_INFINITY);
  const compiled = compileForGpu(program, {
    mesh: { axes: [] },
    attentionSteps: true,
    epilogues: !own.isSoftware,
    arenaPage: machine.memory.largest,
  });
  const place = ({ type }: HostTensor | { type: HostTensor["type"] }) =>
    machine.memory.allocate(bytesOf(type));
  const given = inputs.map((input) => {
    const block = place(input);
    const { buffer, byteOffset, byteLength } = input.data;
    machine.upload(block, new Uint8Array(buffer, byteOffset, byteLength));
    return block;
  });
  const outputs = program.outputs.map(place);
  await new Run(
    [new MachineProgram(compiled, machine, [0])],
    [{ inputs: given, outputs }],
    limitLoops(),
    0,
  ).start();
  const read = await machine.read(
    outputs.map((block, i) => ({ ...block, bytes: bytesOf(at(program.outputs, i).type) })),
  );
  machine.memory.destroy();
  return read.map(({ buffer }) => [...new Float32Array(buffer)]);
}

const softmax = (x: Tensor): Tensor => {
  const weights = np.exp(x.sub(np.max(x, -1, { keepdims: true })));
  return weights.div(np.sum(weights, -1, { keepdims: true }));
};

const norm = (x: Tensor, scale: Tensor): Tensor[] => {
  const centred = x.sub(np.mean(x, -1, { keepdims: true }));
  const inverse = lax.rsqrt(np.mean(centred.mul(centred), -1, { keepdims: true }).add(1e-6));
  return [centred.mul(inverse).mul(scale), inverse];
};

/** Programs with the shapes of their inputs; what decides is how rows and points are divided between threads. */
const cases: readonly [string, (...xs: Tensor[]) => readonly Tensor[], readonly Shape[]][] = [
  ["points in vectors", (x) => [x.mul(x).add(1), x.div(x.add(7))], [[256, 256]]],
  ["points of which the last vectors do not fill a workgroup", (x, y) => [x.sub(y)], [[129, 516], [516]]],
  ["rows of one subgroup or less", (x) => [softmax(x)], [[6, 64]]],
  ["rows of several subgroups, of which the last workgroup has few", (x) => [softmax(x)], [[3, 512]]],
  ["rows with values of their own", norm, [[5, 128], [128]]],
  [
    "long rows in a loop of vectors",
    (x) => [np.sum(x.mul(x), -1), np.max(x, -1), np.min(x, -1)],
    [[2, 65_536]],
  ],
  ["rows that are no vectors", (x) => [softmax(x)], [[4, 63]]],
];

/** Products with what follows them, the shapes of their inputs, and the steps that they take. */
const products: readonly [string, (...xs: Tensor[]) => readonly Tensor[], readonly Shape[], string][] = [
  [
    "bias and rectifier",
    (x, w, b) => [np.maximum(np.matmul(x, w).add(b ?? 0), 0)],
    [[40, 256], [256, 36], [36]],
    "gemm",
  ],
  [
    "an activation that is long, and its argument",
    (x, w, b) => {
      const sum = np.matmul(x, w).add(b ?? 0);
      return [sum, sum.mul(np.tanh(sum.mul(sum).add(1)))];
    },
    [[40, 256], [256, 36], [36]],
    "gemm",
  ],
  [
    "rows with factors of their own, and a residual",
    (x, w, s, r) => [
      np
        .matmul(x, w)
        .mul(s ?? 0)
        .add(r ?? 0),
    ],
    [
      [2, 33, 256],
      [256, 36],
      [2, 33, 1],
      [2, 33, 36],
    ],
    "gemm",
  ],
  [
    "columns that are no vectors",
    (x, w, b) => [np.matmul(x, w).sub(b ?? 0)],
    [[33, 256], [256, 37], [37]],
    "gemm",
  ],
  ["few rows", (x, w, b) => [np.matmul(x, w).mul(b ?? 0)], [[5, 64], [64, 40], [40]], "gemm"],
  [
    "a product that is a result, too",
    (x, w) => {
      const product = np.matmul(x, w);
      return [product, np.tanh(product)];
    },
    [
      [40, 256],
      [256, 36],
    ],
    "gemm",
  ],
  [
    "a product that is also read transposed",
    (x, w) => {
      const product = np.matmul(x, w);
      return [product.add(product.transpose())];
    },
    [
      [36, 256],
      [256, 36],
    ],
    "gemm kernel",
  ],
];

const heads = (batch: number, length: number, number: number, size: number): Shape => [
  batch,
  length,
  number,
  size,
];

/** Attentions with the shapes of query and key: shared key heads, blocks that are not full, features that are not. */
const attentions: readonly [string, Partial<Attention>, Shape, Shape][] = [
  ["causal, with shared key heads", { causal: true }, heads(2, 40, 4, 16), heads(2, 40, 2, 16)],
  ["of all keys", {}, heads(1, 33, 2, 16), heads(1, 50, 2, 16)],
  ["in a window", { window: [9, 3] }, heads(1, 70, 1, 20), heads(1, 70, 1, 20)],
];

/** Limits of a GPU whose buffers hold half of the largest of some tensors. */
function dividing({ facts: { limits } }: Gpu, shapes: readonly Shape[]): GpuFacts["limits"] {
  const largest = Math.max(...shapes.map((shape) => bytesOf(tensorType("float32", shape))));
  return { ...limits, maxStorageBufferBindingSize: 256 * Math.ceil(largest / 512) };
}

describeWith(webGpu, "kernels of a hardware GPU", () => {
  let gpu: Gpu;
  beforeAll(async () => {
    gpu = await openGpu();
  });
  afterAll(() => gpu.device.destroy());

  for (const [name, fn, shapes] of cases) {
    test(`${name}, with subgroups, without, and with tensors in several buffers`, async () => {
      const inputs = shapes.map((shape, i) => {
        const size = shape.reduce((product, dim) => product * dim, 1);
        return hostTensor(
          "float32",
          shape,
          range(size).map((j) => Math.sin(j * 12.9898 + i) * 3),
        );
      });
      const types = shapes.map((shape) => tensorType("float32", shape));
      const { program } = traceFlat((args) => fn(...args), types);
      const expected = interpret(program, inputs).map(numbersOf);
      const { subgroupSize } = gpu.facts;
      const sorts = [{ subgroupSize }, { subgroupSize: undefined }, { limits: dividing(gpu, shapes) }];
      for (const changes of sorts) {
        const got = await onGpu(gpu, { isSoftware: false, ...changes }, program, inputs);
        for (const [o, values] of expected.entries()) {
          const worst = Math.max(...values.map((value, j) => Math.abs(value - (got[o]?.[j] ?? Number.NaN))));
          const scale = Math.max(...values.map(Math.abs));
          expect(worst / scale).toBeLessThan(2e-6);
        }
      }
    });
  }

  for (const [name, fn, shapes, expectedSteps] of products) {
    test(`a product followed by ${name}`, async () => {
      const inputs = shapes.map((shape, i) => {
        const size = shape.reduce((product, dim) => product * dim, 1);
        return hostTensor(
          "float32",
          shape,
          range(size).map((j) => Math.sin(j * 12.9898 + i)),
        );
      });
      const types = shapes.map((shape) => tensorType("float32", shape));
      const { program } = traceFlat((args) => fn(...args), types);
      const { compiled } = compileForGpu(program, { mesh: { axes: [] }, epilogues: true });
      expect(compiled.steps.map(({ op }) => op).join(" ")).toBe(expectedSteps);
      // A small tile that has all that the large ones have: a software adapter compiles those for many seconds.
      const largeTile: ShaderTile = { m: 16, n: 16, k: 4, threadM: 4, threadN: 4 };
      const expected = interpret(program, inputs).map(numbersOf);
      for (const own of [gpu.facts.limits, dividing(gpu, shapes)]) {
        const limits = { ...own, maxComputeWorkgroupStorageSize: 2048 };
        const got = await onGpu({ ...gpu, largeTile }, { isSoftware: false, limits }, program, inputs);
        for (const [o, values] of expected.entries()) {
          const worst = Math.max(...values.map((value, j) => Math.abs(value - (got[o]?.[j] ?? Number.NaN))));
          expect(worst / Math.max(...values.map(Math.abs))).toBeLessThan(3e-6);
        }
      }
    });
  }

  test("operands in more buffers than a shader can use are refused with both numbers", async () => {
    const x = hostTensor("float32", [1024], range(1024));
    const { program } = traceFlat(
      ([a = np.zeros([]), b = a, c = a]) => [a.add(b).mul(c)],
      [x.type, x.type, x.type],
    );
    const limits = {
      ...gpu.facts.limits,
      maxStorageBufferBindingSize: 4096,
      maxStorageBuffersPerShaderStage: 4,
    };
    await expect(onGpu(gpu, { limits }, program, [x, x, x])).rejects.toThrow(
      /add mul.* lie in 4 buffers, but a shader of .* can use 3 of at most 4096 bytes: release/,
    );
    const enough = { ...limits, maxStorageBuffersPerShaderStage: 5 };
    const [got] = await onGpu(gpu, { limits: enough }, program, [x, x, x]);
    expect(got).toEqual(range(1024).map((i) => 2 * i * i));
  });

  test("tensors of more than 4 GiB are refused with their type and both numbers", async () => {
    const engine = createWebGpuEngine();
    await engine.opened;
    const { program } = traceFlat(
      ([x = np.zeros([])]) => [np.broadcastTo(x, [2 ** 30])],
      [tensorType("float32", [])],
    );
    const executable = engine.compile(program, { mesh: { axes: [] }, devices: [0] });
    const input = engine.upload(tensorType("float32", []), Float32Array.of(1), 0);
    const run = async () => engine.download(at(at(executable.execute([[input]]), 0), 0));
    await expect(run()).rejects.toThrow(OutOfMemoryError);
    await expect(run()).rejects.toThrow(
      /f32\[1073741824\] of 4294967296 bytes is too large.* at most 4294967040/,
    );
    expect(await engine.download(input)).toEqual(Float32Array.of(1));
    await engine.close();
  });

  test("products of more batches than a grid has workgroups are computed in one of two dims", async () => {
    const batches = 65_536 + 7;
    const x = hostTensor(
      "float32",
      [batches, 1, 2],
      range(2 * batches).map((i) => i % 1000),
    );
    const { program } = traceFlat(([a = np.zeros([])]) => [np.matmul(a, np.swapaxes(a, 1, 2))], [x.type]);
    const expected = interpret(program, [x]).map(numbersOf);
    for (const isSoftware of [true, false])
      expect(await onGpu(gpu, { isSoftware }, program, [x])).toEqual(expected);
  });

  test("functions are exact for small arguments, too", async () => {
    const x = hostTensor(
      "float32",
      [2000],
      range(2000).map((i) => Math.fround((i % 2 === 0 ? -0.5 : 0.5) * Math.exp(-0.008 * i))),
    );
    const functions = [
      [lax.log1p, Math.log1p],
      [lax.expm1, Math.expm1],
      [lax.tanh, Math.tanh],
      [lax.sin, Math.sin],
      [lax.asinh, Math.asinh],
      [lax.atan, Math.atan],
    ] as const;
    const { program } = traceFlat(
      ([a = np.zeros([])]) => functions.map(([onTensors]) => onTensors(a)),
      [x.type],
    );
    const got = await onGpu(gpu, { isSoftware: false }, program, [x]);
    for (const [o, [, exact]] of functions.entries()) {
      const errors = numbersOf(x).map((value, i) => Math.abs((got[o]?.[i] ?? Number.NaN) / exact(value) - 1));
      expect(Math.max(...errors), exact.name).toBeLessThan(8 * 2 ** -23);
    }
  });

  test("quotients by a value of the row are right also where that is huge, zero or infinite", async () => {
    const rows = [
      (j: number) => (j % 2 === 0 ? 1 : -1),
      (j: number) => (j === 77 ? Number.POSITIVE_INFINITY : j),
      (j: number) => 1e35 * ((j % 7) + 1),
      (j: number) => (j % 3 === 0 ? 0 : j),
    ];
    const x = hostTensor(
      "float32",
      [4, 512],
      rows.flatMap((row) => range(512).map(row)),
    );
    const { program } = traceFlat(
      ([a = np.zeros([])]) => [a.div(np.sum(a, -1, { keepdims: true })), softmax(a)],
      [x.type],
    );
    const expected = interpret(program, [x]).map(numbersOf);
    const got = await onGpu(gpu, { isSoftware: false, fusesProducts: true }, program, [x]);
    expected.forEach((values, o) => {
      values.forEach((value, j) => {
        const other = got[o]?.[j] ?? 0;
        if (!Number.isFinite(value)) expect(other).toBe(value);
        // Adapters may take numbers below 2^-126 for 0.
        else expect(Math.abs(other - value)).toBeLessThanOrEqual(3e-6 * Math.abs(value) + 2 ** -126);
      });
    });
  });

  test("extremes of rows are NaN where an element is, whatever its sign, and tell zeros apart", async () => {
    const special = [0x7fc00000, 0xffc00000, 0xff800001, 0x7f800000, 0xff800000, 0x80000000];
    const words = Uint32Array.from(range(special.length * 256), () => 0x80000000);
    special.forEach((word, row) => {
      words[256 * row + 37 * row] = word;
    });
    // A row of zeros of both signs.
    words[256 * 5 + 3] = 0;
    const data = new Float32Array(words.buffer);
    const type = tensorType("float32", [special.length, 256]);
    const { program } = traceFlat(([a = np.zeros([])]) => [np.max(a, -1), np.min(a, -1)], [type]);
    const [largest = [], smallest = []] = await onGpu(gpu, { isSoftware: false }, program, [{ type, data }]);
    const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;
    expect(largest).toEqual([nan, nan, nan, infinity, -0, 0]);
    expect(smallest).toEqual([nan, nan, nan, -0, -infinity, -0]);
  });

  for (const [name, params, query, key] of attentions) {
    test(`attention ${name}, and its cotangents`, async ({ skip }) => {
      if ((gpu.facts.subgroupSize ?? 1) < 4) skip();
      const all = { scale: 0.3, causal: false, ...params };
      const types = [query, key, key].map((shape) => tensorType("float32", shape));
      const logSums = tensorType("float32", [query[0] ?? 0, query[2] ?? 0, query[1] ?? 0]);
      const program = buildProgram([...types, at(types, 0), logSums], (emit, q, k, v, ct, sumsCt) => {
        if (!q || !k || !v || !ct || !sumsCt) return [];
        const [mixed, sums] = emit("attention", [q, k, v], all);
        if (!mixed || !sums) return [];
        const backward = { ...all, extras: ["logSumsCotangent"] as const };
        return [mixed, sums, ...emit("attentionBackward", [q, k, v, sums, ct, mixed, sumsCt], backward)];
      });
      const inputs = program.inputs.map(({ type }, i) => {
        const size = type.shape.reduce((product, dim) => product * dim, 1);
        return hostTensor(
          "float32",
          type.shape,
          range(size).map((j) => Math.sin(j * 7.31 + i)),
        );
      });
      const expected = interpret(program, inputs).map(numbersOf);
      const got = await onGpu(gpu, { isSoftware: false }, program, inputs);
      for (const [o, values] of expected.entries()) {
        const worst = Math.max(...values.map((value, j) => Math.abs(value - (got[o]?.[j] ?? Number.NaN))));
        expect(worst, `result ${o}`).toBeLessThan(5e-6);
      }
      const forward = buildProgram(types, (emit, q, k, v) =>
        q && k && v ? emit("attention", [q, k, v], all) : [],
      );
      const limits = dividing(gpu, [query]);
      const divided = await onGpu(gpu, { isSoftware: false, limits }, forward, inputs.slice(0, 3));
      expect(divided).toEqual(got.slice(0, 2));
    });
  }

  test("intermediate values that no buffer of the GPU could hold together lie in several", async () => {
    const x = hostTensor(
      "float32",
      [64, 64],
      range(64 * 64).map((j) => Math.sin(j)),
    );
    // Products are steps of their own, and their operands stay alive until the end.
    const { program } = traceFlat(
      ([a = np.zeros([])]) => {
        const powers = [a];
        for (let i = 0; i < 6; i++) powers.push(np.matmul(powers.at(-1) ?? a, a).mul(0.1));
        return [powers.reduceRight((sum, power) => np.matmul(sum, power).mul(0.1))];
      },
      [x.type],
    );
    const limits = { ...gpu.facts.limits, maxStorageBufferBindingSize: 40_960 };
    const { compiled } = compileForGpu(program, { mesh: { axes: [] }, arenaPage: 40_960 });
    expect(compiled.arenaPages?.length).toBeGreaterThan(2);
    expect(Math.max(...(compiled.arenaPages ?? []))).toBeLessThanOrEqual(40_960);
    const [expected = []] = interpret(program, [x]).map(numbersOf);
    const [got = []] = await onGpu(gpu, { limits }, program, [x]);
    const worst = Math.max(...expected.map((value, j) => Math.abs(value - (got[j] ?? Number.NaN))));
    expect(worst / Math.max(...expected.map(Math.abs))).toBeLessThan(1e-5);
    // Nor does it matter that a single one of them lies in several.
    const divided = { ...limits, maxStorageBufferBindingSize: 8192 };
    expect(await onGpu(gpu, { limits: divided }, program, [x])).toEqual([got]);
  });
});
