/**
 * Answers requests of the playground from the network, or from what it kept of it, with headers that isolate pages. It
 * keeps all files once a page, which has loaded what it shows, asks for that.
 */

interface ExtendableEvent extends Event {
  waitUntil(work: Promise<unknown>): void;
}
interface FetchEvent extends ExtendableEvent {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}
interface MessageFromPage extends ExtendableEvent {
  readonly source: { postMessage(message: unknown): void };
}
/** A name for the contents of all files, and their addresses. */
declare const BUILD: string;
declare const FILES: readonly string[];

const worker = globalThis as unknown as {
  skipWaiting(): Promise<void>;
  readonly clients: { claim(): Promise<void> };
  addEventListener(type: "install" | "activate", listener: (event: ExtendableEvent) => void): void;
  addEventListener(type: "fetch", listener: (event: FetchEvent) => void): void;
  addEventListener(type: "message", listener: (event: MessageFromPage) => void): void;
};
const store = `shardwise-playground-${BUILD}`;

worker.addEventListener("install", (event) => event.waitUntil(worker.skipWaiting()));
worker.addEventListener("activate", (event) =>
  event.waitUntil(
    caches
      .keys()
      .then((names) =>
        Promise.all(
          names
            .filter((name) => name.startsWith("shardwise-playground-") && name !== store)
            .map((name) => caches.delete(name)),
        ),
      )
      .then(() => worker.clients.claim()),
  ),
);
worker.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || new URL(request.url).origin !== location.origin) return;
  event.respondWith(answer(request));
});

worker.addEventListener("message", (event) =>
  event.waitUntil(keepAll().then(() => event.source.postMessage("kept"))),
);

/** Keeps the files that are not kept yet; a page asks again at its next visit if the network fails. */
async function keepAll(): Promise<void> {
  const kept = await caches.open(store);
  for (const file of FILES) {
    if (await kept.match(file)) continue;
    const response = await fetch(file);
    if (!response.ok) throw new Error(`${file}: the server answers ${response.status}`);
    await kept.put(file, response);
  }
}

async function answer(request: Request): Promise<Response> {
  const kept = await caches.open(store);
  try {
    const response = await fetch(request);
    if (response.ok) await kept.put(request, response.clone());
    return isolated(response);
  } catch (error) {
    const response = await kept.match(request);
    if (response) return isolated(response);
    throw error;
  }
}

function isolated(response: Response): Response {
  if (response.status === 0) return response;
  const headers = new Headers(response.headers);
  headers.set("Cross-Origin-Opener-Policy", "same-origin");
  headers.set("Cross-Origin-Embedder-Policy", "require-corp");
  headers.set("Cross-Origin-Resource-Policy", "same-origin");
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
