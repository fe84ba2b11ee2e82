import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { cp, mkdtemp, readdir, readFile, rename, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  complex,
  devicePut,
  evalShape,
  jit,
  lax,
  Mesh,
  NamedSharding,
  np,
  P,
  type Tensor,
  tree,
} from "shardwise";
import { createReferenceEngine, createThreadsEngine } from "shardwise/engines";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { range } from "../../../ir/shape.js";
import { getSharding, Partitioned } from "../../../nn/modules/partitioned.js";
import { FileError } from "../disk/fileError.js";
import { type FileSystem, nodeFileSystem } from "../disk/files.js";
import { encodeSafetensors } from "../safetensors/safetensorsBytes.js";
import { openCheckpoint, openCheckpoints } from "./checkpoint.js";
import { parseManifest } from "./checkpointManifest.js";
import { pieceBytes } from "./pieceFiles.js";
import { seal } from "./seal.js";

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "shardwise-checkpoint-"));
});
afterEach(() => rm(root, { recursive: true, force: true }));

const stateAt = (step: number) => ({
  params: {
    w: new Partitioned(np.arange(32).reshape(8, 4).add(step), ["model", null]),
    bias: np.array([1.5, -0, Number.POSITIVE_INFINITY, step], "bfloat16"),
  },
  optimizer: [{ count: np.array(step, "int32"), mu: null }, [], np.array([[true], [false]])],
  key: np.array([0, 4294967295], "uint32"),
});
type State = ReturnType<typeof stateAt>;

const bitsOf = async (values: unknown) =>
  Promise.all(
    tree.flattenWithPath(values).map(async ({ path, leaf }) => {
      const tensor = leaf as Tensor;
      const { buffer, byteOffset, byteLength } = await tensor.storage("test").download("test");
      // Strings are compared much more quickly than arrays.
      const bits = Buffer.from(buffer, byteOffset, byteLength).toString("base64");
      return [path, tensor.dtype, tensor.shape, bits];
    }),
  );

async function saved(step: number, options = {}) {
  const checkpoints = openCheckpoints(root, options);
  const { committed } = await checkpoints.save(step, stateAt(step), { config: { width: 4 }, data: [step] });
  return { checkpoints, folder: (await committed).folder };
}

describe("a checkpoint", () => {
  test("gives back every tensor bit for bit, with step, data position and configuration", async () => {
    const { checkpoints } = await saved(7);
    const checkpoint = await checkpoints.latest();
    expect(checkpoint?.step).toBe(7);
    expect(checkpoint?.manifest).toMatchObject({ config: { width: 4 }, data: [7], rng: null, mesh: null });
    const target = evalShape(() => stateAt(0))() as unknown as State;
    expect(await bitsOf(await checkpoint?.restore(target))).toEqual(await bitsOf(stateAt(7)));
  });

  test("rebuilds the tree it was saved from, boxes included, without a target", async () => {
    const { checkpoints } = await saved(3);
    const restored = await (await checkpoints.load(3)).restoreTree<State>();
    expect(tree.formatStructure(tree.structure(restored))).toBe(
      tree.formatStructure(tree.structure(stateAt(3))),
    );
    expect(await bitsOf(restored)).toEqual(await bitsOf(stateAt(3)));
  });

  test("holds complex numbers, and puts both parts where they belong", async () => {
    const checkpoints = openCheckpoints(root);
    const mesh = Mesh.create({ model: 2 });
    const z = lax.complex(np.arange(4, "float32"), np.ones([4]).neg());
    const placed = await devicePut(z, new NamedSharding(mesh, P("model")));
    await (await checkpoints.save(1, { z: placed })).committed;
    const checkpoint = await checkpoints.load(1);
    expect(checkpoint.manifest.leaves).toMatchObject([{ path: "z", dtype: "complex64", spec: [["model"]] }]);
    expect(await (await checkpoint.restoreTree<{ z: Tensor }>()).z.js()).toEqual(await z.js());
    const { z: restored } = await checkpoint.restore({ z: placed });
    expect(restored.parts?.map((part) => part.storage("test").placement.mesh)).toEqual([mesh, mesh]);
    expect(await restored.mul(complex(0, 1)).js()).toEqual(await z.mul(complex(0, 1)).js());
    await expect(checkpoints.save(2, { z: z.astype("complex128") })).rejects.toThrow(
      /files hold complex64 alone/,
    );
  });

  test("splits into files of limited size", async () => {
    const { checkpoints, folder } = await saved(1, { maxFileBytes: 20 });
    expect((await readdir(folder)).sort()).toEqual([
      "manifest.json",
      ...[1, 2, 3].map((n) => `tensors-0000${n}-of-00003.safetensors`),
    ]);
    expect(await bitsOf(await (await checkpoints.load(1)).restoreTree())).toEqual(await bitsOf(stateAt(1)));
  });

  test("is plain safetensors files, whose checksums are over those of their pieces", async () => {
    const [a, b] = [new Float32Array(300_000).map((_, i) => i), new Float32Array(400_000).fill(7)];
    const checkpoints = openCheckpoints(root);
    const { folder } = await (await checkpoints.save(1, { a: np.array(a), b: np.array(b) })).committed;
    const bytes = await readFile(join(folder, "tensors-00001-of-00001.safetensors"));
    const array = (data: Float32Array) => ({ dtype: "float32", shape: [data.length], data }) as const;
    expect(
      bytes.equals(
        encodeSafetensors([
          ["a", array(a)],
          ["b", array(b)],
        ]),
      ),
    ).toBe(true);
    const [file] = (await checkpoints.load(1)).manifest.files;
    expect(file?.bytes).toBe(bytes.length);
    expect(file?.pieces).toHaveLength(16 * 3);
    expect(file?.sha256).toBe(
      createHash("sha256")
        .update(file?.pieces ?? "")
        .digest("hex"),
    );
  });

  const meshes = [
    { model: 1 },
    { model: 2 },
    { model: 4 },
    { data: 2, model: 2 },
    { model: 2, pipe: 4 },
    { pipe: 2, data: 2, model: 2 },
    { fsdp: 4 },
    { data: 8 },
  ].map((sizes) => Mesh.create(sizes));
  const specs = [P("model"), P("model"), P(null, "model"), P("data", "model"), P("pipe", "model")];
  const moreSpecs = [P(["pipe", "data"], "model"), P(null, "fsdp"), P("data")];

  test("saved on any mesh loads on any other, bit for bit", async () => {
    const all = [...specs, ...moreSpecs];
    const value = np.arange(32).reshape(8, 4).div(7);
    const expected = await bitsOf({ w: value });
    for (const [a, mesh] of meshes.entries()) {
      const checkpoints = openCheckpoints(join(root, `mesh-${a}`));
      const placed = await devicePut({ w: value }, new NamedSharding(mesh, all[a] ?? P()));
      await (await checkpoints.save(1, placed)).committed;
      const checkpoint = await checkpoints.load(1);
      expect(checkpoint.manifest.mesh).toEqual(mesh.axes);
      for (const [b, other] of meshes.entries()) {
        const target = { w: { dtype: "float32", shape: [8, 4] } } as unknown as { w: Tensor };
        const restored = await checkpoint.restore(target, {
          shardings: new NamedSharding(other, all[b] ?? P()),
        });
        expect(await bitsOf(restored)).toEqual(expected);
        expect(restored.w.storage("test").placement.mesh).toBe(other);
      }
    }
  });

  test("goes where the boxes say on a mesh, or where the target's tensors lie", async () => {
    const { checkpoints } = await saved(2);
    const checkpoint = await checkpoints.load(2);
    const mesh = Mesh.create({ model: 4 });
    const restored = await checkpoint.restore(stateAt(0), { mesh });
    expect(restored.params.w.value.storage("test").placement.spec).toEqual([["model"], []]);
    const target = await devicePut(stateAt(0), getSharding(stateAt(0), Mesh.create({ model: 2 })));
    const again = await checkpoint.restore(target);
    expect(again.params.w.value.storage("test").placement.mesh.axes).toEqual([{ name: "model", size: 2 }]);
    expect(await bitsOf(again)).toEqual(await bitsOf(stateAt(2)));
  });

  test("is a copy: tensors may be donated as soon as save returns", async () => {
    const checkpoints = openCheckpoints(root);
    const state = { x: np.arange(1000) };
    const pending = await checkpoints.save(1, state);
    jit((s: typeof state) => ({ x: s.x.mul(0) }), { donate: 0 })(state);
    await pending.committed;
    const restored = await (await checkpoints.load(1)).restoreTree<typeof state>();
    expect((await restored.x.data())[999]).toBe(999);
  });

  test("lists every difference to the tree it is loaded into", async () => {
    const { checkpoints } = await saved(1);
    const checkpoint = await checkpoints.load(1);
    const other = { params: { w: np.zeros([8, 5]), bias: np.zeros([4]) }, added: np.zeros([1]) };
    await expect(checkpoint.restore(other)).rejects.toThrow(
      /\(not in the file: 1 of the tree's 3 leaves; of another type: 2; without a place: 3 of the file's 5\):\n.*"added" \(f32\[1\]\) is not in the file\n.*"params\/bias" is bfloat16\[4\] in the file but must be float32\[4\]\n.*"params\/w".*\[8,4\].*\[8,5\]\n.*"key" of the file has no place[\s\S]*\n.*\{ missing: "keep" \} to keep .*, or \{ partial: true \} to load only/,
    );
  });

  test("loads the leaves of a target that is a part of it, from the files that hold them, when asked to", async () => {
    const { checkpoints, folder } = await saved(6, { maxFileBytes: 20 });
    const checkpoint = await checkpoints.load(6);
    const { params } = stateAt(0);
    await expect(checkpoint.restore({ params })).rejects.toThrow(
      /\(without a place: 3 of the file's 5\)[\s\S]*or \{ partial: true \}/,
    );
    const file = checkpoint.manifest.leaves.find(({ path }) => path === "key")?.file ?? 0;
    const inParams = checkpoint.manifest.leaves.filter(({ path }) => path.startsWith("params/"));
    expect(inParams.map((leaf) => leaf.file)).not.toContain(file);
    const name = join(folder, checkpoint.manifest.files[file]?.name ?? "");
    await writeFile(name, new Uint8Array((await readFile(name)).length));
    const mesh = Mesh.create({ model: 2 });
    const restored = await checkpoint.restore({ params }, { partial: true, mesh });
    expect(Object.keys(restored)).toEqual(["params"]);
    expect(await bitsOf(restored)).toEqual(await bitsOf({ params: stateAt(6).params }));
    expect(restored.params.w.value.storage("test").placement.mesh).toBe(mesh);
    await expect(checkpoint.restore(stateAt(0), { partial: true })).rejects.toThrow("the file is damaged");
    await expect(checkpoint.restore({ params: { v: params.bias } }, { partial: true })).rejects.toThrow(
      /1 of the tree's 1 leaves\):\n.*"params\/v" .* not in the file; the nearest names there are "params\/w"/,
    );
    const bias = np.zeros([4]);
    await expect(checkpoint.restore({ params: { bias } }, { partial: true })).rejects.toThrow(
      /\(of another type: 1\):\n.*"params\/bias" is bfloat16\[4\] in the file but must be float32\[4\]/,
    );
  });

  test("leaves the target its own values where it lacks them, when asked to", async () => {
    const { checkpoints } = await saved(6);
    const checkpoint = await checkpoints.load(6);
    const lora = np.arange(8, "float32").reshape(4, 2);
    const target = { ...stateAt(0), lora };
    await expect(checkpoint.restore(target)).rejects.toThrow(
      /"lora" \(f32\[4,2\]\)[\s\S]*\{ missing: "keep" \}/,
    );
    const restored = await checkpoint.restore(target, { missing: "keep" });
    expect(restored.lora).toBe(lora);
    expect(await bitsOf(restored)).toEqual(await bitsOf({ ...stateAt(6), lora }));
    const mesh = Mesh.create({ model: 2 });
    const shardings = { lora: new NamedSharding(mesh, P("model")), params: null, optimizer: null, key: null };
    const split = await checkpoint.restore(target, { missing: "keep", shardings });
    expect(split.lora.storage("test").placement.spec).toEqual([["model"], []]);
    expect(await bitsOf(split)).toEqual(await bitsOf(restored));
    const some = { params: { w: stateAt(0).params.w, lora } };
    const both = await checkpoint.restore(some, { missing: "keep", partial: true });
    expect(await bitsOf(both)).toEqual(await bitsOf({ params: { w: stateAt(6).params.w, lora } }));
  });

  test("keeps no values of a type, nor all of a target of which nothing was saved", async () => {
    const { checkpoints } = await saved(6);
    const checkpoint = await checkpoints.load(6);
    const options = { missing: "keep", partial: true } as const;
    const types = evalShape(() => ({ ...stateAt(0), lora: np.zeros([2]) }))();
    await expect(checkpoint.restore(types, options)).rejects.toThrow(
      'the leaf at "lora" is only a type and has no elements to keep',
    );
    await expect(checkpoint.restore(stateAt(0).params, options)).rejects.toThrow(
      /2 of the tree's 2 leaves\):\n.*"bias" \(bf16\[4\]\) is not in the file; the nearest names there are "params\/bias"/,
    );
    await expect(checkpoint.restore({}, options)).resolves.toEqual({});
  });

  test("refuses trees that cannot be stored", async () => {
    const checkpoints = openCheckpoints(root);
    await expect(checkpoints.save(1, { lr: 0.1 })).rejects.toThrow(
      'the leaf at "lr" is a number, not a tensor',
    );
    const x = np.zeros([1]);
    await expect(checkpoints.save(1, { "a/b": x, a: { b: x } })).rejects.toThrow(
      'two leaves have the path "a/b"',
    );
    await expect(checkpoints.save(-1, {})).rejects.toThrow("at least 0, got -1");
  });
});

describe("a folder of checkpoints", () => {
  test.each([
    [{ keep: 0 }, "keep must be an integer of at least 1, or Infinity, got 0"],
    [{ maxHeldBytes: 0 }, "maxHeldBytes must be a number of at least 1, or Infinity, got 0"],
    [{ maxFileBytes: Number.NaN }, "maxFileBytes must be a number of at least 1, or Infinity, got NaN"],
    [{ fileSystem: 3 }, "fileSystem must be an object, got 3"],
  ])("refuses %j", (options, message) => {
    expect(() => openCheckpoints(root, options as object)).toThrow(`[openCheckpoints] ${message}`);
  });

  test("keeps the newest ones and nothing else", async () => {
    const checkpoints = openCheckpoints(root, { keep: 2 });
    for (const step of [1, 2, 10, 9]) await checkpoints.save(step, stateAt(step));
    await checkpoints.finished();
    expect((await readdir(root)).sort()).toEqual(["step-00000009", "step-00000010"]);
    expect((await checkpoints.latest())?.step).toBe(10);
  });

  test("never removes the one that was just written", async () => {
    const checkpoints = openCheckpoints(root, { keep: 1 });
    for (const step of [5, 10, 7]) await checkpoints.save(step, stateAt(step));
    await checkpoints.finished();
    expect((await readdir(root)).sort()).toEqual(["step-00000007", "step-00000010"]);
  });

  test("replaces a step that is saved again only after the new one is complete", async () => {
    const { checkpoints } = await saved(5);
    await (await checkpoints.save(5, { x: np.array(1) })).committed;
    expect(await readdir(root)).toEqual(["step-00000005.1"]);
    expect((await (await checkpoints.load(5)).restoreTree<{ x: Tensor }>()).x.shape).toEqual([]);
  });

  test("skips incomplete checkpoints and says why", async () => {
    const { checkpoints, folder } = await saved(1);
    await cp(folder, join(root, "step-00000002"), { recursive: true });
    await rm(join(root, "step-00000002", "tensors-00001-of-00001.safetensors"));
    await cp(folder, join(root, "step-00000003"), { recursive: true });
    await rm(join(root, "step-00000003", "manifest.json"));
    await cp(folder, join(root, "step-00000004"), { recursive: true });
    await truncate(join(root, "step-00000004", "tensors-00001-of-00001.safetensors"), 100);
    expect((await checkpoints.latest())?.folder).toBe(folder);
    expect((await checkpoints.list()).map(({ problem }) => problem?.replace(/.*, byte/, "byte"))).toEqual([
      expect.stringMatching(/byte 100: the file has 100 bytes, but the manifest says \d+/),
      "byte 0: there is no such file",
      "byte 0: the file is missing",
      undefined,
    ]);
    await expect(checkpoints.load(77)).rejects.toThrow("no checkpoint of step 77; there are steps 1");
  });

  test("has none when it does not exist", async () => {
    expect(await openCheckpoints(join(root, "nowhere")).latest()).toBeUndefined();
  });
});

/** A file system that stops for good before its n-th change, or cuts a write short there, as a kill would. */
function stoppingAt(
  limit: number,
  torn: boolean,
  error: Error,
): FileSystem & { readonly changes: () => number } {
  let changes = 0;
  let stopped = false;
  const change = async <R>(work: () => Promise<R>, partly?: () => Promise<unknown>): Promise<R> => {
    if (stopped) throw error;
    if (changes++ === limit) {
      stopped = true;
      if (torn) await partly?.();
      throw error;
    }
    return work();
  };
  return {
    ...nodeFileSystem,
    changes: () => changes,
    makeFolder: (path) => change(() => nodeFileSystem.makeFolder(path)),
    rename: (from, to) => change(() => nodeFileSystem.rename(from, to)),
    syncFolder: (path) => change(() => nodeFileSystem.syncFolder(path)),
    remove: (path) =>
      change(
        () => nodeFileSystem.remove(path),
        async () => {
          const [first] = await readdir(path);
          if (first) await rm(join(path, first));
        },
      ),
    create: async (path) => {
      const file = await change(() => nodeFileSystem.create(path));
      return {
        write: (bytes) =>
          change(
            () => file.write(bytes),
            () => file.write(bytes.subarray(0, bytes.length >> 1)),
          ),
        sync: () => change(() => file.sync()),
        close: () => file.close(),
      };
    },
  };
}

describe("a save that is killed", () => {
  test.each([false, true])(
    "at any change of the disk leaves the old or the new checkpoint whole (writes torn: %s)",
    async (torn) => {
      const outcomes = new Set<number>();
      for (let limit = 0; ; limit++) {
        const folder = join(root, `${limit}`);
        await (await openCheckpoints(folder).save(1, stateAt(1))).committed;
        const files = stoppingAt(limit, torn, new Error("killed"));
        const dying = openCheckpoints(folder, { keep: 1, maxFileBytes: 20, fileSystem: files });
        await (await dying.save(2, stateAt(2))).committed.catch(() => {});
        // Another process starts over on what is left.
        const checkpoints = openCheckpoints(folder, { keep: 1 });
        const found = await checkpoints.latest();
        expect(found).toBeDefined();
        const step = found?.step ?? 0;
        outcomes.add(step);
        expect(await bitsOf(await found?.restoreTree())).toEqual(await bitsOf(stateAt(step)));
        await (await checkpoints.save(3, stateAt(3))).committed;
        expect(await readdir(folder)).toEqual(["step-00000003"]);
        if (files.changes() <= limit) break;
      }
      expect([...outcomes].sort()).toEqual([1, 2]);
    },
    60_000,
  );
});

describe("a save of more than the host may hold", () => {
  const numLeaves = 5;
  /** Each leaf is larger than what is on its way to the disk at one time. */
  const leafBytes = 9 * pieceBytes;
  const state = () =>
    Object.fromEntries(
      Array.from({ length: numLeaves }, (_, i) => [`leaf${i}`, np.full([leafBytes / 4], i)]),
    );

  /** A file system whose writes wait until they are let go. */
  function waiting() {
    let letGo = () => {};
    const gate = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const fileSystem: FileSystem = {
      ...nodeFileSystem,
      create: async (path) => {
        const file = await nodeFileSystem.create(path);
        return { ...file, write: (bytes) => gate.then(() => file.write(bytes)) };
      },
    };
    return { fileSystem, letGo: () => letGo() };
  }

  test("reads tensors only as they are written, and returns when all are read", async () => {
    const { fileSystem, letGo } = waiting();
    const saved = state();
    const reads = Object.values(saved).map((leaf) => vi.spyOn(leaf.storage("test"), "downloadPart"));
    const numRead = () => reads.filter(({ mock }) => mock.calls.length > 0).length;
    const checkpoints = openCheckpoints(root, {
      fileSystem,
      maxFileBytes: 2.5 * leafBytes,
      maxHeldBytes: 3.5 * leafBytes,
    });
    let isCopied = false;
    const saving = checkpoints.save(1, saved).then((pending) => {
      isCopied = true;
      return pending;
    });
    await vi.waitFor(() => expect(numRead()).toBe(3), { timeout: 20_000 });
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(numRead()).toBe(3);
    expect(isCopied).toBe(false);
    letGo();
    const { committed } = await saving;
    expect(numRead()).toBe(numLeaves);
    const { folder } = await committed;
    const restored = await (await openCheckpoint(folder)).restoreTree<ReturnType<typeof state>>();
    for (const [i, leaf] of Object.values(restored).entries()) {
      expect(await np.all(np.equal(leaf, i)).item()).toBe(1);
    }
  });

  const engines = {
    "engines on the calling thread": () => createReferenceEngine({ numDevices: 4 }),
    "worker threads": () => createThreadsEngine({ numDevices: 4, threadsPerDevice: 1 }),
    "engines that copy only whole buffers": () =>
      Object.assign(createReferenceEngine({ numDevices: 4 }), { downloadInto: undefined }),
  };
  test.each(Object.entries(engines))("copies large tensors in parts from %s", async (_, create) => {
    const engine = create();
    const mesh = Mesh.create({ data: 2, model: 2 }, { engine });
    const large = () => np.arange(7 * 300).reshape([7, 300]);
    const values = () => ({
      rows: np.tile(large(), [2, 1]),
      columns: large(),
      deep: np.tile(large(), [2, 1]).reshape([3, 4, 350]),
      scalar: np.array(3),
    });
    const placed = await devicePut(values(), {
      rows: new NamedSharding(mesh, P("data", "model")),
      columns: new NamedSharding(mesh, P(null, "model")),
      deep: new NamedSharding(mesh, P(null, "data", "model")),
      scalar: new NamedSharding(mesh, P()),
    });
    const { scalar: _scalar, ...matrices } = placed;
    const reads = Object.values(matrices).map((leaf) => vi.spyOn(leaf.storage("test"), "download"));
    // Two rows of 1200 bytes fit, and one of 1400; those of a layer, which are 5600 bytes, do not.
    const checkpoints = openCheckpoints(root, { maxHeldBytes: 2500 });
    const { folder } = await (await checkpoints.save(1, placed)).committed;
    expect(reads.map(({ mock }) => mock.calls.length)).toEqual([0, 0, 0]);
    const restored = await (await openCheckpoint(folder)).restoreTree();
    expect(await bitsOf(restored)).toEqual(await bitsOf(values()));
    await engine.close();
  });

  test("returns when it fails, and leaves nothing behind", async () => {
    const fileSystem: FileSystem = {
      ...nodeFileSystem,
      create: async (path) => {
        if (path.includes("tensors-00003")) throw new Error("no third file");
        return nodeFileSystem.create(path);
      },
    };
    const checkpoints = openCheckpoints(root, {
      fileSystem,
      maxFileBytes: leafBytes,
      maxHeldBytes: leafBytes,
    });
    const { committed } = await checkpoints.save(1, state());
    await expect(committed).rejects.toThrow("no third file");
    expect(await readdir(root)).toEqual([]);
  });
});

describe("a save on a full disk", () => {
  test("fails with advice, cleans up, keeps what was there and works again later", async () => {
    const { checkpoints } = await saved(1);
    // Two files and the manifest; each is written at once and flushed.
    const state = { x: np.zeros([600_000]), y: np.zeros([1]) };
    const full = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
    for (let limit = 0; limit < 6; limit++) {
      // Only one change fails; cleaning up works, as it does on a full disk.
      let changes = 0;
      const files: FileSystem = {
        ...nodeFileSystem,
        create: async (path) => {
          const file = await nodeFileSystem.create(path);
          const may = async (work: () => Promise<void>) => {
            if (changes++ === limit) throw full;
            await work();
          };
          return { ...file, write: (bytes) => may(() => file.write(bytes)), sync: () => may(file.sync) };
        },
      };
      const failing = openCheckpoints(root, { fileSystem: files, maxFileBytes: 1000 });
      const { committed } = await failing.save(2, state);
      await expect(committed).rejects.toThrow(
        /the checkpoint of step 2 could not be written \(ENOSPC\): the disk is full, it needs \d+ bytes.*untouched/,
      );
      await expect(failing.finished()).rejects.toThrow(FileError);
      await expect(failing.finished()).resolves.toBeUndefined();
      expect(await readdir(root)).toEqual(["step-00000001"]);
      expect((await checkpoints.latest())?.step).toBe(1);
    }
    await (await checkpoints.save(2, stateAt(2))).committed;
    expect((await checkpoints.latest())?.step).toBe(2);
  });
});

/** Makes a checkpoint one of an earlier version: with SHA-256 of pieces, of files, and without a seal. */
async function writeAsVersion(version: number, folder: string): Promise<void> {
  if (version === 4) return;
  const path = join(folder, "manifest.json");
  const { seal: _, files, ...rest } = JSON.parse(await readFile(path, "utf8"));
  const sha256 = (data: Uint8Array) => createHash("sha256").update(data).digest();
  const earlier = files.map(({ name, bytes }: { readonly name: string; readonly bytes: number }) => {
    const content = readFileSync(join(folder, name));
    const pieces = range(Math.ceil(bytes / pieceBytes)).map((i) =>
      sha256(content.subarray(i * pieceBytes, (i + 1) * pieceBytes)),
    );
    return {
      name,
      bytes,
      sha256: sha256(version < 3 ? content : Buffer.concat(pieces)).toString("hex"),
      ...(version > 1 && { pieces: pieces.map((piece) => piece.toString("hex", 0, 8)).join("") }),
    };
  });
  const text = `${JSON.stringify({ ...rest, version, files: earlier }, null, 1)}\n`;
  await writeFile(path, version > 1 ? seal(text) : text);
}

describe("a damaged checkpoint", () => {
  test("is recognised wherever a byte changed", async () => {
    const { folder } = await saved(1);
    const file = join(folder, "tensors-00001-of-00001.safetensors");
    const original = await readFile(file);
    for (let position = 0; position < original.length; position += 13) {
      const bytes = Buffer.from(original);
      bytes[position] = (bytes[position] ?? 0) ^ 0x10;
      await writeFile(file, bytes);
      const checkpoint = await openCheckpoint(folder);
      await expect(checkpoint.restoreTree()).rejects.toThrow(
        /safetensors, byte 0: the file is damaged between here and byte \d+: its checksum is/,
      );
    }
  });

  const large = () => ({
    a: np.arange(300_000),
    b: np.array([1]),
    none: np.zeros([0]),
    c: np.ones([400_000]),
  });

  test.each([1, 2, 3, 4])(
    "of version %i says in which piece of a large file the damage is",
    async (version) => {
      const checkpoints = openCheckpoints(root);
      const { folder } = await (await checkpoints.save(1, large())).committed;
      const file = join(folder, "tensors-00001-of-00001.safetensors");
      await writeAsVersion(version, folder);
      const checkpoint = await openCheckpoint(folder);
      expect(checkpoint.manifest.version).toBe(version);
      const restored = await checkpoint.restoreTree<Record<string, Tensor>>();
      for (const [name, expected] of Object.entries(large())) {
        expect(await np.arrayEqual(restored[name] ?? 0, expected).item(), name).toBe(1);
      }
      const good = await readFile(file);
      for (const start of [0, 1, 2].map((piece) => piece * pieceBytes)) {
        const end = Math.min(good.length, start + pieceBytes);
        for (const position of [start, end - 1]) {
          const bytes = Buffer.from(good);
          bytes[position] = (bytes[position] ?? 0) ^ 1;
          await writeFile(file, bytes);
          await expect(checkpoint.verify()).rejects.toMatchObject({
            file,
            offset: version === 1 ? 0 : start,
            message: expect.stringMatching(
              version === 1 ? "the file is damaged: " : `between here and byte ${end}: its checksum is`,
            ),
          });
        }
      }
    },
  );

  test("is recognised by any bit of its manifest, with the place of it", async () => {
    const { folder } = await saved(1);
    const good = await readFile(join(folder, "manifest.json"));
    expect(parseManifest(good, "m").step).toBe(1);
    const sealAt = good.lastIndexOf('"seal"');
    for (let bit = 0; bit < 8 * good.length; bit++) {
      const bytes = Buffer.from(good);
      const position = bit >> 3;
      bytes[position] = (bytes[position] ?? 0) ^ (1 << (bit & 7));
      let thrown: unknown;
      try {
        parseManifest(bytes, "m");
      } catch (error) {
        thrown = error;
      }
      if (!(thrown instanceof FileError)) throw new Error(`bit ${bit} was not noticed: ${thrown}`);
      if (position < sealAt - 4 && Math.abs(thrown.offset - position) > 512)
        throw new Error(`bit ${bit}, byte ${position}: ${thrown.message}`);
    }
  });

  test("of version 1, which needs no seal, does not pass for a later one", async () => {
    const { folder } = await saved(1);
    await writeAsVersion(1, folder);
    const path = join(folder, "manifest.json");
    await writeFile(path, (await readFile(path, "utf8")).replace('"version": 1', '"version": 2'));
    await expect(openCheckpoint(folder)).rejects.toThrow("seal must be the last field");
  });

  test("is recognised when files do not match although their checksums do", async () => {
    const { folder } = await saved(1);
    const path = join(folder, "manifest.json");
    const { seal: _, ...rest } = JSON.parse(
      (await readFile(path, "utf8")).replaceAll('"bfloat16"', '"float16"'),
    );
    await writeFile(path, seal(`${JSON.stringify(rest, null, 1)}\n`));
    await expect((await openCheckpoint(folder)).restoreTree()).rejects.toThrow(
      'tensor "params/bias" is BF16[4], but the manifest says float16[4]',
    );
  });

  test("whose file vanishes after opening is an error that names it", async () => {
    const { folder } = await saved(1);
    const checkpoint = await openCheckpoint(folder);
    const file = join(folder, "tensors-00001-of-00001.safetensors");
    await rename(file, `${file}.gone`);
    await expect(checkpoint.restoreTree()).rejects.toThrow(`${file}, byte 0: the file cannot be opened`);
  });
});

describe("a hostile manifest", () => {
  const good = {
    format: "shardwise-checkpoint",
    version: 1,
    step: 1,
    mesh: null,
    rng: null,
    data: null,
    config: null,
    tree: { object: [["x", 0]] },
    leaves: [{ path: "x", dtype: "float32", shape: [2], spec: [], file: 0 }],
    files: [{ name: "tensors-00001-of-00001.safetensors", bytes: 80, sha256: "0".repeat(64) }],
  };
  const readText = (text: string) => parseManifest(new TextEncoder().encode(text), "m.json");
  const read = (manifest: object) => readText(JSON.stringify(manifest));
  const leaf = good.leaves[0];
  const file = good.files[0];

  test("is read when nothing is wrong with it", () => {
    expect(read(good).step).toBe(1);
  });

  test.each([
    ["another format", { format: "other" }, 'format must be "shardwise-checkpoint", got "other"'],
    [
      "another version",
      { version: 5 },
      "version must be from 1 to 4; another release wrote this file, got 5",
    ],
    ["no seal", { version: 2 }, "seal must be the last field, with the checksum of all others, got nothing"],
    ["a negative step", { step: -1 }, "step must be an integer of at least 0, got -1"],
    [
      "a path out of the folder",
      { files: [{ ...file, name: "../../etc/passwd" }] },
      "files[0].name must be like",
    ],
    ["a bad checksum", { files: [{ ...file, sha256: "00" }] }, "files[0].sha256 must be 64 hexadecimal"],
    ["files twice", { files: [file, file] }, "files must not name anything twice"],
    ["no files", { files: [] }, "leaves[0].file must be below 0, got 0"],
    ["a huge size", { leaves: [{ ...leaf, shape: [1e300] }] }, "leaves[0].shape[0] must be an integer"],
    ["too many dims", { leaves: [{ ...leaf, shape: Array(65).fill(1) }] }, "must have at most 64 dims"],
    ["an unknown type", { leaves: [{ ...leaf, dtype: "toString" }] }, 'must be a data type, got "toString"'],
    ["a leaf twice", { leaves: [leaf, leaf] }, "leaves must not name anything twice"],
    [
      "a leaf used twice",
      { tree: { list: [0, 0] } },
      "must be the index of a leaf (below 1) that is used once",
    ],
    ["a leaf not used", { tree: null }, "tree must name all 1 leaves, got 0"],
    [
      "keys twice",
      {
        tree: {
          object: [
            ["x", 0],
            ["x", null],
          ],
        },
      },
      "tree must not name anything twice",
    ],
    ["something else as tree", { tree: "x" }, 'tree must be an object, got "x"'],
    ["a mesh of text", { mesh: "big" }, 'mesh must be an array, got "big"'],
  ])("with %s is refused", (_name, change, message) => {
    const act = () => read({ ...good, ...change });
    expect(act).toThrow(FileError);
    expect(act).toThrow(message);
  });

  test.each([300, 100_000])("with a tree of %i levels is refused", (depth) => {
    const deep = `${'{"list":['.repeat(depth)}0${"]}".repeat(depth)}`;
    const text = JSON.stringify({ ...good, tree: "deep" }).replace('"deep"', deep);
    expect(() => readText(text)).toThrow("tree must be at most 200 levels deep");
  });

  test("that is not JSON is refused with the place", () => {
    const text = JSON.stringify(good);
    expect(() => readText(`${text.slice(0, 33)}#${text.slice(33)}`)).toThrow(
      "[checkpoint] m.json, byte 33: not JSON",
    );
  });

  test("cannot reach the prototype of objects", async () => {
    const x = np.array(1);
    const checkpoints = openCheckpoints(root);
    await (
      await checkpoints.save(
        1,
        JSON.parse('{"__proto__": 0}', (key, v) => (key ? x : v)),
      )
    ).committed;
    const restored = await (await checkpoints.load(1)).restoreTree<object>();
    expect(Object.getPrototypeOf(restored)).toBe(Object.prototype);
    expect(Object.keys(restored)).toEqual(["__proto__"]);
  });
});
