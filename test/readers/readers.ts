/** Every reader of what others may have written, with inputs to begin with. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { formatRecording, parseRecording } from "../../src/engines/flight/recordingText.js";
import {
  encodeFrame,
  FrameReader,
  MAX_UNAUTHENTICATED_BYTES,
  readAnswer,
  readRequest,
} from "../../src/engines/xla/store/messageFrames.js";
import { ValueError } from "../../src/ir/errors.js";
import { parseJson } from "../../src/ir/jsonReaders.js";
import { range } from "../../src/ir/shape.js";
import { parseProgram } from "../../src/ir/text/parse.js";
import { printProgram } from "../../src/ir/text/print.js";
import { makeSchedule, scheduleNames } from "../../src/parallel/schedule/makers.js";
import {
  scheduleFromCsv,
  scheduleFromJson,
  scheduleToCsv,
  scheduleToJson,
} from "../../src/parallel/schedule/tables.js";
import { readRunConfig } from "../../src/train/config/runConfig.js";
import { parseChatTemplate } from "../../src/train/data/chat/chatTemplate.js";
import { parseTokenizer } from "../../src/train/data/tokenizers/tokenizerJson.js";
import { parseManifest } from "../../src/train/files/checkpoints/checkpointManifest.js";
import { seal } from "../../src/train/files/checkpoints/seal.js";
import { isObject } from "../../src/train/files/disk/json.js";
import { encodeSafetensors, parseSafetensors } from "../../src/train/files/safetensors/safetensorsBytes.js";
import { readCalibration } from "../../src/train/plan/calibration.js";
import { readMeasuredDevices } from "../../src/train/plan/measureDevices.js";
import { parsePretrainedConfig } from "../../src/train/pretrained/pretrainedFolder.js";
import { readMetrics } from "../../src/train/report/metrics.js";
import { RequestError } from "../../src/train/serve/requestError.js";
import { readChatRequest, readTextRequest } from "../../src/train/serve/requests.js";
import { caseOf } from "../compare/cases.js";
import { folderReaders } from "./folderReaders.js";
import type { Reader } from "./fuzz.js";
import { asFile, counted, decode, encode, jsonBytes, plain, sealed } from "./inputs.js";
import { runReaders } from "./runReaders.js";

const fixtures = fileURLToPath(new URL("../pretrained/fixtures/", import.meta.url));
function jsonOf(bytes: Uint8Array): unknown {
  return parseJson(decode(bytes), (reason) => new ValueError(`not JSON (${reason})`));
}

const manifest = (version: number) => ({
  format: "shardwise-checkpoint",
  version,
  step: 1,
  mesh: [{ name: "data", size: 2 }],
  rng: null,
  data: { position: 3 },
  config: null,
  tree: {
    object: [
      ["x", 0],
      ["y", { list: [1, null] }],
      ["z", { value: 2, partitioned: ["data", null] }],
    ],
  },
  leaves: ["x", "y/0", "z"].map((path) => ({
    path,
    dtype: "float32",
    shape: [2, 3],
    spec: [["data"]],
    file: 0,
  })),
  files: [
    { name: "tensors-00001-of-00001.safetensors", bytes: 80, sha256: "0".repeat(64), pieces: "0".repeat(16) },
  ],
});

const recording = {
  reason: "SIGTERM",
  time: 12,
  engine: "threads",
  numDevices: 1,
  process: { index: 0, count: 2, pid: 7, host: "here", job: "a" },
  programs: [
    { id: 0, name: "f", collectives: [{ text: "psum", fingerprint: 3, groups: [[0, 1]], source: "a.ts:3" }] },
  ],
  devices: [
    {
      device: 0,
      state: "waiting",
      place: "psum at a.ts:3",
      records: [
        { kind: "run", program: 0, run: 1, sequence: 0, collective: 0, begin: 1, end: null },
        { kind: "collective", program: 0, run: 1, sequence: 1, collective: 0, begin: 2, end: 3 },
      ],
    },
  ],
};

const calibration = {
  version: 3,
  numCores: 2,
  measured: [
    {
      numDevices: 2,
      call: 1e-6,
      products: [{ m: 1, n: 2, k: 3, batch: 1, seconds: 1e-3 }],
      kernels: [{ flops: 1, bytes: 2, seconds: 1e-3 }],
      copies: [{ bytes: 2, seconds: 1e-3 }],
      collectives: [{ size: 2, bytes: 2, seconds: 1e-3 }],
      probes: [{ computing: 1, communication: 1, seconds: 1e-3 }],
    },
  ],
};

const figures = {
  flops: 1e12,
  float32: 1e12,
  efficiency: 0.5,
  attention: 0.5,
  memoryBandwidth: 1e11,
  launch: 1e-6,
};
const devices = { version: 1, device: figures, numDevices: 2, link: { bandwidth: 1e9, latency: 1e-6 } };

const requests = [
  { kind: "hello" },
  { kind: "join", process: 1, count: 2, host: "b", proof: "0".repeat(64) },
  { kind: "members", timeoutMs: 100 },
  { kind: "put", key: "a" },
  { kind: "get", key: "a", timeoutMs: 100, from: 1 },
  { kind: "tryGet", key: "a" },
  { kind: "remove", key: "a" },
  { kind: "leave", timeoutMs: 5 },
];
const answers = [{ ok: true }, { ok: true, hosts: ["a", "b"] }, { ok: false, status: 5, reason: "no" }];
const frameOf = (head: unknown, id: number) =>
  new Uint8Array(encodeFrame({ id, head, value: Uint8Array.of(1, 2, 3) }));

/** Two frames after each other, as a connection may deliver them: in pieces. */
function readFrames(bytes: Uint8Array, check: (head: unknown) => unknown): void {
  const reader = new FrameReader(check);
  reader.maxBytes = MAX_UNAUTHENTICATED_BYTES;
  const half = bytes.length >> 1;
  for (const chunk of [bytes.subarray(0, half), bytes.subarray(half), bytes]) reader.read(chunk);
}

const frames = counted(8, (head, length, rest) => {
  head.setUint32(0, length, true);
  head.setUint32(4, rest, true);
});

const textRequests = [
  { prompt: "a", max_tokens: 3, temperature: 0.5, stop: ["\n"], seed: 1 },
  { model: "m", prompt: [[1, 2], [3]], n: 2, stream: true, stream_options: { include_usage: true } },
  { messages: [{ role: "user", content: "a" }], top_p: 0.5, top_k: 3, min_p: 0.1, repetition_penalty: 1.1 },
  { messages: [{ role: "system", content: [{ type: "text", text: "b" }] }], max_completion_tokens: 2 },
];

const array = { dtype: "float32", shape: [2], data: Float32Array.of(1, 2) } as const;
const scalar = { dtype: "bool", shape: [], data: Uint8Array.of(1) } as const;

const fixtureTexts = (isWanted: (path: string) => boolean) =>
  (readdirSync(fixtures, { recursive: true }) as string[])
    .filter(isWanted)
    .sort()
    .map((path) => new Uint8Array(readFileSync(join(fixtures, path))));

interface ChatFixtures {
  readonly rows: readonly { readonly template: string }[];
}

export const readers: readonly Reader[] = [
  {
    name: "safetensors",
    envelope: counted(8, (head, length) => head.setBigUint64(0, BigInt(length), true)),
    samples: () => [
      encodeSafetensors([["w", array]]),
      encodeSafetensors(
        [
          ["a", array],
          ["b", scalar],
        ],
        [["format", "pt"]],
      ),
      encodeSafetensors([]),
    ],
    read: (bytes) => void parseSafetensors(bytes),
  },
  {
    name: "manifest",
    envelope: sealed,
    samples: () => [jsonBytes(manifest(1)), seal(`${JSON.stringify(manifest(4), null, 1)}\n`)],
    read: (bytes) => void parseManifest(bytes, "manifest.json"),
  },
  {
    name: "tokenizer.json",
    envelope: plain,
    samples: () => fixtureTexts((path) => path.endsWith("tokenizer.json")),
    read: (bytes) => {
      const tokenizer = parseTokenizer(decode(bytes));
      tokenizer.decode(tokenizer.encode("The café's 12 lowest  words\n"));
    },
  },
  {
    name: "config.json of a model",
    envelope: plain,
    samples: () => fixtureTexts((path) => path.endsWith("/config.json")),
    read: (bytes) => {
      const json = jsonOf(bytes);
      if (isObject(json)) parsePretrainedConfig(json, "config.json");
    },
  },
  {
    name: "configuration of a run",
    envelope: plain,
    samples: () =>
      [{}, { steps: 3, model: { numLayers: 1 } }, readRunConfig({}, [], 2).config].map(jsonBytes),
    read: (bytes) => void readRunConfig(jsonOf(bytes), [], 2),
  },
  {
    name: "schedules as JSON",
    envelope: plain,
    samples: () => schedules().map((one) => encode(scheduleToJson(one))),
    read: (bytes) => void scheduleFromJson(decode(bytes)),
  },
  {
    name: "schedules as CSV",
    envelope: plain,
    samples: () => schedules().map((one) => encode(scheduleToCsv(one))),
    read: (bytes) => void scheduleFromCsv(decode(bytes)),
  },
  {
    name: "printed programs",
    envelope: plain,
    samples: () => range(24).map((seed) => encode(printProgram(caseOf(seed, { callbacks: "none" }).program))),
    read: (bytes) => void parseProgram(decode(bytes)),
  },
  {
    name: "flight recordings",
    envelope: plain,
    samples: () => [encode(formatRecording(recording as never))],
    read: (bytes) => void parseRecording(decode(bytes), "flight.json"),
  },
  {
    name: "requests to the store",
    envelope: frames,
    samples: () => requests.map(frameOf),
    read: (bytes) => readFrames(bytes, readRequest),
  },
  {
    name: "answers of the store",
    envelope: frames,
    samples: () => answers.map(frameOf),
    read: (bytes) => readFrames(bytes, readAnswer),
  },
  {
    name: "calibrations of the planner",
    envelope: plain,
    samples: () => [jsonBytes(calibration)],
    read: (bytes) => void asFile(bytes, readCalibration),
  },
  {
    name: "measured devices of the planner",
    envelope: plain,
    samples: () => [jsonBytes(devices)],
    read: (bytes) => void asFile(bytes, readMeasuredDevices),
  },
  {
    name: "records of a run",
    envelope: plain,
    samples: () =>
      ['{"step":1,"loss":4.5}\n{"step":2,"loss":"NaN"}\n', '{"step":3,"evaluationLoss":2}'].map(encode),
    read: (bytes) => void asFile(bytes, readMetrics),
  },
  {
    name: "chat templates",
    envelope: plain,
    samples: () => {
      const text = readFileSync(join(fixtures, "chatTemplates.json"), "utf8");
      return (
        (JSON.parse(text) as ChatFixtures).rows
          .map(({ template }) => template)
          // The others need a tool.
          .filter((template) => !template.includes("items"))
          .map(encode)
      );
    },
    read: (bytes) => {
      const messages = [
        { role: "user", content: "a" },
        { role: "assistant", content: "b" },
      ];
      parseChatTemplate(decode(bytes))(messages, { addGenerationPrompt: true });
    },
  },
  {
    name: "requests for texts",
    envelope: plain,
    samples: () => textRequests.map(jsonBytes),
    read: (bytes) => {
      const json = jsonOf(bytes);
      const isChat = isObject(json) && "messages" in json;
      try {
        (isChat ? readChatRequest : readTextRequest)(json);
      } catch (error) {
        throw error instanceof RequestError ? new ValueError(error.message) : error;
      }
    },
  },
  ...folderReaders,
  ...runReaders,
];

function schedules() {
  return scheduleNames.flatMap((name) =>
    [2, 4].flatMap((numMicrobatches) => {
      try {
        return [makeSchedule(name, { numStages: 2, numMicrobatches })];
      } catch {
        // Some need more microbatches or chunks.
        return [];
      }
    }),
  );
}
