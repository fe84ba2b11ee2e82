/**
 * Pages that each tool of the table in docs/browser.md builds with the command shown there, and pages with the file for
 * those without a bundler, opened in a browser: cross-origin isolated, where devices are workers, and not.
 */
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { isolatingHeaders, launchBrowser, openPage, pageWith } from "../../test/support/browserPage.js";
import { findChromium } from "../../test/support/programs.js";
import { readText } from "../site/pages.js";
import { checkGradient, folder, makeProject, run, Skipped } from "./projects.js";

/** A page to build and open. */
export interface PageCase {
  readonly tool: string;
  readonly name: string;
  /** Builds a project, and returns the folder to serve. */
  build(): string;
  /** Whether the tool puts everything into one file, also what a page may never use. */
  readonly isOneFile?: boolean;
  /** The page to open, given the address of another server of the same folder. */
  readonly html?: (elsewhere: string) => string;
}

/** The commands of the table, by tool. */
function commandOf(tool: string): string {
  const row = readText("docs/browser.md")
    .split("\n")
    .find((line) => line.startsWith(`| ${tool} |`));
  const [, command] = /`(npx .*?)`/.exec(row ?? "") ?? [];
  if (command === undefined) throw new Error(`docs/browser.md has no command for ${tool}`);
  return command;
}

/** Builds with the command of a tool; `files` are written before. */
function built(tool: string, name: string, files: Readonly<Record<string, string>>, out = "dist"): string {
  const project = makeProject(name, [], "bundledPages");
  for (const [file, text] of Object.entries(files)) writeFileSync(join(project, file), text);
  run(commandOf(tool), project);
  return join(project, out);
}

const prebuilt = () => join(folder, "node_modules", "shardwise", "dist");

/** A page whose program imports the one file instead of the package. */
function inlineProgram(file: string): string {
  const program = readFileSync(new URL("./bundledPages/page.js", import.meta.url), "utf8");
  return pageWith("").replace(
    /<script.*/,
    `<script type="module">${program.replace('"shardwise"', `"${file}"`)}</script>`,
  );
}

/** All pages. */
export const pageCases: readonly PageCase[] = [
  {
    tool: "Vite",
    name: "a page",
    build: () => built("Vite", "page-vite", { "index.html": pageWith("/page.js") }),
  },
  {
    tool: "Vite",
    name: "a worker of the page's own",
    build: () => built("Vite", "page-vite-worker", { "index.html": pageWith("/startWorker.js") }),
    // Vite builds workers as scripts, which cannot load parts later.
    isOneFile: true,
  },
  {
    tool: "webpack",
    name: "a page",
    build: () => built("webpack", "page-webpack", {}),
    html: () => pageWith("main.js"),
  },
  {
    tool: "Rollup",
    name: "a page",
    build: () => built("Rollup", "page-rollup", {}),
    html: () => pageWith("page.js"),
  },
  {
    tool: "esbuild",
    name: "a page",
    build: () => built("esbuild", "page-esbuild", {}),
    isOneFile: true,
    html: () => pageWith("page.js"),
  },
  {
    tool: "Next.js",
    name: "a client component",
    build: () =>
      built("Next.js", "page-next", { "next.config.js": 'export default { output: "export" };\n' }, "out"),
  },
  {
    tool: "no bundler",
    name: "a page",
    build: prebuilt,
    isOneFile: true,
    html: () => inlineProgram("./shardwise.browser.js"),
  },
  {
    tool: "no bundler",
    name: "the library from another origin",
    build: prebuilt,
    isOneFile: true,
    html: (elsewhere) => inlineProgram(`${elsewhere}/shardwise.browser.js`),
  },
];

const types: Readonly<Record<string, string>> = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
};

/** Serves a folder on this machine, for pages of any origin. @param sent gets the files that were asked for */
async function serveFolder(
  root: string,
  headers: object,
  index?: () => string,
  sent: string[] = [],
): Promise<Server> {
  const server = createServer(({ url = "/" }, response) => {
    const path = new URL(url, "http://localhost").pathname;
    const file = join(root, path === "/" ? "index.html" : path);
    const isOwn = path === "/" && index !== undefined;
    if (!isOwn && !statSync(file, { throwIfNoEntry: false })?.isFile()) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, {
      "Content-Type": types[extname(file)] ?? "application/octet-stream",
      "Access-Control-Allow-Origin": "*",
      "Cross-Origin-Resource-Policy": "cross-origin",
      ...headers,
    });
    const content = isOwn ? index() : readFileSync(file);
    sent.push(content.toString());
    response.end(content);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

const addressOf = (server: Server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

/** What a page computed. */
interface Found {
  readonly gradient: number;
  readonly engine: string;
}

async function resultsOf(page: Page): Promise<Found> {
  await page.waitForFunction("globalThis.results !== undefined", undefined, { timeout: 60_000 });
  return page.evaluate("globalThis.results");
}

/** Opens a built page, isolated or not, and checks what it computes and what it says. */
async function open(
  browser: Browser,
  { html, isOneFile }: PageCase,
  root: string,
  isIsolated: boolean,
): Promise<void> {
  const elsewhere = await serveFolder(root, {});
  const index = html && (() => html(addressOf(elsewhere)));
  const sent: string[] = [];
  const server = await serveFolder(root, isIsolated ? isolatingHeaders : {}, index, sent);
  const { page, lines } = await openPage(browser, addressOf(server));
  try {
    const { gradient, engine } = await resultsOf(page);
    checkGradient(gradient);
    const wanted = isIsolated ? "threads" : "oneThread";
    if (engine !== wanted) throw new Error(`the mesh is of the engine ${engine}, not ${wanted}`);
    // Without isolation, one line says why all devices are on one thread.
    const unexpected = lines.filter((line) => isIsolated || !line.includes("not cross-origin isolated"));
    if (unexpected.length > 0) throw new Error("the page wrote to the console");
    if (!isOneFile && sent.some((text) => text.includes("@workgroup_size")))
      throw new Error("the page loaded shaders although it uses no GPU");
  } catch (cause) {
    const where = isIsolated ? "isolated" : "not isolated";
    throw new Error(`${where}: ${cause instanceof Error ? cause.message : cause}; ${lines.join(" | ")}`);
  } finally {
    await page.close();
    for (const one of [server, elsewhere]) one.close();
  }
}

/** Builds a page and opens it in a new browser, isolated and not. */
export async function buildAndOpen(one: PageCase): Promise<undefined> {
  const executable = findChromium();
  if (executable === undefined) throw new Skipped("there is no browser (Debian: chromium)");
  const root = one.build();
  const browser = await launchBrowser(executable);
  try {
    for (const isIsolated of [true, false]) await open(browser, one, root, isIsolated);
  } finally {
    await browser.close();
  }
}
