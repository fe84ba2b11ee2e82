/** Readers of what runs leave, of models that are loaded whole, and of answers of servers. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { detectLaunch } from "../../src/engines/launch.js";
import { environmentSettings } from "../../src/engines/settings.js";
import "../../src/train/index.js";
import { np } from "../../src/index.js";
import { readRunConfig } from "../../src/train/config/runConfig.js";
import { readRecords } from "../../src/train/data/sources/records.js";
import { urlFile } from "../../src/train/data/sources/sourceFile.js";
import { openCheckpoint, openCheckpoints } from "../../src/train/files/checkpoints/checkpoint.js";
import { checkpointsIn } from "../../src/train/files/checkpoints/pageCheckpoints.js";
import { isObject } from "../../src/train/files/disk/json.js";
import { encodeSafetensors } from "../../src/train/files/safetensors/safetensorsBytes.js";
import {
  importPretrained,
  loadPretrained,
  parameterTypes,
} from "../../src/train/pretrained/loadPretrained.js";
import { readPretrainedConfig } from "../../src/train/pretrained/pretrainedFolder.js";
import { comparePage, compareText, readRuns } from "../../src/train/report/compareRuns.js";
import { openMetricsFile } from "../../src/train/report/metrics.js";
import type { Reader } from "./fuzz.js";
import { asFile, counted, decode, encode, folder, jsonBytes, plain, sealed } from "./inputs.js";

const fixtures = fileURLToPath(new URL("../pretrained/fixtures/", import.meta.url));

/** A folder below that of all inputs. */
function subfolder(name: string): string {
  const path = join(folder, name);
  mkdirSync(path, { recursive: true });
  return path;
}

const records = [
  '{"step":1,"loss":4.5,"seconds":1}\n{"step":2,"loss":"NaN"}\n',
  '{"step":3,"evaluationLoss":2}',
];

/** A checkpoint of two tensors, as the folder of a run has it. */
async function newCheckpoint(): Promise<Uint8Array> {
  const checkpoints = openCheckpoints(subfolder("saved"));
  const values = { w: np.array([1, 2, 3]), v: [np.ones([2, 2]), null] };
  await (await checkpoints.save(1, values)).committed;
  return new Uint8Array(readFileSync(join(folder, "saved", "step-00000001", "manifest.json")));
}

const saved = await newCheckpoint();

/** The files of a checkpoint in a page: the manifest is the input. */
const pageTensors = encodeSafetensors([["w", { dtype: "float32", shape: [2], data: Float32Array.of(1, 2) }]]);
const pageSha = await crypto.subtle.digest("SHA-256", pageTensors.slice());
const pageManifest = {
  bytes: pageTensors.length,
  sha256: Buffer.from(pageSha).toString("hex"),
  metadata: { a: 1 },
};

/** Reads a checkpoint whose tensors are others than the manifest thinks, but with a checksum that is right. */
async function readPage(bytes: Uint8Array, isManifest: boolean): Promise<void> {
  const tensors = isManifest ? pageTensors : bytes;
  const sha = Buffer.from(await crypto.subtle.digest("SHA-256", tensors.slice())).toString("hex");
  const manifest = isManifest ? bytes : jsonBytes({ bytes: bytes.length, sha256: sha, metadata: null });
  const files = new Map([
    ["step-1.json", manifest],
    ["step-1.safetensors", tensors],
  ]);
  const checkpoints = checkpointsIn({
    names: async () => [...files.keys()],
    read: async (name) => files.get(name),
    write: async () => {},
    remove: async () => {},
  });
  await checkpoints.restore({ w: np.zeros([2]) });
}

/** What a server answers: the status, headers and pieces of the body, one after the other. */
async function readFromServer(answers: unknown): Promise<void> {
  const list = Array.isArray(answers) ? answers : [answers];
  let next = 0;
  const { fetch } = globalThis;
  globalThis.fetch = async () => {
    const one: unknown = list[Math.min(next++, list.length - 1)];
    const { status, headers, body } = isObject(one) ? one : {};
    const pieces = Array.isArray(body) ? body : [body];
    const stream = new ReadableStream({
      start(controller) {
        for (const piece of pieces) controller.enqueue(encode(textOf(piece ?? null)));
        controller.close();
      },
    });
    const code = typeof status === "number" && status >= 200 && status <= 599 ? Math.floor(status) : 200;
    const isEmpty = [204, 205, 304].includes(code);
    const named = Object.entries(isObject(headers) ? headers : {}).filter(
      ([name, value]) => /^[a-z-]+$/.test(name) && /^[ -~]*$/.test(textOf(value)),
    );
    return new Response(isEmpty ? null : stream, {
      status: code,
      headers: named.map(([name, value]): [string, string] => [name, textOf(value)]),
    });
  };
  try {
    for await (const _ of readRecords("http://data.example/a.jsonl"));
    const open = await urlFile("http://data.example/a.parquet").open();
    if (open.byteLength > 0) await open.slice(0, 4);
    await open.close();
  } finally {
    globalThis.fetch = fetch;
  }
}

const answer = (status: number, headers: Readonly<Record<string, string>>, ...body: readonly string[]) => ({
  status,
  headers,
  body,
});

/** A small model that was published, and what its tensors must be. */
const published = await readPretrainedConfig(join(fixtures, "llama3"));
const model = { ...published.model, dtype: "float32", remat: "none" } as const;
const parameters = parameterTypes(model, "float32");

const fixture = (path: string) => new Uint8Array(readFileSync(join(fixtures, path)));
/** A value as what only texts can be: JSON may hold objects that do not become texts. */
const textOf = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
const json = (bytes: Uint8Array): unknown => {
  try {
    return JSON.parse(decode(bytes));
  } catch {
    return {};
  }
};

export const runReaders: readonly Reader[] = [
  {
    name: "runs to compare",
    envelope: plain,
    samples: () => {
      writeFileSync(join(subfolder("compared"), "metrics.jsonl"), records.join(""));
      return [jsonBytes(readRunConfig({}, [], 2).config)];
    },
    read: (bytes) =>
      asFile(
        bytes,
        () => {
          const runs = readRuns([join(folder, "compared")]);
          compareText(runs);
          comparePage(runs);
        },
        "compared/config.json",
      ),
  },
  {
    name: "records of compared runs",
    envelope: plain,
    samples: () => {
      writeFileSync(join(subfolder("recorded"), "config.json"), jsonBytes(readRunConfig({}, [], 2).config));
      return [encode(records.join(""))];
    },
    read: (bytes) =>
      asFile(
        bytes,
        () => {
          const runs = readRuns([join(folder, "recorded")]);
          compareText(runs);
          comparePage(runs);
        },
        "recorded/metrics.jsonl",
      ),
  },
  {
    name: "records of a run that goes on",
    envelope: plain,
    samples: () => records.map(encode),
    read: (bytes) => asFile(bytes, (path) => openMetricsFile(path, { resumeAt: 2 }).close()),
  },
  {
    name: "checkpoints",
    envelope: sealed,
    samples: () => [saved],
    read: (bytes) =>
      asFile(
        bytes,
        async () => {
          const checkpoint = await openCheckpoint(join(folder, "saved/step-00000001"));
          await checkpoint.read();
          await checkpoint.restore({ w: np.zeros([3]), v: [np.zeros([2, 2]), null] });
        },
        "saved/step-00000001/manifest.json",
      ),
  },
  {
    name: "manifests of checkpoints in pages",
    envelope: plain,
    samples: () => [jsonBytes(pageManifest)],
    read: (bytes) => readPage(bytes, true),
  },
  {
    name: "tensors of checkpoints in pages",
    envelope: counted(8, (head, length) => head.setBigUint64(0, BigInt(length), true)),
    samples: () => [pageTensors],
    read: (bytes) => readPage(bytes, false),
  },
  {
    name: "answers of servers with data",
    envelope: plain,
    samples: () =>
      [
        [answer(200, { "content-length": "14" }, '{"text":"one"}'), answer(200, {}, "PAR1")],
        [
          answer(200, {}, '{"text":', '"one"}\n'),
          answer(206, { "content-range": "bytes 0-0/8" }, "P"),
          answer(206, { "content-range": "bytes 0-3/8" }, "PAR1"),
        ],
      ].map(jsonBytes),
    read: (bytes) => readFromServer(json(bytes)),
  },
  {
    name: "configurations of models with tensors",
    envelope: plain,
    samples: () => {
      writeFileSync(join(subfolder("configured"), "model.safetensors"), fixture("llama3/model.safetensors"));
      return [fixture("llama3/config.json")];
    },
    read: (bytes) =>
      asFile(bytes, () => loadPretrained(join(folder, "configured")), "configured/config.json").then(
        () => {},
      ),
  },
  {
    name: "tensors of models",
    envelope: counted(8, (head, length) => head.setBigUint64(0, BigInt(length), true)),
    samples: () => {
      subfolder("model of tensors");
      return [fixture("llama3/model.safetensors")];
    },
    read: (bytes) =>
      asFile(
        bytes,
        () => importPretrained(join(folder, "model of tensors"), parameters, model, published, {}),
        "model of tensors/model.safetensors",
      ).then(() => {}),
  },
  {
    name: "environment variables",
    envelope: plain,
    samples: () =>
      [
        { SHARDWISE_MEMORY: "512MiB", SHARDWISE_DEADLINE: "3.5" },
        { OMPI_COMM_WORLD_RANK: "0", OMPI_COMM_WORLD_SIZE: "2", OMPI_COMM_WORLD_LOCAL_RANK: "0" },
        { SLURM_PROCID: "1", SLURM_STEP_NUM_TASKS: "4", SLURM_STEP_TASKS_PER_NODE: "2(x2)" },
      ].map(jsonBytes),
    read: (bytes) => {
      const given = json(bytes);
      const variables = Object.fromEntries(
        Object.entries(isObject(given) ? given : {}).map(([name, value]) => [name, textOf(value)]),
      );
      detectLaunch(variables);
      environmentSettings(variables);
    },
  },
];
