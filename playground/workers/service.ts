/** Answers requests of the playground from the network, or from what it kept of it, with headers that isolate pages. */

interface ExtendableEvent extends Event {
  waitUntil(work: Promise<unknown>): void;
}
interface FetchEvent extends ExtendableEvent {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}
declare const BUILD: string;

const worker = globalThis as unknown as {
  skipWaiting(): Promise<void>;
  readonly clients: { claim(): Promise<void> };
  addEventListener(type: "install" | "activate", listener: (event: ExtendableEvent) => void): void;
  addEventListener(type: "fetch", listener: (event: FetchEvent) => void): void;
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
