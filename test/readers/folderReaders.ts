/** Readers of folders, and of records of data. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { readRecords } from "../../src/train/data/sources/records.js";
import { openTokenFolder } from "../../src/train/data/tokens/tokenFolder.js";
import { openTokenShards, writeTokenShard } from "../../src/train/data/tokens/tokenShards.js";
import { crc32c } from "../../src/train/files/disk/crc32c.js";
import { encodeSafetensors } from "../../src/train/files/safetensors/safetensorsBytes.js";
import { findTensors } from "../../src/train/files/safetensors/safetensorsFiles.js";
import { runHolder } from "../../src/train/folder/lock.js";
import { readAdapterOptions } from "../../src/train/pretrained/adapters.js";
import { readChatTemplate } from "../../src/train/pretrained/chatFiles.js";
import { parsePretrainedConfig } from "../../src/train/pretrained/pretrainedFolder.js";
import type { Reader } from "./fuzz.js";
import { asFile, binary, encode, folder, jsonBytes, plain } from "./inputs.js";
import type { Envelope } from "./mutate.js";

const fixtures = (name: string) => fileURLToPath(new URL(`../${name}/fixtures/`, import.meta.url));
const fixture = (path: string) => new Uint8Array(readFileSync(path));

/** A folder below that of all inputs. */
function subfolder(name: string): string {
  const path = join(folder, name);
  mkdirSync(path, { recursive: true });
  return path;
}

/** Reads all records of a file with this name. */
async function readAll(bytes: Uint8Array, name: string): Promise<void> {
  for await (const _ of readRecords(new File([new Uint8Array(bytes)], name)));
}

const lines = [
  '{"text": "one", "n": 1}\n{"text": "two"}\n',
  '\ufeff{"messages": [{"role": "user", "content": "a"}]}\r\n\n',
];

const weights = { metadata: { total_size: 8 }, weight_map: { w: "a.safetensors", b: "b.safetensors" } };
const vector = { dtype: "float32", shape: [1], data: Float32Array.of(1) } as const;

const tokenIndex = {
  key: "k",
  kind: "text",
  files: ["plain.tokens"],
  numExamples: 1,
  numDocuments: 1,
  numTokens: 3,
  numSkipped: 0,
};

/** The header of a file of tokens: version, bytes of a token, their number in two words, and the size of the vocabulary. */
const tokenHeader: Envelope = {
  open: (bytes) =>
    bytes.length < 64 ? undefined : JSON.stringify(Array.from(new Uint32Array(bytes.slice(8, 28).buffer))),
  close: (text, bytes) => {
    const result = bytes.slice();
    const view = new DataView(result.buffer);
    const words = text.match(/\d+/g) ?? [];
    for (const [i, word] of words.slice(0, 5).entries()) view.setUint32(8 + 4 * i, Number(word), true);
    view.setUint32(60, crc32c(result.subarray(0, 60)), true);
    return result;
  },
};

const base = parsePretrainedConfig(
  JSON.parse(readFileSync(join(fixtures("pretrained"), "llama3/config.json"), "utf8")),
  "config.json",
);
const adapted = { json: base.json, config: { ...base.model, dtype: "float32", remat: "none" } as const };

const tokenFiles = subfolder("tokens");
for (const [name, marks] of [["plain.tokens"], ["marked.tokens", Uint8Array.of(1, 0, 2)]] as const)
  await writeTokenShard(join(tokenFiles, name), [1, 2, 3], 10, marks);

/** What the `zstd` command has made of some contents. */
interface ZstdRow {
  readonly content: string;
  readonly base64: string;
}

export const folderReaders: readonly Reader[] = [
  {
    name: "records as JSON lines",
    envelope: plain,
    samples: () => lines.map(encode),
    read: (bytes) => readAll(bytes, "a.jsonl"),
  },
  {
    name: "records as JSON",
    envelope: plain,
    samples: () => [jsonBytes([{ text: "one" }, { text: "two" }]), encode(lines[0] ?? "")],
    read: (bytes) => readAll(bytes, "a.json"),
  },
  {
    name: "plain texts",
    envelope: plain,
    samples: () => ["one\r\ntwo\n\nthree", "\ufeffcafé"].map(encode),
    read: (bytes) => readAll(bytes, "a.txt"),
  },
  {
    name: "records as CSV",
    envelope: plain,
    samples: () => ['text,n\none,1\n"a ""quoted"" one",2\n', "\ufefftext\r\nb\r\n"].map(encode),
    read: (bytes) => readAll(bytes, "a.csv"),
  },
  {
    name: "records as Parquet",
    envelope: binary,
    samples: () =>
      readdirSync(fixtures("data"))
        .filter((name) => name.endsWith(".parquet"))
        .map((name) => fixture(join(fixtures("data"), name))),
    read: (bytes) => readAll(bytes, "a.parquet"),
  },
  {
    name: "compressed records",
    envelope: binary,
    samples: () => [
      new Uint8Array(gzipSync(lines[0] ?? "")),
      fixture(join(fixtures("data"), "texts.jsonl.zst")),
    ],
    read: (bytes) => readAll(bytes, "a.jsonl.gz"),
  },
  {
    name: "texts compressed by zstd",
    envelope: binary,
    samples: () => {
      const rows = JSON.parse(
        readFileSync(join(fixtures("data"), "zstd.json"), "utf8"),
      ) as readonly ZstdRow[];
      return rows
        .filter(({ content }) => ["words", "lines"].includes(content))
        .map(({ base64 }) => new Uint8Array(Buffer.from(base64, "base64")));
    },
    read: (bytes) => readAll(bytes, "a.txt.zst"),
  },
  {
    name: "files of tokens",
    envelope: tokenHeader,
    samples: () => ["plain.tokens", "marked.tokens"].map((name) => fixture(join(tokenFiles, name))),
    read: (bytes) =>
      asFile(bytes, async (path) => {
        const shards = await openTokenShards([path]);
        try {
          await shards.read(0, shards.numTokens);
          await shards.readMarks(0, shards.numTokens);
          await shards.verify();
        } finally {
          await shards.close();
        }
      }),
  },
  {
    name: "indices of tokens",
    envelope: plain,
    samples: () => [jsonBytes(tokenIndex)],
    read: (bytes) =>
      asFile(
        bytes,
        async () => {
          const { tokens } = await openTokenFolder(tokenFiles);
          await tokens.close();
        },
        "tokens/index.json",
      ),
  },
  {
    name: "indices of safetensors",
    envelope: plain,
    samples: () => {
      const model = subfolder("model");
      writeFileSync(join(model, "a.safetensors"), encodeSafetensors([["w", vector]]));
      writeFileSync(join(model, "b.safetensors"), encodeSafetensors([["b", vector]]));
      return [jsonBytes(weights)];
    },
    read: (bytes) =>
      asFile(bytes, async (path) => void (await findTensors(path, "test")), "model/x.safetensors.index.json"),
  },
  {
    name: "adapters",
    envelope: plain,
    samples: () =>
      ["llama3-lora", "llama3-dora"].map((name) => {
        subfolder("adapters");
        return fixture(join(fixtures("pretrained"), name, "adapter_config.json"));
      }),
    read: (bytes) =>
      asFile(
        bytes,
        async () => void (await readAdapterOptions(join(folder, "adapters"), adapted)),
        "adapters/adapter_config.json",
      ),
  },
  {
    name: "tokenizer_config.json",
    envelope: plain,
    samples: () => {
      subfolder("chat");
      return [
        { chat_template: "{{ bos_token }}", bos_token: "<s>", eos_token: { content: "</s>" } },
        { chat_template: [{ name: "default", template: "a" }] },
      ].map(jsonBytes);
    },
    read: (bytes) =>
      asFile(
        bytes,
        async () => void (await readChatTemplate(join(folder, "chat"), "test")),
        "chat/tokenizer_config.json",
      ),
  },
  {
    name: "locks of runs",
    envelope: plain,
    samples: () => [jsonBytes({ pid: 2 ** 30, host: "here", started: "1 2" })],
    read: (bytes) => void asFile(bytes, () => runHolder(folder), "run.lock"),
  },
];
