/**
 * Serves the page of a run while it trains, to browsers on this machine alone. The run only says that something has
 * changed; the page is drawn later, at most once a second, and only while somebody reads it. A reader who is slow gets
 * fewer updates: no more than one waits in memory for each.
 */
import { createReadStream } from "node:fs";
import { lstat, readdir } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { ConfigError } from "../../ir/errors.js";
import { formatBytes } from "../../ir/shape.js";
import { reasonOf, systemCode } from "../files/disk/fileError.js";
import { escapeHtml } from "./charts.js";
import { type PageSection, pageHtml } from "./reportPage.js";

/** What is served: the report of a run, as far as it is known. */
export interface LiveView {
  readonly title: string;
  /** The run's folder, whose checkpoints can be downloaded. */
  readonly folder: string;
  sections(): readonly PageSection[];
}

/** Options of {@link openLivePage}. */
export interface LivePageOptions {
  /** The port to listen on; 0, the default, chooses a free one. */
  readonly port?: number;
  /** Milliseconds between updates; 1000 by default. */
  readonly interval?: number;
}

/** Maximum number of browsers that are kept up to date. */
const maxReaders = 32;

/** How long readers may take to receive the last update, in milliseconds. */
const farewell = 500;

/** A browser that is kept up to date. */
interface Reader {
  readonly response: ServerResponse;
  /** The sections that it has. */
  readonly sent: Map<string, string>;
}

const script = `
const main = document.querySelector("main");
const replace = (element, html) => {
  const open = [...element.querySelectorAll("details")].map((one) => one.open);
  const reachable = (all) => [...all.querySelectorAll("summary, a, [tabindex]")];
  const focused = reachable(element).indexOf(document.activeElement);
  element.innerHTML = html;
  element.querySelectorAll("details").forEach((one, i) => { one.open = open[i] ?? false; });
  if (focused >= 0) reachable(element)[focused]?.focus({ preventScroll: true });
};
const tell = (text) => { document.getElementById("connection").textContent = text; };
const source = new EventSource("events");
source.onopen = () => tell("This page updates automatically.");
source.onerror = () => tell("The connection is lost; trying again.");
source.onmessage = ({ data }) => {
  const { order, sections } = JSON.parse(data);
  let before = null;
  for (const id of order.reverse()) {
    let element = document.getElementById(id);
    if (!element) {
      element = document.createElement("div");
      element.id = id;
      main.insertBefore(element, before);
    }
    if (id in sections) replace(element, sections[id]);
    before = element;
  }
};
source.addEventListener("end", ({ data }) => { source.close(); tell(JSON.parse(data)); });
`;

const headers = {
  "Cache-Control": "no-store",
  "Content-Security-Policy":
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
};

/** Starts to serve; the page is empty until it is given a view. */
export async function openLivePage(options: LivePageOptions = {}): Promise<LivePage> {
  const { port = 0, interval = 1000 } = options;
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) => {
      const taken =
        systemCode(cause) === "EADDRINUSE" ? ": choose another one, or 0 for any that is free" : "";
      reject(new ConfigError(`[watch] cannot listen on port ${port} (${reasonOf(cause)})${taken}`));
    });
    // Other machines never see it; to read it from one, forward the port by ssh.
    server.listen({ host: "127.0.0.1", port }, resolve);
  });
  return new LivePage(server, interval);
}

/** A page about a run that trains; see {@link openLivePage}. */
export class LivePage {
  /** Where to read it. */
  readonly address: string;
  private view: LiveView | undefined;
  private readonly readers = new Set<Reader>();
  private timer: NodeJS.Timeout | undefined;
  private drawnAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly server: Server,
    private readonly interval: number,
  ) {
    const address = server.address();
    this.address = `http://localhost:${typeof address === "object" ? address?.port : address}/`;
    server.on("request", (request, response) => {
      this.answer(request, response).catch((error: unknown) => {
        if (response.headersSent) response.destroy();
        else if (error instanceof URIError) refuse(response, 404, "there is no such page");
        else refuse(response, 500, `the page could not be made (${reasonOf(error)})`);
      });
    });
    // A browser that is gone is no failure of the run.
    server.on("clientError", (_, socket) => socket.destroy());
  }

  /** The number of browsers that are kept up to date. */
  get numReaders(): number {
    return this.readers.size;
  }

  /** Shows a view, or that it has changed; returns at once. */
  show(view: LiveView): void {
    this.view = view;
    if (this.timer || this.readers.size === 0) return;
    const wait = Math.max(0, this.drawnAt + this.interval - performance.now());
    this.timer = setTimeout(() => this.update(), wait);
    this.timer.unref();
  }

  /** Sends the last state and ends. @param ending what readers are told */
  async close(ending: string): Promise<void> {
    this.update();
    for (const { response } of this.readers) response.end(`event: end\ndata: ${JSON.stringify(ending)}\n\n`);
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeIdleConnections();
    const late = setTimeout(() => this.server.closeAllConnections(), farewell);
    await closed;
    clearTimeout(late);
  }

  private update(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.readers.size === 0) return;
    const sections = this.draw();
    for (const reader of this.readers) send(reader, sections);
  }

  /** The sections of the view; a page that cannot be drawn must not end the run. */
  private draw(): readonly PageSection[] {
    this.drawnAt = performance.now();
    try {
      return this.view?.sections() ?? [{ id: "status", html: '<p role="status">starting …</p>' }];
    } catch (error) {
      const text = `the page could not be drawn (${reasonOf(error)})`;
      return [{ id: "status", html: `<p role="status">${escapeHtml(text)}</p>` }];
    }
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // A page of another site can point its own name at this machine, but not send the name of this one.
    if (!/^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/i.test(request.headers.host ?? ""))
      return refuse(response, 403, "this page is only served to this machine, as localhost");
    if (request.method !== "GET" && request.method !== "HEAD") {
      response.setHeader("Allow", "GET, HEAD");
      return refuse(response, 405, "this page can only be read");
    }
    const [pathname = "/"] = (request.url ?? "/").split("?");
    if (pathname === "/") return reply(response, "text/html; charset=utf-8", this.page());
    if (pathname === "/live.js") return reply(response, "text/javascript; charset=utf-8", script);
    if (pathname === "/events") return this.follow(request, response);
    const [first, ...path] = pathname.slice(1).split("/").map(decodeURIComponent);
    if (first === "checkpoints" && this.view) return serveCheckpoint(response, this.view.folder, path);
    refuse(response, 404, "there is no such page");
  }

  private page(): string {
    const connection = { id: "connection", html: "<p>Reload this page to update it.</p>" };
    const head = '<script src="live.js" defer></script>';
    return pageHtml(this.view?.title ?? "A training run", [connection, ...this.draw()], head);
  }

  /** Keeps a browser up to date until it goes. */
  private follow(request: IncomingMessage, response: ServerResponse): void {
    if (this.readers.size >= maxReaders) {
      refuse(response, 503, `${maxReaders} browsers read this page`);
      return;
    }
    const reader: Reader = { response, sent: new Map() };
    response.writeHead(200, { ...headers, "Content-Type": "text/event-stream" });
    if (request.method === "HEAD") {
      response.end();
      return;
    }
    this.readers.add(reader);
    response.on("close", () => this.readers.delete(reader));
    response.on("error", () => this.readers.delete(reader));
    // What a slow reader has missed is sent when it has received the rest.
    response.on("drain", () => this.view && this.show(this.view));
    response.write("retry: 1000\n\n");
    send(reader, this.draw());
  }
}

/** Sends the sections that a reader does not have, unless earlier ones are still on their way. */
function send({ response, sent }: Reader, sections: readonly PageSection[]): void {
  if (response.writableNeedDrain) return;
  const changed = sections.filter(({ id, html }) => sent.get(id) !== html);
  if (changed.length === 0) return;
  for (const { id, html } of changed) sent.set(id, html);
  const update = {
    order: sections.map(({ id }) => id),
    sections: Object.fromEntries(changed.map(({ id, html }) => [id, html])),
  };
  response.write(`data: ${JSON.stringify(update)}\n\n`);
}

function reply(response: ServerResponse, type: string, body: string): void {
  response.writeHead(200, { ...headers, "Content-Type": type });
  response.end(body);
}

function refuse(response: ServerResponse, code: number, reason: string): void {
  response.writeHead(code, { ...headers, "Content-Type": "text/plain; charset=utf-8" });
  response.end(`${reason}\n`);
}

/** A checkpoint's list of files, or one of them; only names that are found in the folders are opened. */
async function serveCheckpoint(
  response: ServerResponse,
  run: string,
  [name = "", ...rest]: readonly string[],
): Promise<void> {
  const root = join(run, "checkpoints");
  const isKnown = /^step-\d+$/.test(name) && (await namesIn(root)).includes(name);
  if (!isKnown) return refuse(response, 404, "there is no such checkpoint");
  const files = await filesIn(join(root, name));
  const path = rest.join("/");
  if (path === "") {
    const links = files.map(
      ({ file, bytes }) =>
        `<li><a href="${encodeURI(file)}">${escapeHtml(file)}</a>, ${formatBytes(bytes)}</li>`,
    );
    const page = pageHtml(`Checkpoint ${name}`, [{ id: "files", html: `<ul>${links.join("")}</ul>` }]);
    return reply(response, "text/html; charset=utf-8", page);
  }
  const found = files.find(({ file }) => file === path);
  if (!found) return refuse(response, 404, "the checkpoint has no such file");
  const type = path.endsWith(".json") ? "application/json" : "application/octet-stream";
  response.writeHead(200, { ...headers, "Content-Type": type, "Content-Length": found.bytes });
  await pipeline(createReadStream(join(root, name, path)), response);
}

const namesIn = (folder: string) => readdir(folder).catch((): string[] => []);

/** The plain files of a folder, without those that links lead to. */
async function filesIn(folder: string): Promise<{ readonly file: string; readonly bytes: number }[]> {
  const found = await readdir(folder, { recursive: true }).catch((): string[] => []);
  const listed = found.sort().map(async (name) => {
    const status = await lstat(join(folder, name));
    return status.isFile() ? [{ file: name.replaceAll("\\", "/"), bytes: status.size }] : [];
  });
  return (await Promise.all(listed)).flat();
}
