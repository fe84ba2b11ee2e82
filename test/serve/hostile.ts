/** Requests that no client should send, over plain sockets. */
import assert from "node:assert/strict";
import { connect, type Socket } from "node:net";

/** A request, and what the server answers: the beginning of the first line, or nothing. */
interface Hostile {
  readonly name: string;
  readonly bytes: Uint8Array;
  readonly answer: RegExp;
  /** Whether the client then ends its side, though the request is not complete. */
  readonly ends?: boolean;
}

const head = (headers: Readonly<Record<string, string | number>>): string =>
  [
    ...["POST /v1/completions HTTP/1.1", "Host: 127.0.0.1", "Authorization: Bearer secret"],
    ...["Content-Type: application/json", "Connection: close"],
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    "\r\n",
  ].join("\r\n");

function withBody(name: string, body: Uint8Array, answer = /^HTTP\/1\.1 400 /): Hostile {
  return { name, bytes: Buffer.concat([Buffer.from(head({ "Content-Length": body.length })), body]), answer };
}

const json = (name: string, body: object) => withBody(name, Buffer.from(JSON.stringify(body)));
const text = (name: string, body: string) => withBody(name, Buffer.from(body));

/** What every kind of hostile client sends. */
export const hostileRequests: readonly Hostile[] = [
  withBody("a body of 2 MiB", Buffer.alloc(2 ** 21, " "), /^HTTP\/1\.1 413 /),
  {
    name: "a body of a terabyte, of which nothing comes",
    bytes: Buffer.from(head({ "Content-Length": 2 ** 40 })),
    answer: /^HTTP\/1\.1 413 /,
  },
  text("arrays in arrays", "[".repeat(500_000)),
  text("a prompt in arrays", `{"prompt": ${"[".repeat(100_000)}${"]".repeat(100_000)}}`),
  text("no JSON", '{"prompt": "a",'),
  text("nothing", ""),
  withBody("broken UTF-8", Buffer.from([...Buffer.from('{"prompt": "'), 0xff, 0xc3, ...Buffer.from('"}')])),
  json("a prompt that is an object", { prompt: { a: 1 } }),
  json("a prompt of tokens that are no integers", { prompt: [1.5, -3, null] }),
  json("a prompt of tokens beyond the vocabulary", { prompt: [2 ** 31] }),
  json("a number as a string", { prompt: "a", max_tokens: "12" }),
  json("a negative number of tokens", { prompt: "a", max_tokens: -1 }),
  json("a million texts", { prompt: "a", n: 1e6 }),
  json("a temperature that is an array", { prompt: "a", temperature: [1] }),
  json("a flag as a string", { prompt: "a", stream: "yes" }),
  json("an unknown field", { prompt: "a", constructor: 1 }),
  text("a prototype", '{"prompt": "a", "__proto__": {"stream": true}}'),
  {
    name: "broken chunks",
    bytes: Buffer.from(`${head({ "Transfer-Encoding": "chunked" })}zz\r\n{}\r\n`),
    answer: /^HTTP\/1\.1 400 /,
  },
  { name: "no HTTP", bytes: Buffer.from([0x16, 3, 1, 0, 200, 13, 10, 13, 10]), answer: /^HTTP\/1\.1 400 / },
  {
    name: "headers without end",
    bytes: Buffer.from(`${head({ "X-Long": "a".repeat(100_000) })}`),
    answer: /^HTTP\/1\.1 4/,
  },
  {
    name: "half of a body, and then no more",
    bytes: Buffer.from(`${head({ "Content-Length": 100 })}{"prompt":`),
    answer: /^(HTTP\/1\.1 400 |$)/,
    ends: true,
  },
];

const open = (address: string): Socket => {
  const { hostname, port } = new URL(address);
  return connect(Number(port), hostname);
};

/** Sends a request, and checks the answer. */
export async function sendHostile(
  address: string,
  { name, bytes, answer, ends = false }: Hostile,
): Promise<void> {
  const socket = open(address);
  const received = await new Promise<string>((resolve) => {
    let all = "";
    socket.on("data", (data) => {
      all += data.toString("latin1");
    });
    // A server may close the connection of a client that is still sending.
    socket.on("error", () => {});
    socket.on("close", () => resolve(all));
    socket.setTimeout(60_000, () => socket.destroy());
    if (ends) socket.end(bytes);
    else socket.write(bytes);
  });
  assert.match(received, answer, name);
}

/** Sends half of a request and then nothing; resolves when the server closes the connection. */
export function sendHalf(address: string): { readonly closed: Promise<void> } {
  const socket = open(address);
  socket.write(`${head({ "Content-Length": 100 })}{"prompt":`);
  socket.on("error", () => {});
  const closed = new Promise<void>((resolve) => {
    socket.resume().on("close", () => resolve());
  });
  return { closed };
}
