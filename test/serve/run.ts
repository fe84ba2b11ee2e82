/**
 * Uses the server with OpenAI's own client, which is fetched from npm into a temporary folder:
 *
 *   npm run test:serve                 200 clients
 *   npm run test:serve -- --clients 50
 *
 * Most clients want texts. Of ten, one leaves in the middle of a text, one reads slowly, and one sends what no client
 * should (hostile.ts); meanwhile, some have sent half of a request and wait.
 *
 * Ends with 0 when all answers are right, with 1 when one is not, and with 3 when the client could not be fetched.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { np, random } from "../../src/index.js";
import { byteTokenizer } from "../../src/train/data/tokenizers/tokenizer.js";
import type { ModelConfig } from "../../src/train/models/config.js";
import { LanguageModel } from "../../src/train/models/languageModel.js";
import { openTextServer } from "../../src/train/serve/textServer.js";
import { hostileRequests, sendHalf, sendHostile } from "./hostile.js";

interface Choice {
  readonly text?: string;
  readonly message?: { readonly content: string };
  readonly delta?: { readonly content?: string };
}
type Chunks = AsyncIterable<{ readonly choices: readonly Choice[] }> & {
  readonly controller: AbortController;
};
type Create = {
  (body: object & { readonly stream: true }): Promise<Chunks>;
  (body: object): Promise<{ readonly choices: readonly Choice[] }>;
};

/** What is used of the client. */
interface OpenAI {
  readonly completions: { readonly create: Create };
  readonly chat: { readonly completions: { readonly create: Create } };
  readonly models: { list(): Promise<{ readonly data: readonly { readonly id: string }[] }> };
}
type OpenAIClass = new (options: object) => OpenAI;

const config: ModelConfig = {
  kind: "llama",
  vocabSize: 288,
  width: 16,
  numLayers: 2,
  numHeads: 4,
  numKvHeads: 2,
  mlpWidth: 32,
  tieEmbeddings: true,
  ropeBase: 10_000,
  normEpsilon: 1e-6,
  dtype: "float32",
  remat: "none",
};

async function fetchClient(folder: string): Promise<OpenAIClass | undefined> {
  writeFileSync(join(folder, "package.json"), "{}");
  const { status } = spawnSync("npm", ["install", "--silent", "--no-audit", "openai"], {
    cwd: folder,
    stdio: ["ignore", "ignore", "inherit"],
  });
  if (status !== 0) return undefined;
  const path = join(folder, "node_modules", "openai", "index.mjs");
  const loaded = (await import(pathToFileURL(path).href)) as { readonly default: OpenAIClass };
  return loaded.default;
}

const openServer = (numClients: number) =>
  openTextServer(
    {
      ...{ name: "tiny", config, tokenizer: byteTokenizer(), maxLength: 256, stopTokens: new Set<number>() },
      params: LanguageModel(config).init(random.key(3), np.zeros([1, 2], "int32")),
      chatPrompt: (messages) => messages.map(({ role, content }) => `${role}: ${content}\n`).join(""),
    },
    {
      ...{ host: "127.0.0.1", port: 0, key: "secret", slots: 16, maxWaiting: numClients, maxTokens: 200 },
      ...{ maxBodyBytes: 2 ** 20, maxConnections: 2 * numClients, timeout: 300_000, stall: 30_000 },
    },
  );

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** The text of a request, in one answer or as a stream. @param pause milliseconds between the parts of a stream */
async function textOf(
  client: OpenAI,
  isChat: boolean,
  isStream: boolean,
  seed: number,
  pause = 0,
): Promise<string> {
  const endpoint = isChat ? client.chat.completions : client.completions;
  const input = isChat ? { messages: [{ role: "user", content: "Hello" }] } : { prompt: "user: Hello\n" };
  const body = { model: "tiny", ...input, max_tokens: 12, seed };
  if (!isStream) {
    const [choice] = (await endpoint.create(body)).choices;
    return choice?.message?.content ?? choice?.text ?? "";
  }
  let text = "";
  for await (const { choices } of await endpoint.create({ ...body, stream: true })) {
    text += choices[0]?.delta?.content ?? choices[0]?.text ?? "";
    if (pause > 0) await sleep(pause);
  }
  return text;
}

async function useServer(Client: OpenAIClass, numClients: number): Promise<void> {
  const server = await openServer(numClients);
  const clientWith = (apiKey: string) =>
    new Client({ baseURL: `${server.address}/v1`, apiKey, maxRetries: 0 });
  try {
    const client = clientWith("secret");
    assert.deepEqual(
      (await client.models.list()).data.map(({ id }) => id),
      ["tiny"],
    );
    await assert.rejects(clientWith("wrong").models.list(), { status: 401 });
    await assert.rejects(client.completions.create({ model: "other", prompt: "a" }), { status: 404 });
    await assert.rejects(client.completions.create({ model: "tiny", prompt: "a", temperature: 9 }), {
      status: 400,
      param: "temperature",
    });
    const seeds = [0, 1, 2, 3, 4];
    const want = await Promise.all(seeds.map((seed) => textOf(client, false, false, seed)));
    assert.equal(new Set(want).size, seeds.length);
    const clients = Array.from({ length: numClients }, (_, i) => i);
    const silent = hostileRequests.map(() => sendHalf(server.address));
    const drawn = clients.map(async (i) => {
      const request = hostileRequests[Math.floor(i / 10) % hostileRequests.length];
      if (i % 10 === 7 && request) return sendHostile(server.address, request);
      if (i % 10 === 9) {
        const body = { model: "tiny", prompt: "a", max_tokens: 200, stream: true } as const;
        const chunks = await clientWith("secret").completions.create(body);
        for await (const _ of chunks) break;
        return;
      }
      const isSlow = i % 10 === 8;
      const text = await textOf(
        ...([clientWith("secret"), i % 2 === 0, isSlow || i % 3 === 0] as const),
        ...([i % 5, isSlow ? 50 : 0] as const),
      );
      assert.equal(text, want[i % 5]);
    });
    await Promise.all(drawn);
    // However few clients there are, every hostile request is sent.
    await Promise.all(hostileRequests.map((request) => sendHostile(server.address, request)));
    while (server.load.active > 0) await sleep(10);
    assert.deepEqual(server.load, { active: 0, waiting: 0 });
    assert.equal(await textOf(client, false, false, 0), want[0]);
    const closing = server.close(0);
    await Promise.all(silent.map(({ closed }) => closed));
    await closing;
  } finally {
    await server.close(0);
  }
}

const given = process.argv.indexOf("--clients");
const numClients = given < 0 ? 200 : Number(process.argv[given + 1]);
const folder = mkdtempSync(join(tmpdir(), "shardwise-openai-"));
try {
  const Client = await fetchClient(folder);
  if (Client) {
    const start = performance.now();
    await useServer(Client, numClients);
    console.log(
      `${numClients} clients were answered in ${((performance.now() - start) / 1000).toFixed(1)} s`,
    );
  } else {
    console.log("the package openai could not be fetched from npm");
  }
  process.exitCode = Client ? 0 : 3;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit();
