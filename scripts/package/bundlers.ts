/**
 * `npm run test:bundlers`: the packed package, bundled by each tool of docs/bundlers.md with the files and commands of
 * that page, and run where it was built and in an empty folder; and pages, which a browser opens (`bundledPages.ts`):
 *
 *   npm run test:bundlers                   every tool
 *   npm run test:bundlers -- webpack bun    some of them
 *
 * Tools come from npm in fixed versions and stay in a folder for temporary files. Ends with 0 when all passed, with 1
 * when something failed, and with 3 when the tools could not be fetched.
 */
import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { gzipSync } from "node:zlib";
import { fetchRuntime, isFetched } from "../runtimeFolders.js";
import { readText } from "../site/pages.js";
import { type Block, blocksOf } from "../site/programs.js";
import { buildAndOpen, pageCases } from "./bundledPages.js";
import {
  checkGradient,
  environment,
  folder,
  install,
  makeProject,
  others,
  run,
  Skipped,
} from "./projects.js";

const page = "docs/bundlers.md";

/** What the program prints; see `bundled/results.js`. */
interface Results {
  readonly gradient: number;
  readonly gemm: string;
  readonly params: readonly string[];
  readonly error: string;
  readonly texts: number | string;
}

/** A way to bundle: one block of commands, the last of which runs what the others built. */
interface Case {
  readonly tool: string;
  readonly files: readonly string[];
  readonly commands: readonly string[];
}

/** The cases of the page, by its headings. */
function casesOfPage(): Case[] {
  const headings = readText(page)
    .split("\n")
    .flatMap((text, i) => (text.startsWith("## ") ? [{ tool: text.slice(3), line: i + 1 }] : []));
  const blocks = blocksOf(page).filter(({ notRun }) => notRun === undefined);
  return headings.flatMap(({ tool, line }, i) => {
    const end = headings[i + 1]?.line ?? Number.POSITIVE_INFINITY;
    const own = blocks.filter((block: Block) => block.line > line && block.line < end);
    const files = own.filter(({ language }) => language === "js").map(({ text }) => text);
    return own
      .filter(({ language }) => language === "sh")
      .map(({ text }) => ({ tool, files, commands: text.trim().split("\n") }));
  });
}

/** Builds and runs one case, and returns what its program printed. */
async function bundle({ tool, files, commands }: Case, name: string, expected: Results): Promise<void> {
  const project = makeProject(name, files);
  const start = commands.at(-1) ?? "";
  for (const command of commands.slice(0, -1)) run(command, project);
  if (tool === "Next.js") return compare(await fetchFrom(start, project), expected);
  compare(JSON.parse(run(start, project)), expected);
  // In an empty folder nothing is installed, so native code is not available.
  const empty = mkdtempSync(join(tmpdir(), "shardwise-alone-"));
  try {
    cpSync(join(project, "dist"), join(empty, "dist"), { recursive: true });
    // Bun would fetch koffi from npm where it finds no node_modules.
    const alone: Results = JSON.parse(run(start.replace(/^bun /, "bun --no-install "), empty));
    // webpack records the paths of modules at build time.
    if (tool === "webpack" || start === "dist/main")
      return compare({ ...alone, gemm: "", texts: "" }, { ...expected, gemm: "", texts: "" });
    if (!/WebAssembly/.test(alone.gemm)) throw new Error(`multiplied by ${alone.gemm} without koffi`);
    compare({ ...alone, gemm: expected.gemm }, { ...expected, texts: "value" });
  } finally {
    rmSync(empty, { recursive: true, force: true });
  }
}

/** Typical imports of a page; all entry points are among them. */
const pages: Readonly<Record<string, string>> = {
  "np alone": 'import { np } from "shardwise"; console.log(np.sum);',
  "np, grad and jit": 'import { grad, jit, np } from "shardwise"; console.log(np, grad, jit);',
  optimisers: 'import { adamw } from "shardwise/optim"; console.log(adamw);',
  everything: ["", "/nn", "/parallel", "/optim", "/engines", "/train", "/random"]
    .map((entry, i) => `export * as entry${i} from "shardwise${entry}";`)
    .join("\n"),
};

/** Bundles typical imports for a page, for which esbuild rejects Node modules, and returns their gzipped sizes. */
function bundleForPages(): string {
  const project = makeProject("pages", []);
  const sizes = Object.entries(pages).map(([name, code]) => {
    writeFileSync(join(project, "page.js"), code);
    run("esbuild page.js --bundle --minify --format=esm --platform=browser --outfile=dist/page.js", project);
    const { length } = gzipSync(readFileSync(join(project, "dist", "page.js")));
    return `${name} ${Math.round(length / 1000)} kB`;
  });
  return sizes.join(", ");
}

function compare(found: unknown, expected: Results): void {
  if (isDeepStrictEqual(found, expected)) return;
  throw new Error(
    `the bundle computed ${JSON.stringify(found)}, without a bundler it is ${JSON.stringify(expected)}`,
  );
}

/** Starts a server, sends one request and stops it. */
async function fetchFrom(start: string, project: string): Promise<unknown> {
  const port = await freePort();
  const args = start.replace(/^npx /, "").split(" ").slice(1);
  const next = join(folder, "node_modules", "next", "dist", "bin", "next");
  const server = spawn(process.execPath, [next, ...args, "-p", String(port)], {
    cwd: project,
    env: environment,
  });
  let output = "";
  for (const stream of [server.stdout, server.stderr]) stream.on("data", (chunk) => (output += chunk));
  try {
    for (let waited = 0; waited < 120 && !output.includes("Ready"); waited++) await sleep(500);
    const response = await fetch(`http://localhost:${port}/api/train`);
    if (!response.ok) throw new Error(`the server answered ${response.status}:\n${output}`);
    return await response.json();
  } finally {
    server.kill();
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address ? address.port : 0));
    });
  });
}

/** What the program computes without a bundler; its gradient is compared with plain numbers. */
function expectedResults(): Results {
  const found: Results = JSON.parse(run("node main.js", makeProject("unbundled", [])));
  checkGradient(found.gradient);
  return found;
}

type Outcome = "passed" | "failed" | "skipped";

/** Does what a case is about, and prints what came of it. */
async function attempt(what: string, action: () => Promise<string | undefined>): Promise<Outcome> {
  const begin = performance.now();
  try {
    const note = await action();
    const seconds = `${((performance.now() - begin) / 1000).toFixed(0)} s`;
    console.log(`passed   ${what} (${note === undefined ? seconds : `${note}; ${seconds}`})`);
    return "passed";
  } catch (error) {
    const outcome = error instanceof Skipped ? "skipped" : "failed";
    console.log(`${outcome.padEnd(8)} ${what}: ${error instanceof Error ? error.message : error}`);
    return outcome;
  }
}

async function attemptCase(one: Case, name: string, expected: Results): Promise<Outcome> {
  const lines = one.commands.join("; ");
  return attempt(lines, async () => {
    const missing = others.find((runtime) => lines.includes(`${runtime.name} `) && !isFetched(runtime));
    if (missing && !fetchRuntime(missing)) throw new Skipped(`${missing.source} could not be fetched`);
    await bundle(one, name, expected);
    return undefined;
  });
}

async function main(names: readonly string[]): Promise<number> {
  const isChosen = ({ tool }: { readonly tool: string }) =>
    names.length === 0 || names.some((name) => tool.toLowerCase().startsWith(name.toLowerCase()));
  const [cases, pages] = [casesOfPage().filter(isChosen), pageCases.filter(isChosen)];
  const number = cases.length + pages.length;
  if (number === 0) throw new Error(`no tool is called ${names.join(" or ")}: see the headings of ${page}`);
  try {
    install();
  } catch (error) {
    console.log(`0 passed, 0 failed, ${number} skipped: the tools could not be fetched from npm: ${error}`);
    return 3;
  }
  const outcomes: Outcome[] = [];
  if (isChosen({ tool: "esbuild" }))
    outcomes.push(await attempt("no module of Node in pages", async () => `gzipped: ${bundleForPages()}`));
  for (const one of pages) {
    outcomes.push(await attempt(`${one.tool}: ${one.name}, in a browser`, () => buildAndOpen(one)));
  }
  const expected = cases.length > 0 ? expectedResults() : undefined;
  for (const [i, one] of cases.entries()) {
    const name = `${one.tool.toLowerCase().replaceAll(/\W/g, "")}-${i}`;
    if (expected) outcomes.push(await attemptCase(one, name, expected));
  }
  const count = (outcome: Outcome) => outcomes.filter((one) => one === outcome).length;
  console.log(`${count("passed")} passed, ${count("failed")} failed, ${count("skipped")} skipped`);
  return count("failed") > 0 ? 1 : 0;
}

process.exitCode = await main(process.argv.slice(2));
