/** Serves a folder of plain files on this machine. */
import { createReadStream, statSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { extname, join, normalize } from "node:path";

const kinds: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
};

/**
 * Serves the files of a folder to this machine alone.
 *
 * @param isolated whether pages may share memory between threads
 */
export function serve(folder: string, port: number, isolated = true): Promise<Server> {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    const path = join(folder, normalize(decodeURIComponent(pathname)).replace(/\/$/, "/index.html"));
    const found = path.startsWith(folder) ? statSync(path, { throwIfNoEntry: false }) : undefined;
    if (!found?.isFile()) {
      response.writeHead(404, { "content-type": "text/plain" }).end(`there is no ${pathname}`);
      return;
    }
    response.writeHead(200, {
      "content-type": kinds[extname(path)] ?? "application/octet-stream",
      "content-length": found.size,
      "cache-control": "no-cache",
      ...(isolated
        ? { "cross-origin-opener-policy": "same-origin", "cross-origin-embedder-policy": "require-corp" }
        : {}),
    });
    createReadStream(path).pipe(response);
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", () => resolve(server));
  });
}
