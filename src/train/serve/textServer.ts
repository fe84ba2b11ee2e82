/** Serves a model with OpenAI's HTTP interface. */
import { once, setMaxListeners } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { ConfigError } from "../../ir/errors.js";
import { isLocalHost } from "../../platform/localHost.js";
import { reasonOf, systemCode } from "../files/disk/fileError.js";
import { checkAccess } from "./access.js";
import { AnswerForm } from "./answers.js";
import { readJsonBody } from "./body.js";
import { errorJson, RequestError } from "./requestError.js";
import { readChatRequest, readTextRequest, type TextRequest } from "./requests.js";
import { ServerMetrics } from "./serverMetrics.js";
import { type ServedModel, type ServiceLimits, type StartedTexts, TextService } from "./textService.js";

/** Options of {@link openTextServer}. */
export interface TextServerOptions extends ServiceLimits {
  /** The address to listen on. */
  readonly host: string;
  /** The port; 0 chooses a free one. */
  readonly port: number;
  /** The key that requests must send; may only be left out for addresses of this machine. */
  readonly key?: string | undefined;
  readonly maxBodyBytes: number;
  readonly maxConnections: number;
  /** Milliseconds until an answer must be complete. */
  readonly timeout: number;
  /** Milliseconds a client may take to read what was sent before it is disconnected. */
  readonly stall: number;
}

const jsonType = "application/json; charset=utf-8";

/** The paths with their methods. */
const methods: Readonly<Record<string, string>> = {
  "/health": "GET",
  "/metrics": "GET",
  "/v1/models": "GET",
  "/v1/completions": "POST",
  "/v1/chat/completions": "POST",
};
const modelPath = "/v1/models/";

/** Starts to serve a model. */
export async function openTextServer(model: ServedModel, options: TextServerOptions): Promise<TextServer> {
  const { host, port, key } = options;
  if (key === undefined && !isLocalHost(host)) {
    throw new ConfigError(
      `[serve] ${host} can be reached from other machines: set a key that requests must send, or use 127.0.0.1`,
    );
  }
  if (key !== undefined && !/^[\x21-\x7e]+$/.test(key)) {
    throw new ConfigError("[serve] the key must consist of visible ASCII characters, without spaces");
  }
  // A client may take this long to send its headers, and its whole request.
  const server = createServer({
    headersTimeout: 10_000,
    requestTimeout: 30_000,
    connectionsCheckingInterval: 5000,
  });
  server.maxConnections = options.maxConnections;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) => {
      const taken =
        systemCode(cause) === "EADDRINUSE" ? ": choose another one, or 0 for any that is free" : "";
      reject(new ConfigError(`[serve] cannot listen on port ${port} (${reasonOf(cause)})${taken}`));
    });
    server.listen({ host, port }, resolve);
  });
  return new TextServer(server, new TextService(model, options), options);
}

/** A server of a model; see {@link openTextServer}. */
export class TextServer {
  /** Where it is reached. */
  readonly address: string;
  private readonly metrics = new ServerMetrics();
  private readonly created = Math.floor(Date.now() / 1000);
  /** Requests that are being answered; aborting one ends its texts, and its client gets the reason. */
  private readonly running = new Set<AbortController>();
  private numConnections = 0;
  private isClosing = false;
  private onIdle = () => {};

  constructor(
    private readonly server: Server,
    private readonly service: TextService,
    private readonly options: TextServerOptions,
  ) {
    const bound = server.address();
    const port = typeof bound === "object" ? bound?.port : bound;
    const { host } = options;
    this.address = `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
    server.on("request", (request, response) => this.answer(request, response));
    server.on("connection", (socket) => {
      this.numConnections++;
      socket.on("close", () => this.numConnections--);
    });
    server.on("clientError", (error, socket) => {
      const status =
        systemCode(error) === "ERR_HTTP_REQUEST_TIMEOUT" ? "408 Request Timeout" : "400 Bad Request";
      if (socket.writable) socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\n\r\n`);
      else socket.destroy();
    });
  }

  /** The number of texts that are continued, and of those that wait for a slot. */
  get load(): { readonly active: number; readonly waiting: number } {
    return this.service.load;
  }

  /** Refuses new requests, lets running ones finish, and ends. @param deadline milliseconds until they are ended */
  async close(deadline: number): Promise<void> {
    this.isClosing = true;
    if (this.running.size > 0) {
      const idle = new Promise<void>((resolve) => {
        this.onIdle = resolve;
      });
      const late = setTimeout(() => {
        for (const ended of this.running) ended.abort(new RequestError(503, "the server is shutting down"));
      }, deadline);
      await idle;
      clearTimeout(late);
    }
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeIdleConnections();
    const late = setTimeout(() => this.server.closeAllConnections(), 500);
    await closed;
    clearTimeout(late);
    await this.service.close();
  }

  private answer(request: IncomingMessage, response: ServerResponse): void {
    const path = (request.url ?? "/").replace(/\?.*$/s, "");
    response.on("error", () => response.destroy());
    response.on("finish", () => {
      const known = path.startsWith(modelPath) ? "/v1/models" : path;
      this.metrics.answered(Object.hasOwn(methods, known) ? known : "other", response.statusCode);
    });
    this.route(path, request, response).catch((error: unknown) => {
      const known =
        error instanceof RequestError
          ? error
          : new RequestError(500, `the request could not be answered (${reasonOf(error)})`);
      if (response.destroyed) return;
      if (response.headersSent) response.end(event(errorJson(known)));
      else refuse(response, known, this.isClosing || !request.complete);
    });
  }

  private async route(path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const isModel = path.startsWith(modelPath);
    const method = isModel ? "GET" : Object.hasOwn(methods, path) ? methods[path] : undefined;
    if (path !== "/health") checkAccess(request, this.options.key);
    if (method === undefined)
      throw new RequestError(404, `unknown path ${JSON.stringify(path.slice(0, 100))}`);
    if (request.method !== method && !(method === "GET" && request.method === "HEAD")) {
      response.setHeader("Allow", method);
      throw new RequestError(405, `use ${method} for ${path.slice(0, 100)}`);
    }
    const send = (body: object) => reply(response, 200, jsonType, JSON.stringify(body));
    if (path === "/v1/completions") return this.complete(request, response, false);
    if (path === "/v1/chat/completions") return this.complete(request, response, true);
    if (path === "/v1/models") return send({ object: "list", data: [this.modelJson()] });
    if (isModel) return send(this.modelNamed(path.slice(modelPath.length)));
    if (path === "/metrics") return reply(response, 200, "text/plain; version=0.0.4", this.formatMetrics());
    if (this.isClosing) throw new RequestError(503, "the server is shutting down");
    send({ status: "ok" });
  }

  private formatMetrics(): string {
    const { slots } = this.service.limits;
    return this.metrics.format({ slots, ...this.load, connections: this.numConnections });
  }

  private modelJson(): object {
    const { name, maxLength } = this.service.model;
    const { created } = this;
    return { id: name, object: "model", created, owned_by: "shardwise", max_model_len: maxLength };
  }

  private modelNamed(encoded: string): object {
    const { name } = this.service.model;
    if (encoded === name || encoded === encodeURIComponent(name)) return this.modelJson();
    throw new RequestError(404, `there is no such model: this server has ${JSON.stringify(name)}`, {
      code: "model_not_found",
    });
  }

  private async complete(request: IncomingMessage, response: ServerResponse, isChat: boolean): Promise<void> {
    this.needOpen();
    const ended = new AbortController();
    // Each text of the request listens.
    setMaxListeners(0, ended.signal);
    this.running.add(ended);
    const start = performance.now();
    const { timeout, maxBodyBytes } = this.options;
    const timer = setTimeout(
      () => ended.abort(new RequestError(504, `the answer was not complete after ${timeout / 1000} s`)),
      timeout,
    );
    response.on("close", () => {
      if (!response.writableFinished && !ended.signal.aborted) this.metrics.cancelled++;
      ended.abort(new RequestError(499, "the client disconnected"));
    });
    try {
      const json = await readJsonBody(request, maxBodyBytes);
      // The body may have taken its time.
      this.needOpen();
      const wanted = isChat ? readChatRequest(json) : readTextRequest(json);
      const texts = this.service.start(wanted, ended.signal);
      this.metrics.promptTokens += texts.usage.prompt;
      const form = new AnswerForm(isChat, this.service.model.name, wanted.includeUsage);
      await this.send(response, wanted, this.counted(texts, start), form, ended);
      this.metrics.requestSeconds.add((performance.now() - start) / 1000);
    } finally {
      clearTimeout(timer);
      // Whatever failed, no text is continued without a reader.
      ended.abort();
      this.running.delete(ended);
      if (this.running.size === 0) this.onIdle();
    }
  }

  private needOpen(): void {
    if (this.isClosing) throw new RequestError(503, "the server is shutting down", { retryAfter: 5 });
  }

  /** Counts the tokens of texts. */
  private counted(texts: StartedTexts, start: number): StartedTexts {
    const { metrics } = this;
    const counted = async function* () {
      let isFirst = true;
      for await (const piece of texts.pieces) {
        metrics.generatedTokens++;
        if (isFirst) metrics.firstTokenSeconds.add((performance.now() - start) / 1000);
        isFirst = false;
        yield piece;
      }
    };
    return { ...texts, pieces: counted() };
  }

  private async send(
    response: ServerResponse,
    { isStream }: TextRequest,
    { count, usage, pieces }: StartedTexts,
    form: AnswerForm,
    ended: AbortController,
  ): Promise<void> {
    if (!isStream) {
      const texts = Array.from({ length: count }, () => ({ text: "", finish: "" }));
      for await (const { index, text, finish } of pieces) {
        const one = texts[index];
        if (!one) continue;
        one.text += text;
        one.finish = finish ?? one.finish;
      }
      ended.signal.throwIfAborted();
      reply(response, 200, jsonType, JSON.stringify(form.whole(texts, usage)));
      return;
    }
    response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
    const write = (parts: readonly object[]) =>
      parts.length === 0 ? undefined : this.write(response, parts.map(event).join(""), ended);
    await write(form.first(count));
    for await (const piece of pieces) await write(form.parts(piece));
    ended.signal.throwIfAborted();
    await write(form.last(usage));
    response.end("data: [DONE]\n\n");
  }

  /** Writes to a stream, and waits for a client that reads slowly; one that does not read at all is disconnected. */
  private async write(response: ServerResponse, text: string, ended: AbortController): Promise<void> {
    if (response.write(text)) return;
    const stalled = setTimeout(() => response.destroy(), this.options.stall);
    try {
      await once(response, "drain", { signal: ended.signal });
    } catch {
      ended.signal.throwIfAborted();
    } finally {
      clearTimeout(stalled);
    }
  }
}

const event = (json: object): string => `data: ${JSON.stringify(json)}\n\n`;

function reply(response: ServerResponse, status: number, type: string, body: string): void {
  response.writeHead(status, {
    "Content-Type": type,
    "Content-Length": Buffer.byteLength(body),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
  });
  response.end(body);
}

/** @param isLast whether the connection ends with this answer, such as one to a body that was not read */
function refuse(response: ServerResponse, error: RequestError, isLast: boolean): void {
  const { retryAfter } = error.details;
  if (retryAfter !== undefined) response.setHeader("Retry-After", retryAfter);
  if (error.status === 401) response.setHeader("WWW-Authenticate", "Bearer");
  if (isLast) response.setHeader("Connection", "close");
  reply(response, error.status, jsonType, JSON.stringify(errorJson(error)));
}
