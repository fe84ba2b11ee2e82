/** Pages for tests: code of the library bundled for browsers, served with or without cross-origin isolation. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type Browser, type ConsoleMessage, chromium, type Page } from "playwright-core";
import { bundleForBrowser } from "../../scripts/package/browserBundle.mjs";

/** How every Chromium of the tests is started. */
export const chromiumFlags = [
  "--no-sandbox",
  // The software adapter of WebGPU.
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  // Containers have little of it, or none.
  "--disable-dev-shm-usage",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** The headers that isolate a page, so that it may share memory with workers. */
export const isolatingHeaders = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
} as const;

/** Files that a test server gives out: their content by path. */
export type ServedFiles = ReadonlyMap<string, string | Uint8Array>;

const types: Readonly<Record<string, string>> = {
  html: "text/html",
  js: "text/javascript",
  json: "application/json",
};

/** Serves files and parts of them on this machine; below `/isolated/` with the headers that isolate pages. */
export async function serve(files: ServedFiles): Promise<{ readonly url: string; readonly server: Server }> {
  const server = createServer(({ url = "/", headers: { range = "" } }, response) => {
    const path = url.replace(/^\/(isolated|plain)\//, "/").replace(/\?.*$/, "");
    const content = files.get(path);
    if (content === undefined) {
      response.writeHead(404).end();
      return;
    }
    const type = types[path.split(".").at(-1) ?? ""] ?? "application/octet-stream";
    // Other pages of this machine may load it as scripts, as from a server of packages.
    const open = { "Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin" };
    const bytes = Buffer.from(content);
    const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(range) ?? [];
    const isPart = start !== undefined && end !== undefined;
    response.writeHead(isPart ? 206 : 200, {
      "Content-Type": type,
      ...open,
      ...(isPart ? { "Content-Range": `bytes ${start}-${end}/${bytes.length}` } : {}),
      ...(url.startsWith("/isolated/") ? isolatingHeaders : {}),
    });
    response.end(isPart ? bytes.subarray(Number(start), Number(end) + 1) : bytes);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}

/** Bundles a source of the repository with the packages it uses. @param alias other files in the place of packages */
export async function bundlePage(source: string, alias: Record<string, string> = {}): Promise<Uint8Array> {
  const { outputFiles } = await bundleForBrowser({ entryPoints: [source], alias, external: [] });
  return outputFiles[0]?.contents ?? new Uint8Array();
}

/** A page that loads one module. */
export const pageWith = (script: string) =>
  `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module" src="${script}"></script>`;

/**
 * Starts a browser with a new, empty profile.
 *
 * @param options.keepsPages whether it keeps pages that were left, for when the user comes back
 */
export function launchBrowser(executablePath: string, { keepsPages = false } = {}): Promise<Browser> {
  const ignoreDefaultArgs = keepsPages ? ["--disable-back-forward-cache"] : [];
  return chromium.launch({ executablePath, headless: true, args: chromiumFlags, ignoreDefaultArgs });
}

/** Opens a page; what it writes to the console, and errors that nobody catches, are gathered. */
export async function openPage(
  browser: Pick<Browser, "newPage">,
  url: string,
): Promise<{ readonly page: Page; readonly lines: string[] }> {
  const page = await browser.newPage();
  const lines: string[] = [];
  page.on("console", (message: ConsoleMessage) => lines.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => lines.push(`uncaught: ${error.message}`));
  // Machines that are busy take long to start a page.
  await page.goto(url, { timeout: 120_000 });
  return { page, lines };
}
