import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { complex, lax, Mesh, np, type Tensor, tree } from "shardwise";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { DType } from "../../../ir/dtype.js";
import { TreeError } from "../../../ir/errors.js";
import { Partitioned } from "../../../nn/modules/partitioned.js";
import { Tensor as HostTensor } from "../../../trace/tensor.js";
import { exportSafetensors, importSafetensors } from "./exchange.js";
import { readSafetensors, writeSafetensors } from "./safetensors.js";

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "shardwise-exchange-"));
});
afterEach(() => rm(root, { recursive: true, force: true }));

const bitsOf = async (values: unknown) =>
  Promise.all(
    tree.flattenWithPath(values).map(async ({ path, leaf }) => {
      const tensor = leaf as Tensor;
      const { buffer, byteOffset, byteLength } = await tensor.storage("test").download("test");
      return [path, tensor.dtype, tensor.shape, [...new Uint8Array(buffer, byteOffset, byteLength)]];
    }),
  );

describe("plain safetensors files", () => {
  test("hold the tensors of a tree under dotted names and give them back", async () => {
    const path = join(root, "model.safetensors");
    const params = {
      w: new Partitioned(np.arange(32).reshape(8, 4), ["model", null]),
      bias: np.array([1.5, -0, Number.POSITIVE_INFINITY, 4], "bfloat16"),
    };
    await exportSafetensors(path, params, { metadata: { format: "pt" } });
    expect(await bitsOf(await importSafetensors(path, params))).toEqual(await bitsOf(params));
    const mesh = Mesh.create({ model: 2 });
    const placed = await importSafetensors(path, params, { mesh });
    expect(placed.w.value.storage("test").placement.mesh).toBe(mesh);
    await expect(importSafetensors(path, { other: np.ones([2]) })).rejects.toThrow(
      '"other" (f32[2]) is not in the file',
    );
  });

  test("may hold tensors of other types, as those of PyTorch do, which can be left out", async () => {
    const path = join(root, "positions.safetensors");
    const header =
      '{"positions":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"scale":{"dtype":"F32","shape":[],"data_offsets":[8,12]}}';
    const bytes = new Uint8Array(8 + header.length + 12);
    new DataView(bytes.buffer).setBigUint64(0, BigInt(header.length), true);
    bytes.set(new TextEncoder().encode(header), 8);
    new DataView(bytes.buffer).setFloat32(bytes.length - 4, 1.5, true);
    await writeFile(path, bytes);
    const unexpected = (name: string) => name === "positions";
    const { scale } = await importSafetensors(path, { scale: np.array(0) }, { unexpected });
    expect(await scale.item()).toBe(1.5);
    await expect(importSafetensors(path, { positions: np.zeros([1], "int32") })).rejects.toThrow(
      '"positions" is I64[1] in the file but must be int32[1]',
    );
    await expect(readSafetensors(path)).rejects.toThrow(
      'byte 127: tensor "positions" is I64, which tensors do not support',
    );
  });

  test("hold complex64 as C64, whole and on a mesh, and no wider complex numbers", async () => {
    const path = join(root, "complex.safetensors");
    const z = lax.complex(np.arange(8, "float32").reshape(4, 2), np.array(-0.5));
    const params = { z: new Partitioned(z, ["model", null]), one: np.array(complex(1, -2)) };
    await exportSafetensors(path, params, { transpose: (name) => name === "z" });
    const { tensors } = await readSafetensors(path);
    expect(tensors.get("one")).toEqual({ dtype: "complex64", shape: [], data: Float32Array.of(1, -2) });
    expect(tensors.get("z")?.shape).toEqual([2, 4]);
    expect([...(tensors.get("z")?.data.slice(0, 4) ?? [])]).toEqual([0, -0.5, 2, -0.5]);
    for (const options of [{}, { mesh: Mesh.create({ model: 2 }) }]) {
      const got = await importSafetensors(path, params, { ...options, transpose: (name) => name === "z" });
      expect(got.z.value.dtype).toBe("complex64");
      expect(await got.z.value.js()).toEqual(await z.js());
      expect(await got.one.js()).toEqual(complex(1, -2));
      const [real] = got.z.value.parts ?? [];
      expect(real?.storage("test").placement.mesh.axes.length).toBe("mesh" in options ? 1 : 0);
    }
    const wide = { z: np.array(complex(1, -2), "complex128") };
    await expect(exportSafetensors(path, wide)).rejects.toThrow(
      /the leaf at "z" is c128\[\], and files hold complex64 alone: convert it with astype/,
    );
    await expect(importSafetensors(path, { one: np.ones([], "float32"), z })).rejects.toThrow(
      '"one" is complex64[] in the file but must be float32[]',
    );
  });

  test("have the names and the order of dims that the caller gives, both ways", async () => {
    const path = join(root, "torch.safetensors");
    const params = {
      Dense_0: { kernel: np.arange(6, "float32").reshape(2, 3), bias: np.arange(3) },
      Conv_0: { kernel: np.arange(24).reshape(1, 2, 3, 4) },
    };
    const options = {
      rename: (path: string) => path.replace(/^(\w+)_(\d+)\//, "$1.$2.").replace("kernel", "weight"),
      transpose: (path: string) => (path.startsWith("Conv") ? [3, 2, 0, 1] : path.endsWith("kernel")),
    };
    await exportSafetensors(path, params, options);
    const { tensors } = await readSafetensors(path);
    expect([...tensors.keys()].sort()).toEqual(["Conv.0.weight", "Dense.0.bias", "Dense.0.weight"]);
    expect(tensors.get("Dense.0.weight")).toEqual({
      dtype: "float32",
      shape: [3, 2],
      data: Float32Array.of(0, 3, 1, 4, 2, 5),
    });
    const conv = tensors.get("Conv.0.weight");
    expect(conv?.shape).toEqual([4, 3, 1, 2]);
    expect([...(conv?.data ?? [])]).toEqual([
      ...(await np.transpose(params.Conv_0.kernel, [3, 2, 0, 1]).data()),
    ]);
    expect(await bitsOf(await importSafetensors(path, params, options))).toEqual(await bitsOf(params));
  });

  const dtypes: DType[] = ["float64", "float32", "bfloat16", "float16", "int32", "bool"];
  const bytes: Record<string, number> = {
    float64: 8,
    float32: 4,
    bfloat16: 2,
    float16: 2,
    int32: 4,
    bool: 1,
  };
  const cases = fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 4 }).chain((shape) =>
    fc.record({
      shape: fc.constant(shape),
      permutation: fc.shuffledSubarray([...shape.keys()], { minLength: shape.length }),
      dtype: fc.constantFrom(...dtypes),
      seed: fc.nat(255),
    }),
  );

  test("give back the bits of every type in any order of dims, those of NaNs included", async () => {
    const path = join(root, "any.safetensors");
    await fc.assert(
      fc.asyncProperty(cases, async ({ shape, permutation, dtype, seed }) => {
        const size = shape.reduce((n, m) => n * m, 1) * (bytes[dtype] ?? 0);
        // Half of the bytes are 0xff or 0x7f, which makes NaNs of all kinds.
        const pattern = Uint8Array.from({ length: size }, (_, i) =>
          dtype === "bool" ? (i * 7 + seed) % 2 : ([0xff, (i * 31 + seed) & 255, 0x7f][(i + seed) % 3] ?? 0),
        );
        const view = { float64: Float64Array, float32: Float32Array, int32: Int32Array, bool: Uint8Array };
        const Elements = dtype in view ? view[dtype as keyof typeof view] : Uint16Array;
        const x = HostTensor.fromHost({ dtype, shape }, new Elements(pattern.buffer));
        const before = await bitsOf({ x });
        const options = { transpose: () => permutation };
        await exportSafetensors(path, { x }, options);
        const stored = (await readSafetensors(path)).tensors.get("x");
        expect(stored?.shape).toEqual(permutation.map((dim) => shape[dim]));
        expect(await bitsOf(await importSafetensors(path, { x }, options))).toEqual(before);
      }),
      { numRuns: 60 },
    );
  });

  test("swap the last two dims of stacked kernels where transpose is true", async () => {
    const path = join(root, "stacked.safetensors");
    const kernel = np.arange(12).reshape(2, 3, 2);
    await exportSafetensors(path, { kernel }, { transpose: () => true });
    const stored = (await readSafetensors(path)).tensors.get("kernel");
    expect(stored?.shape).toEqual([2, 2, 3]);
    expect([...(stored?.data ?? [])]).toEqual([0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
  });

  test("hold stacked layers one by one, each transposed, and give devices only their blocks", async () => {
    const path = join(root, "layers.safetensors");
    const params = {
      layers: { kernel: new Partitioned(np.arange(48, "float32").reshape(2, 4, 6), [null, null, "model"]) },
      norm: np.arange(6),
    };
    const options = {
      rename: (name: string, [count = 0]: readonly number[]) =>
        name === "norm" ? "norm.weight" : Array.from({ length: count }, (_, i) => `layers.${i}.weight`),
      transpose: (name: string) => name !== "norm",
    };
    await exportSafetensors(path, params, options);
    const { tensors } = await readSafetensors(path);
    expect([...tensors.keys()].sort()).toEqual(["layers.0.weight", "layers.1.weight", "norm.weight"]);
    expect(tensors.get("layers.1.weight")?.shape).toEqual([6, 4]);
    expect([...(tensors.get("layers.1.weight")?.data.subarray(0, 5) ?? [])]).toEqual([24, 30, 36, 42, 25]);
    for (const mesh of [Mesh.create({ model: 2 }), Mesh.create({ model: 3 })]) {
      const back = await importSafetensors(path, params, { ...options, mesh });
      expect(back.layers.kernel.value.storage("test").placement.mesh).toBe(mesh);
      expect(await bitsOf(back)).toEqual(await bitsOf(params));
    }
    const misspelt = { ...options, rename: (name: string) => [`${name}.0`, "layers.1.weight"] };
    await expect(importSafetensors(path, { kernel: params.layers.kernel }, misspelt)).rejects.toThrow(
      '"kernel[0]" (f32[4,6]) is not in the file as "kernel.0"',
    );
    await expect(exportSafetensors(path, params, { rename: () => ["a"] })).rejects.toThrow(
      'rename gave 1 names for "layers/kernel" of shape [2,4,6]: give one for every index of its first dim',
    );
  });

  test("are refused with both shapes when these differ after transposing", async () => {
    const path = join(root, "shape.safetensors");
    await exportSafetensors(path, { kernel: np.zeros([2, 3]) });
    const kernel = np.zeros([2, 3]);
    const error = await importSafetensors(path, { kernel }, { transpose: () => true }).catch((e) => e);
    expect(error).toBeInstanceOf(TreeError);
    expect(error.message).toContain(
      '"kernel" is float32[2,3] in the file, [3,2] transposed, but must be float32[2,3]',
    );
    const cube = { kernel: np.zeros([1, 2, 3]) };
    await expect(importSafetensors(path, cube, { transpose: () => true })).rejects.toThrow(
      '"kernel" is float32[2,3] in the file but must be float32[1,2,3]',
    );
  });

  test("refuse orders of dims that are none", async () => {
    const path = join(root, "none.safetensors");
    const values = { kernel: np.zeros([2, 3]) };
    for (const order of [[0], [0, 0], [1, 2], [0, 1, 2]]) {
      await expect(exportSafetensors(path, values, { transpose: () => order })).rejects.toThrow(
        `transpose gave [${order}] for "kernel" of shape [2,3]: give each of the dims 0, 1 once`,
      );
    }
    await expect(exportSafetensors(path, { bias: np.zeros([3]) }, { transpose: () => true })).rejects.toThrow(
      'transpose is true for "bias", but [3] has 1 dims, not two to swap',
    );
  });

  test("name the nearest tensors that have no place yet when one is missing", async () => {
    const path = join(root, "near.safetensors");
    const one = { dtype: "float32", shape: [1], data: new Float32Array(1) } as const;
    const names = ["model.layers.0.mlp.weight", "model.layers.0.mlp.bias", "lm_head.weight", "zzz"];
    await writeSafetensors(
      path,
      names.map((name) => [name, one] as const),
    );
    const x = np.zeros([1]);
    const target = { layers: [{ mlp: { weight: x } }], lm_head: { weight: x } };
    const error = await importSafetensors(path, target).catch((e) => e);
    expect(error).toBeInstanceOf(TreeError);
    expect(error.message).toContain(
      "(not in the file: 1 of the tree's 2 leaves; without a place: 3 of the file's 4):",
    );
    expect(error.message).toContain(
      '"layers/0/mlp/weight" (f32[1]) is not in the file as "layers.0.mlp.weight"; the nearest names there are "model.layers.0.mlp.weight", "model.layers.0.mlp.bias"\n',
    );
    expect(error.message).toContain('"zzz" of the file has no place in the tree');
    expect(error.message).toContain('{ missing: "keep" }');
    expect(error.message).toContain('{ unexpected: "ignore" }');
    // A misspelt name would otherwise leave the values of the target without a word.
    await expect(importSafetensors(path, target, { missing: "keep" })).rejects.toThrow(
      '"model.layers.0.mlp.weight" of the file has no place in the tree',
    );
    const kept = await importSafetensors(path, target, { missing: "keep", unexpected: "ignore" });
    expect(kept.layers[0]?.mlp.weight).toBe(x);
    expect(kept.lm_head.weight).not.toBe(x);
  });

  test("have each name once, and one way to make it", async () => {
    const path = join(root, "twice.safetensors");
    const values = { a: np.zeros([1]), b: np.zeros([1]) };
    const twice = { rename: () => "w" };
    const says =
      'the leaves at "a" and "b" both have the name "w" in the file: let rename give each a different one';
    await expect(exportSafetensors(path, values, twice)).rejects.toThrow(says);
    await expect(importSafetensors(path, values, twice)).rejects.toBeInstanceOf(TreeError);
    await expect(exportSafetensors(path, { a: { b: values.a }, "a.b": values.b })).rejects.toThrow(
      'the leaves at "a/b" and "a.b" both have the name "a.b" in the file: use rename',
    );
    await expect(exportSafetensors(path, values, { rename: () => "" })).rejects.toThrow(
      'the leaf at "a" needs a name, got ""',
    );
    await expect(exportSafetensors(path, values, { ...twice, separator: "/" })).rejects.toThrow(
      "separator and rename both determine names",
    );
  });
});

describe("a model in several files", () => {
  const stored = { a: np.array([1, 2]), b: np.array([3]), c: np.array([4, 5, 6]) };
  const empty = { a: np.zeros([2]), b: np.zeros([1]), c: np.zeros([3]) };
  const files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] as const;
  const index = "model.safetensors.index.json";

  beforeEach(async () => {
    await exportSafetensors(join(root, files[0]), { a: stored.a, b: stored.b });
    await exportSafetensors(join(root, files[1]), { c: stored.c });
  });
  const writeIndex = (weightMap: unknown) =>
    writeFile(join(root, index), JSON.stringify({ metadata: { total_size: 24 }, weight_map: weightMap }));

  test("is one call: by its files, its folder, or its index", async () => {
    const paths = files.map((file) => join(root, file));
    expect(await importSafetensors(paths, empty)).toEqual(stored);
    expect(await importSafetensors(root, empty)).toEqual(stored);
    await writeIndex({ a: files[0], b: files[0], c: files[1] });
    await exportSafetensors(join(root, "other.safetensors"), { a: np.zeros([2]) });
    expect(await importSafetensors(root, empty)).toEqual(stored);
    expect(await importSafetensors(join(root, index), empty)).toEqual(stored);
  });

  test("says which leaves no file has, instead of leaving them as they are", async () => {
    await expect(importSafetensors(root, { a: empty.a, bb: empty.b, c: empty.c })).rejects.toThrow(
      /in none of the 2 files: 1 of the tree's 3 leaves; without a place: 1 of the file's 3\):\s+"bb" \(f32\[1\]\) is in none of the 2 files; the nearest names there are "b"/,
    );
    await expect(
      importSafetensors(root, { ...empty, bb: empty.b, c: np.zeros([2]) }, { missing: "keep" }),
    ).rejects.toThrow('"c" is float32[3] in the file but must be float32[2]');
    const options = { missing: "keep", unexpected: "ignore" } as const;
    const kept = await importSafetensors(root, { a: empty.a, bb: empty.b }, options);
    expect(kept).toEqual({ a: stored.a, bb: empty.b });
  });

  test("is refused where two files hold the same tensor, an index is wrong or a file is not there", async () => {
    const first = join(root, files[0]);
    await expect(importSafetensors([first, first], empty)).rejects.toThrow('both hold "a"');
    await expect(importSafetensors([], empty)).rejects.toThrow("path is an empty array");
    for (const [map, message] of [
      [{ a: files[1] }, `has no tensor "a", which ${index} lists for it`],
      [{ a: "../x.safetensors" }, 'the file of "a" must be a file name in the folder of the index'],
      [{ a: 3 }, 'the file of "a" must be a file name in the folder of the index'],
      [{ a: "model-00003.safetensors" }, "the file cannot be opened"],
      [["a"], "the index has no weight_map"],
    ] as const) {
      await writeIndex(map);
      await expect(importSafetensors(root, empty)).rejects.toThrow(message);
    }
    await writeFile(join(root, index), "{");
    await expect(importSafetensors(root, empty)).rejects.toThrow("the index is not JSON");
    await writeFile(join(root, `another.${index}`), "{}");
    await expect(importSafetensors(root, empty)).rejects.toThrow("has several models: name one of another.");
    await expect(importSafetensors(await mkdtemp(join(root, "empty-")), empty)).rejects.toThrow(
      "the folder has no file that ends with .safetensors",
    );
  });
});
