import { mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseRecording, readRecordings } from "../../../src/engines/index.js";
import { np } from "../../../src/index.js";
import { parseManifest } from "../../../src/train/files/checkpoints/checkpointManifest.js";
import { FileError } from "../../../src/train/files/disk/fileError.js";
import { openCheckpoint, openCheckpoints, readSafetensors } from "../../../src/train/index.js";
import { openRunData } from "../../../src/train/run/runData.js";
import { tinyConfig } from "../../support/runs.js";
import type { FaultArea, FaultContext, FaultRow } from "../row.js";

/** A checkpoint of a small state, in the folder of a row. */
async function saved({
  folder,
}: FaultContext): Promise<{ folder: string; manifest: string; tensors: string }> {
  const checkpoints = openCheckpoints(join(folder, "checkpoints"));
  const state = { w: np.arange(12).reshape([3, 4]), step: np.array(7), name: [np.ones([5])] };
  const extras = { config: { optimizer: { learningRate: 0.001 } }, data: [3, 4] };
  const made = await (await checkpoints.save(7, state, extras)).committed;
  const file = (name: string) => join(made.folder, name);
  return {
    folder: made.folder,
    manifest: file("manifest.json"),
    tensors: file("tensors-00001-of-00001.safetensors"),
  };
}

/** Changes the text of a manifest and loads the checkpoint. */
const inManifest = (fault: string, from: string | RegExp, to: string): FaultRow => ({
  fault,
  sees: /manifest\.json, byte \d+: (the file is damaged|not JSON|seal must)/,
  act: async (context) => {
    const { folder, manifest } = await saved(context);
    const text = readFileSync(manifest, "utf8");
    const changed = text.replace(from, to);
    if (changed === text) throw new Error(`nothing to change: ${from}`);
    writeFileSync(manifest, changed);
    return (await openCheckpoint(folder)).restoreTree();
  },
});

/** Changes the file of tensors and loads the checkpoint. */
const inTensors = (fault: string, change: (path: string) => void, sees: RegExp): FaultRow => ({
  fault,
  sees,
  act: async (context) => {
    const { folder, tensors } = await saved(context);
    change(tensors);
    return (await openCheckpoint(folder)).restoreTree();
  },
});

const patch = (path: string, change: (bytes: Buffer) => Buffer) =>
  writeFileSync(path, change(readFileSync(path)));
const flip = (bytes: Buffer, bit: number) => {
  bytes[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
  return bytes;
};

/** Random bits of a file, each changed alone. */
const randomBits = (which: "manifest" | "tensors", count: number): FaultRow => ({
  fault: `${count} random bits of ${which === "manifest" ? "a manifest" : "a file of tensors"}, one at a time`,
  sees: new RegExp(`^${count} of ${count} noticed$`),
  act: async (context) => {
    const files = await saved(context);
    const original = readFileSync(files[which]);
    let noticed = 0;
    for (let i = 0; i < count; i++) {
      writeFileSync(
        files[which],
        flip(Buffer.from(original), Math.floor(context.random() * 8 * original.length)),
      );
      const error = await openCheckpoint(files.folder)
        .then((one) => one.restoreTree())
        .catch((cause: unknown) => cause);
      if (error instanceof FileError) noticed++;
    }
    return `${noticed} of ${count} noticed`;
  },
});

/** Damage to checkpoints. */
export const checkpoints: FaultArea = {
  title: "Damaged checkpoints",
  rows: [
    inManifest("another step in the manifest", '"step": 7', '"step": 9'),
    inManifest("another learning rate in the manifest", "0.001", "0.009"),
    inManifest("another position in the data", /"data": \[\s*3/, '"data": [\n  5'),
    inManifest("another shape in the manifest", /"shape": \[\s*5/, '"shape": [\n    6'),
    inManifest("another type in the manifest", '"float32"', '"int32"'),
    inManifest("another checksum in the manifest", /"sha256": "./, '"sha256": "g'),
    inManifest("another version in the manifest", '"version": 4', '"version": 3'),
    inManifest("no seal", '"seal"', '"sail"'),
    inManifest("half a manifest", /"leaves"[\s\S]*/, ""),
    inManifest("an empty manifest", /[\s\S]+/, ""),
    inManifest("another name of a tensor", '"path": "w"', '"path": "v"'),
    inManifest("a blank more in the manifest", '"step"', ' "step"'),
    randomBits("manifest", 300),
    randomBits("tensors", 150),
    inTensors(
      "a changed element",
      (path) => patch(path, (b) => flip(b, 8 * (b.length - 3))),
      /byte \d+: the file is damaged between here/,
    ),
    inTensors(
      "a changed header",
      (path) => patch(path, (b) => flip(b, 8 * 30)),
      /byte 0: the file is damaged/,
    ),
    inTensors(
      "a file that is cut off",
      (path) => truncateSync(path, 100),
      /has 100 bytes, but the manifest says/,
    ),
    inTensors("an empty file", (path) => truncateSync(path, 0), /has 0 bytes/),
    inTensors(
      "a file that is too long",
      (path) => patch(path, (b) => Buffer.concat([b, b])),
      /bytes, but the manifest says/,
    ),
    inTensors("a missing file", (path) => rmSync(path), /the file is missing/),
    inTensors(
      "a folder instead of a file",
      (path) => {
        rmSync(path);
        mkdirSync(path);
      },
      /the file is missing/,
    ),
    {
      fault: "a checkpoint of a step that is not there",
      sees: /no checkpoint of step 99; there are steps 7/,
      act: async (context) => {
        await saved(context);
        return openCheckpoints(join(context.folder, "checkpoints")).load(99);
      },
    },
    {
      fault: "a manifest of 100,000 levels",
      sees: /at most 200 levels/,
      act: () =>
        parseManifest(
          Buffer.from(
            `{"format":"shardwise-checkpoint","version":1,"step":0,"files":[],"leaves":[],"mesh":null,"tree":${'{"list":['.repeat(1e5)}null${"]}".repeat(1e5)}}`,
          ),
          "m",
        ),
    },
    {
      fault: "a state with another tensor",
      sees: /restore/,
      act: async (context) =>
        (await openCheckpoint((await saved(context)).folder)).restore({ other: np.ones([2]) }),
    },
    {
      fault: "a state of another shape",
      sees: /restore/,
      act: async (context) =>
        (await openCheckpoint((await saved(context)).folder)).restore({
          w: np.ones([9, 9]),
          step: np.array(7),
          name: [np.ones([5])],
        }),
    },
  ],
};

/** A safetensors file with this header and so many bytes of data. */
const header = (value: unknown, bytes = 16, length?: bigint): Buffer => {
  const text = Buffer.from(typeof value === "string" ? value : JSON.stringify(value));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(length ?? BigInt(text.length));
  return Buffer.concat([size, text, Buffer.alloc(bytes)]);
};
const f32 = (shape: readonly unknown[], from: unknown, to: unknown) => ({
  dtype: "F32",
  shape,
  data_offsets: [from, to],
});
const hostile = (fault: string, bytes: Buffer, sees = /byte \d+/): FaultRow => ({
  fault,
  sees,
  act: async ({ folder }) => {
    const path = join(folder, "x.safetensors");
    writeFileSync(path, bytes);
    return String(await readSafetensors(path));
  },
});

/** The first tokens of a text that is not UTF-8. */
async function openText(folder: string, tokenizer: string): Promise<string> {
  const source = join(folder, "text.txt");
  writeFileSync(
    source,
    Buffer.concat([Buffer.from("a b"), Buffer.from([0xff, 0xfe]), Buffer.alloc(100, 65)]),
  );
  const config = tinyConfig(folder, { "data.source": source, "data.tokenizer": tokenizer });
  const { training } = await openRunData(config, folder, { begun: false });
  const [rows] = training.sources;
  return String(rows && "numRows" in rows ? (await rows.read(0)).tokens : "");
}

/** Files of tensors that somebody else made. */
export const safetensors: FaultArea = {
  title: "Hostile files of tensors",
  rows: [
    hostile("a file of tensors without a byte", Buffer.alloc(0)),
    hostile("seven bytes", Buffer.alloc(7)),
    hostile("a header of 2^63 bytes", header({}, 0, 2n ** 63n)),
    hostile("a header longer than the file", header({}, 0, 1000n)),
    hostile("a header that is not JSON", header("{x", 0)),
    hostile("a header that is a list", header([], 0)),
    hostile("a header of 100,000 levels", header("[".repeat(1e5), 0)),
    hostile("an unknown type", header({ x: { dtype: "F31", shape: [4], data_offsets: [0, 16] } })),
    hostile("a negative size in a header", header({ x: f32([-4], 0, 16) })),
    hostile("half a size in a header", header({ x: f32([1.5], 0, 6) })),
    hostile("a tensor of 5 GB in 16 bytes", header({ x: f32([1_250_000_000], 0, 16) })),
    hostile("a size beyond 2^53", header({ x: f32([2 ** 60, 2 ** 60], 0, 16) })),
    hostile("offsets beyond the file", header({ x: f32([4], 100, 116) })),
    hostile("offsets backwards", header({ x: f32([4], 16, 0) })),
    hostile("offsets that are texts", header({ x: f32([4], "0", "16") })),
    hostile("tensors that overlap", header({ x: f32([4], 0, 16), y: f32([2], 8, 16) })),
    hostile("a hole between tensors", header({ x: f32([1], 0, 4), y: f32([1], 12, 16) })),
    hostile("bytes that no tensor has", header({ x: f32([2], 0, 8) })),
    hostile(
      "a name twice",
      header(
        '{"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
      ),
    ),
    hostile("metadata that is a number", header({ __metadata__: 7, x: f32([4], 0, 16) })),
    {
      fault: "a file that is not there",
      sees: /ENOENT|no such file|cannot be/,
      act: ({ folder }) => readSafetensors(join(folder, "none")),
    },
    {
      fault: "a flight recording that is cut off",
      sees: /must be JSON/,
      act: () => parseRecording('{"format":"shardwise-flight"', "f"),
    },
    {
      fault: "a flight recording of another format",
      sees: /format must be/,
      act: () => parseRecording("{}", "f"),
    },
    {
      fault: "a folder without recordings",
      sees: /no file in it is a recording/,
      act: ({ folder }) => readRecordings(folder),
    },
    {
      fault: "a text that is not UTF-8, for a tokeniser of words",
      sees: /byte 3: the text is not UTF-8 here/,
      act: ({ folder }) => openText(folder, "bpe"),
    },
    {
      fault: "a text that is not UTF-8, as bytes",
      sees: /byte 3: the text is not UTF-8 here/,
      act: ({ folder }) => openText(folder, "bytes"),
    },
  ],
};
