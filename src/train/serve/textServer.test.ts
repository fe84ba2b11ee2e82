import { connect } from "node:net";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { tinyModel } from "../../../test/support/runs.js";
import { np, random } from "../../index.js";
import { byteTokenizer } from "../data/tokenizers/tokenizer.js";
import type { ModelConfig } from "../models/config.js";
import { LanguageModel } from "../models/languageModel.js";
import { openTextServer, type TextServer, type TextServerOptions } from "./textServer.js";
import type { ServedModel } from "./textService.js";

const config: ModelConfig = { ...tinyModel, vocabSize: 288, width: 16, numHeads: 4, mlpWidth: 32 };
const model: ServedModel = {
  name: "tiny",
  config,
  params: LanguageModel(config).init(random.key(3), np.zeros([1, 2], "int32")),
  tokenizer: byteTokenizer(),
  maxLength: 512,
  stopTokens: new Set(),
  chatPrompt: (messages) => messages.map(({ role, content }) => `${role}: ${content}\n`).join(""),
};
const usual: TextServerOptions = {
  host: "127.0.0.1",
  port: 0,
  slots: 2,
  maxWaiting: 8,
  maxTokens: 500,
  maxBodyBytes: 100_000,
  maxConnections: 100,
  timeout: 60_000,
  stall: 1000,
};

/** Servers that a test has opened. */
const opened: TextServer[] = [];
async function open(changes: Partial<TextServerOptions & ServedModel> = {}): Promise<TextServer> {
  const server = await openTextServer({ ...model, ...changes }, { ...usual, ...changes });
  opened.push(server);
  return server;
}
afterEach(async () => {
  await Promise.all(opened.splice(0).map((server) => server.close(0)));
});

const shared = await openTextServer(model, { ...usual, maxWaiting: 100 });
afterAll(() => shared.close(0));

interface Answer {
  readonly choices: readonly {
    readonly index: number;
    readonly text?: string;
    readonly message?: { readonly role: string; readonly content: string };
    readonly delta?: { readonly role?: string; readonly content?: string };
    readonly finish_reason: string | null;
  }[];
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number } | null;
  readonly error?: { readonly message: string; readonly type: string; readonly param: string | null };
}

const post = (server: TextServer, path: string, body: unknown, init: RequestInit = {}) =>
  fetch(server.address + path, {
    method: "POST",
    body: typeof body === "string" ? body : JSON.stringify(body),
    ...init,
    headers: { "Content-Type": "application/json", ...init.headers },
  });

const answerOf = async (response: Response) => (await response.json()) as Answer;
const ask = async (server: TextServer, path: string, body: object) =>
  answerOf(await post(server, path, body));

/** The parts of a stream, whose last event must be `[DONE]`. */
async function stream(server: TextServer, path: string, body: object): Promise<Answer[]> {
  const response = await post(server, path, { ...body, stream: true });
  expect(response.headers.get("content-type")).toBe("text/event-stream");
  const events = (await response.text()).split("\n\n").filter((text) => text !== "");
  expect(events.pop()).toBe("data: [DONE]");
  return events.map((text) => JSON.parse(text.replace(/^data: /, "")) as Answer);
}

/** Milliseconds in which something happens even on a machine that is busy with other things. */
const patience = 100_000;

/** Waits until something is true. */
async function until(isTrue: () => boolean): Promise<void> {
  const end = performance.now() + patience;
  while (!isTrue()) {
    if (performance.now() > end) throw new Error(`it did not happen within ${patience / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const texts = "/v1/completions";
const chats = "/v1/chat/completions";
const sea = { prompt: "The sea", max_tokens: 12, seed: 5 };

describe("texts", () => {
  test("are the same in one answer, in a stream, and next to other requests", async () => {
    const alone = await ask(shared, texts, sea);
    const [choice] = alone.choices;
    expect(choice?.text).not.toBe("");
    expect(choice?.finish_reason).toBe("length");
    expect(alone.usage).toMatchObject({ prompt_tokens: 7, completion_tokens: 12, total_tokens: 19 });
    const others = Array.from({ length: 6 }, (_, i) =>
      ask(shared, texts, { prompt: `other ${i}`, max_tokens: 9 }),
    );
    const parts = await stream(shared, texts, { ...sea, stream_options: { include_usage: true } });
    expect(parts.flatMap(({ choices }) => choices.map(({ text }) => text)).join("")).toBe(choice?.text);
    expect(parts.at(-2)?.choices[0]?.finish_reason).toBe("length");
    expect(parts.at(-1)).toMatchObject({ choices: [], usage: alone.usage });
    await Promise.all(others);
    expect((await ask(shared, texts, { ...sea, seed: 6 })).choices[0]?.text).not.toBe(choice?.text);
  });

  test("of several prompts have the order of the prompts", async () => {
    const { choices } = await ask(shared, texts, { ...sea, prompt: ["The sea", "ship"], n: 2 });
    expect(choices.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
    const one = async (prompt: unknown, seed: number) =>
      (await ask(shared, texts, { ...sea, prompt, seed })).choices[0]?.text;
    expect(choices.map(({ text }) => text)).toEqual([
      await one("The sea", 5),
      await one([...model.tokenizer.encode("The sea")], 6),
      await one("ship", 5),
      await one([[...model.tokenizer.encode("ship")]], 6),
    ]);
  });

  test("can have any seed that is an integer of JavaScript's", async () => {
    for (const seed of [Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER, -1, 0]) {
      const { choices } = await ask(shared, texts, { ...sea, seed, n: 2 });
      expect(choices.map(({ finish_reason }) => finish_reason)).toEqual(["length", "length"]);
      expect(choices[0]?.text).not.toBe(choices[1]?.text);
    }
  });

  test("end before a stop string", async () => {
    const whole = (await ask(shared, texts, sea)).choices[0]?.text ?? "";
    const stop = whole.slice(3, 5);
    for (const stops of [stop, ["never there", stop]]) {
      const { choices } = await ask(shared, texts, { ...sea, stop: stops });
      expect(choices[0]).toMatchObject({
        text: whole.slice(0, whole.indexOf(stop)),
        finish_reason: "stop",
      });
    }
  });

  test("of chats are messages, and parts of them in streams", async () => {
    const body = { messages: [{ role: "user", content: "Hello" }], max_completion_tokens: 10, seed: 1 };
    const { choices } = await ask(shared, chats, { ...body, model: "tiny" });
    const prompt = "user: Hello\n";
    const { text } = (await ask(shared, texts, { prompt, max_tokens: 10, seed: 1 })).choices[0] ?? {};
    expect(choices[0]?.message).toEqual({ role: "assistant", content: text });
    const deltas = (await stream(shared, chats, body)).map((part) => part.choices[0]?.delta ?? {});
    expect(deltas[0]).toEqual({ role: "assistant", content: "" });
    expect(deltas.map(({ content = "" }) => content).join("")).toBe(text);
    const parts = [
      { type: "text", text: "Hel" },
      { type: "text", text: "lo" },
    ];
    const inParts = await ask(shared, chats, { ...body, messages: [{ role: "user", content: parts }] });
    expect(inParts.choices[0]?.message?.content).toBe(text);
  });

  test("of fifty clients at once are those of one", async () => {
    const seeds = Array.from({ length: 50 }, (_, i) => i % 5);
    const bodyOf = (seed: number) => ({ prompt: `Text ${seed}`, max_tokens: 8, seed });
    const drawn = await Promise.all(
      seeds.map(async (seed, i) => {
        if (i % 2 === 0) return (await ask(shared, texts, bodyOf(seed))).choices[0]?.text;
        const parts = await stream(shared, texts, bodyOf(seed));
        return parts.map((part) => part.choices[0]?.text).join("");
      }),
    );
    expect(new Set(drawn).size).toBe(5);
    for (const seed of [0, 1, 2, 3, 4]) {
      const alone = (await ask(shared, texts, bodyOf(seed))).choices[0]?.text;
      expect(drawn.filter((_, i) => seeds[i] === seed)).toEqual(Array(10).fill(alone));
    }
  });
});

const deep = (depth: number) => `${"[".repeat(depth)}${"]".repeat(depth)}`;
const hello = [{ role: "user", content: "hi" }];

test.each<[path: string, body: unknown, status: number, message: RegExp]>([
  [texts, "{", 400, /^the body is not JSON/],
  [texts, "", 400, /^the body is not JSON/],
  [texts, "null", 400, /^the body must be an object, got null/],
  [texts, deep(20_000), 400, /^the body must be an object, got a list of 1/],
  [texts, `{"prompt":${deep(20_000)}}`, 400, /^prompt\[0\] must be a string or an array of tokens/],
  [texts, `{"metadata":${deep(20_000)}}`, 400, /^prompt must be a string, an array of tokens/],
  [texts, {}, 400, /^prompt must be/],
  [texts, { prompt: 5 }, 400, /^prompt must be .*, got 5/],
  [texts, { prompt: [] }, 400, /^prompt must be/],
  [texts, { prompt: [1, "a"] }, 400, /^prompt\[1\] must be an integer/],
  [texts, { prompt: [-1] }, 400, /^prompt\[0\] must be an integer of at least 0/],
  [texts, { prompt: [1e6] }, 400, /^a prompt has the token 1000000: the vocabulary has the tokens 0 to 256/],
  [texts, { prompt: "a", max_tokens: "9" }, 400, /^max_tokens must be an integer .*, got "9"/],
  [texts, { prompt: "a", max_tokens: 1.5 }, 400, /^max_tokens must be an integer/],
  [texts, { prompt: "a", max_tokens: 501 }, 400, /^max_tokens is 501: this server adds at most 500/],
  [texts, `{"prompt":"a","max_tokens":1e999}`, 400, /^max_tokens must be an integer/],
  [texts, { prompt: "a".repeat(500), max_tokens: 20 }, 400, /500 tokens, with max_tokens 20 that is 520/],
  [texts, { prompt: "a".repeat(90_000) }, 400, /90000 tokens/],
  [texts, { prompt: "a".repeat(100_000) }, 413, /larger than 100000 bytes/],
  [texts, { prompt: "a".repeat(1_000_000) }, 413, /larger than 100000 bytes/],
  [texts, { prompt: "a", temperature: 3 }, 400, /^temperature must be a number from 0 to 2, got 3/],
  [texts, { prompt: "a", top_p: 0 }, 400, /^top_p must be a number above 0/],
  [texts, { prompt: "a", seed: 1e300 }, 400, /^seed must be an integer/],
  [texts, { prompt: "a", repetition_penalty: 1e-300 }, 400, /^repetition_penalty must be a number from 0.01/],
  [texts, { prompt: "a", stop: [""] }, 400, /^stop\[0\] must be a string that is not empty/],
  [texts, { prompt: "a", stop: Array(17).fill("x") }, 400, /^stop must have at most 16/],
  [texts, { prompt: "a", n: 17 }, 400, /^n must be an integer from 1 to 16/],
  [texts, { prompt: Array(103).fill("a") }, 400, /asks for 103 texts: ask for at most 102/],
  [texts, { prompt: "a", stream: "yes" }, 400, /^stream must be true or false/],
  [texts, { prompt: "a", logprobs: 3 }, 400, /^logprobs is not supported/],
  [texts, { prompt: "a", temprature: 1 }, 400, /unknown field "temprature"; did you mean temperature\?/],
  [texts, `{"prompt":"a","__proto__":{}}`, 400, /unknown field "__proto__"/],
  [texts, { prompt: "a", model: "other" }, 404, /there is no model "other": this server has "tiny"/],
  [chats, { messages: [] }, 400, /^messages must have at least one message/],
  [chats, { messages: "hi" }, 400, /^messages must be an array/],
  [chats, { messages: [{ role: "tool", content: "a" }] }, 400, /^messages\[0\].role must be one of/],
  [chats, { messages: [{ role: "user" }] }, 400, /^messages\[0\].content must be/],
  [chats, { messages: [{ role: "user", content: [{ type: "image_url" }] }] }, 400, /reads only text/],
  [chats, { messages: hello, tools: [{}] }, 400, /^tools is not supported/],
])("a body that a request to %s must not have is refused: %#", async (path, body, status, message) => {
  const response = await post(shared, path, body);
  const { error } = await answerOf(response);
  expect(error?.message).toMatch(message);
  expect(response.status).toBe(status);
  expect(error).toMatchObject({ type: "invalid_request_error" });
});

test("bodies of other types, other methods and unknown paths are refused", async () => {
  const plain = await post(shared, texts, sea, { headers: { "Content-Type": "text/plain" } });
  expect(plain.status).toBe(415);
  const gone = await fetch(`${shared.address}/v1/nothing`);
  expect([gone.status, (await answerOf(gone)).error?.message]).toEqual([404, 'unknown path "/v1/nothing"']);
  const read = await fetch(shared.address + texts);
  expect([read.status, read.headers.get("allow")]).toEqual([405, "POST"]);
  const invalid = new Uint8Array([0x22, 0xff, 0x22]);
  const response = await fetch(shared.address + texts, {
    method: "POST",
    body: invalid,
    headers: { "Content-Type": "application/json" },
  });
  expect((await answerOf(response)).error?.message).toBe("the body is not UTF-8");
});

test("models, health and metrics can be read", async () => {
  const server = await open();
  const read = async (path: string) => (await fetch(server.address + path)).text();
  expect(JSON.parse(await read("/v1/models"))).toMatchObject({ object: "list", data: [{ id: "tiny" }] });
  expect(JSON.parse(await read("/v1/models/tiny"))).toMatchObject({ id: "tiny", object: "model" });
  expect(JSON.parse(await read("/health"))).toEqual({ status: "ok" });
  await ask(server, texts, sea);
  const metrics = await read("/metrics");
  expect(metrics).toContain('shardwise_requests_total{path="/v1/completions",status="200"} 1\n');
  expect(metrics).toContain("shardwise_prompt_tokens_total 7\n");
  expect(metrics).toContain("shardwise_generated_tokens_total 12\n");
  expect(metrics).toContain("shardwise_slots 2\n");
  expect(metrics).toContain("shardwise_first_token_seconds_count 1\n");
  for (const line of metrics.trimEnd().split("\n")) {
    expect(line).toMatch(/^(# (HELP|TYPE) \w+ .+|\w+(\{[^}]*\})? [\d.e+-]+)$/);
  }
});

describe("access", () => {
  test("needs the key, if there is one", async () => {
    const server = await open({ key: "secret-1" });
    const status = async (headers: Record<string, string>, path = "/v1/models") =>
      (await fetch(server.address + path, { headers })).status;
    expect(await status({})).toBe(401);
    expect(await status({ Authorization: "Bearer secret-2" })).toBe(401);
    expect(await status({ Authorization: "Bearer secret" })).toBe(401);
    expect(await status({ Authorization: "Bearer secret-1" })).toBe(200);
    expect(await status({}, "/metrics")).toBe(401);
    expect(await status({}, "/health")).toBe(200);
    expect((await post(server, texts, sea)).status).toBe(401);
  });

  test("from other machines needs a key", async () => {
    await expect(openTextServer(model, { ...usual, host: "0.0.0.0" })).rejects.toThrow(/set a key/);
    await expect(openTextServer(model, { ...usual, key: "a b" })).rejects.toThrow(/without spaces/);
    const server = await open({ host: "0.0.0.0", key: "k" });
    const address = server.address.replace("0.0.0.0", "127.0.0.1");
    expect((await fetch(`${address}/v1/models`, { headers: { Authorization: "Bearer k" } })).status).toBe(
      200,
    );
  });

  test("under another name is refused without a key", async () => {
    const { port } = new URL(shared.address);
    const socket = connect(Number(port), "127.0.0.1");
    socket.end("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    let said = "";
    for await (const chunk of socket) said += String(chunk);
    expect(said).toMatch(/^HTTP\/1.1 403 /);
  });
});

test("a model without a chat template says so", async () => {
  const server = await open({ chatPrompt: undefined });
  const response = await post(server, chats, { messages: hello });
  expect(response.status).toBe(400);
  expect((await answerOf(response)).error?.message).toMatch(/no chat template: use \/v1\/completions/);
});

const long = { prompt: "a", max_tokens: 500, seed: 1 };

test("clients that disconnect free their slots and places", async () => {
  const server = await open({ slots: 1, maxWaiting: 1 });
  const leaving = [new AbortController(), new AbortController()];
  const requests = leaving.map(async ({ signal }, i) => {
    const response = await post(server, texts, { ...long, stream: i === 0 }, { signal });
    return response.text();
  });
  await until(() => server.load.active === 1 && server.load.waiting === 1);
  const full = await post(server, texts, sea);
  expect([full.status, full.headers.get("retry-after")]).toEqual([429, "1"]);
  expect((await answerOf(full)).error).toMatchObject({ type: "rate_limit_error" });
  for (const one of leaving) one.abort();
  await Promise.all(requests.map((one) => expect(one).rejects.toThrow()));
  await until(() => server.load.active === 0 && server.load.waiting === 0);
  const next = await ask(server, texts, sea);
  expect(next.choices[0]?.text).toBe((await ask(shared, texts, sea)).choices[0]?.text);
  const metrics = await (await fetch(`${server.address}/metrics`)).text();
  expect(metrics).toContain("shardwise_cancelled_total 2\n");
});

test("an answer that takes too long is ended", async () => {
  const server = await open({ timeout: 100 });
  const response = await post(server, texts, long);
  expect(response.status).toBe(504);
  const streamed = await (await post(server, texts, { ...long, stream: true })).text();
  expect(streamed).toMatch(/data: {"error":{"message":"the answer was not complete after 0.1 s".*\n\n$/);
  await until(() => server.load.active === 0);
});

describe("a server that shuts down", () => {
  test("finishes what runs and refuses what is new", async () => {
    const server = await open();
    const running = ask(server, texts, { ...long, max_tokens: 100 });
    await until(() => server.load.active === 1);
    const closed = server.close(patience);
    expect((await fetch(`${server.address}/health`)).status).toBe(503);
    const refused = await post(server, texts, sea);
    expect([refused.status, refused.headers.get("connection")]).toEqual([503, "close"]);
    expect((await running).choices[0]?.finish_reason).toBe("length");
    await closed;
    await expect(fetch(server.address)).rejects.toThrow();
  });

  test("ends what takes longer than the deadline", async () => {
    const server = await open();
    const running = [post(server, texts, long), post(server, texts, { ...long, stream: true })];
    await until(() => server.load.active === 2);
    await server.close(50);
    const [whole, streamed] = await Promise.all(running);
    expect(whole?.status).toBe(503);
    expect(await streamed?.text()).toContain('"message":"the server is shutting down"');
  });
});

test("a client that does not read is disconnected, and others are served", async () => {
  // With long tokens, the buffers of the system are soon full.
  const decode = (tokens: ArrayLike<number>) => "x".repeat(2 ** 16 * tokens.length);
  const server = await open({ stall: 200, tokenizer: { ...model.tokenizer, decode } });
  const { port } = new URL(server.address);
  const socket = connect(Number(port), "127.0.0.1");
  socket.pause();
  const body = JSON.stringify({ ...long, stream: true });
  const head = `POST ${texts} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json`;
  socket.write(`${head}\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  const cancelled = async () =>
    (await (await fetch(`${server.address}/metrics`)).text()).match(
      /^shardwise_cancelled_total (\d+)$/m,
    )?.[1];
  await until(() => server.load.active === 1);
  expect((await ask(server, texts, sea)).choices[0]?.finish_reason).toBe("length");
  await until(() => server.load.active === 0);
  await expect.poll(cancelled, { timeout: patience }).toBe("1");
  socket.destroy();
});
