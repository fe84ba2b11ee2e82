/**
 * `npm run test:bundlers`: the packed package, bundled by each tool of docs/bundlers.md with the files and commands of
 * that page, and run where it was built and in an empty folder:
 *
 *   npm run test:bundlers                   every tool
 *   npm run test:bundlers -- webpack bun    some of them
 *
 * Tools come from npm in fixed versions and stay in a folder for temporary files. Ends with 0 when all passed, with 1
 * when something failed, and with 3 when the tools could not be fetched.
 */
import { spawn, spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { gzipSync } from "node:zlib";
import { fetchRuntime, isFetched, runtimes } from "../runtimeFolders.js";
import { readText } from "../site/pages.js";
import { type Block, blocksOf } from "../site/programs.js";

const page = "docs/bundlers.md";
const root = fileURLToPath(new URL("../../", import.meta.url));
const folder = join(tmpdir(), "shardwise-bundlers");

const tools = {
  "@rollup/plugin-node-resolve": "16.0.3",
  esbuild: "0.28.2",
  next: "16.4.6",
  react: "19.3.1",
  "react-dom": "19.3.1",
  rollup: "4.68.2",
  vite: "8.3.8",
  webpack: "5.112.2",
  "webpack-cli": "7.3.1",
};

const others = runtimes.filter(({ name }) => name === "bun" || name === "deno");

/** Programs are started by name: first those of the tools, then the runtimes. */
const environment = {
  ...process.env,
  NODE_OPTIONS: undefined,
  SHARDWISE_ENGINE: undefined,
  SHARDWISE_VERIFY: undefined,
  NEXT_TELEMETRY_DISABLED: "1",
  PATH: [
    join(folder, "node_modules", ".bin"),
    ...others.map(({ program }) => dirname(program)),
    process.env.PATH,
  ].join(delimiter),
};

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

/** Why a case does not apply here. */
class Skipped extends Error {}

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

/** Runs a command and returns its output; a failed download is not a failed test. */
function run(command: string, cwd: string): string {
  const { status, stdout, stderr } = spawnSync(command.replace(/^npx /, ""), {
    cwd,
    env: environment,
    encoding: "utf8",
    shell: true,
    timeout: 600_000,
  });
  if (status === 0) return stdout;
  const output = `${stdout}\n${stderr}`.trim();
  if (/error sending request for url|ENOTFOUND/.test(output)) {
    throw new Skipped(`\`${command}\` could not download what it needs`);
  }
  throw new Error(`${command} ended with ${status}:\n${output.slice(-4000)}`);
}

/** Installs the tools that are missing, and the current package. */
function install(): void {
  mkdirSync(folder, { recursive: true });
  const manifest = JSON.stringify({ private: true, type: "module", dependencies: tools });
  const stamp = join(folder, "installed.json");
  const quiet = "--no-audit --no-fund --ignore-scripts --prefer-offline --loglevel=error";
  if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== manifest) {
    rmSync(stamp, { force: true });
    writeFileSync(join(folder, "package.json"), manifest);
    run(`npm install ${quiet}`, folder);
    writeFileSync(stamp, manifest);
  }
  for (const name of readdirSync(folder)) if (name.endsWith(".tgz")) rmSync(join(folder, name));
  run(`npm pack --silent --ignore-scripts --pack-destination ${JSON.stringify(folder)}`, root);
  const file = readdirSync(folder).find((name) => name.endsWith(".tgz"));
  run(`npm install --no-save ${quiet} ./${file}`, folder);
}

/** A project with the program, and with the files of the page, each under the name in its first line. */
function makeProject(name: string, files: readonly string[]): string {
  const project = join(folder, "projects", name);
  rmSync(project, { recursive: true, force: true });
  cpSync(join(root, "scripts", "package", "bundled"), project, { recursive: true });
  for (const text of files) {
    const path = join(project, /^\/\/ (\S+)/.exec(text)?.[1] ?? "unnamed.js");
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
  return project;
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
    const alone: Results = JSON.parse(run(start, empty));
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
  const gradient = 32 * 8 * 16 * (1 - Math.tanh(0.16) ** 2);
  if (Math.abs(found.gradient - gradient) > 1e-3)
    throw new Error(`the gradient is ${found.gradient}, not ${gradient}`);
  return found;
}

async function attempt(one: Case, name: string, expected: Results): Promise<"passed" | "failed" | "skipped"> {
  const begin = performance.now();
  const lines = one.commands.join("; ");
  try {
    const missing = others.find((runtime) => lines.includes(`${runtime.name} `) && !isFetched(runtime));
    if (missing && !fetchRuntime(missing)) throw new Skipped(`${missing.source} could not be fetched`);
    await bundle(one, name, expected);
    console.log(`passed   ${lines} (${((performance.now() - begin) / 1000).toFixed(0)} s)`);
    return "passed";
  } catch (error) {
    const isSkipped = error instanceof Skipped;
    console.log(
      `${isSkipped ? "skipped" : "failed "}  ${lines}: ${error instanceof Error ? error.message : error}`,
    );
    return isSkipped ? "skipped" : "failed";
  }
}

async function main(names: readonly string[]): Promise<number> {
  const isChosen = ({ tool }: Case) =>
    names.length === 0 || names.some((name) => tool.toLowerCase().startsWith(name.toLowerCase()));
  const cases = casesOfPage().filter(isChosen);
  if (cases.length === 0)
    throw new Error(`no tool is called ${names.join(" or ")}: see the headings of ${page}`);
  try {
    install();
  } catch (error) {
    console.log(
      `0 passed, 0 failed, ${cases.length} skipped: the tools could not be fetched from npm: ${error}`,
    );
    return 3;
  }
  const expected = expectedResults();
  const results: string[] = [];
  if (cases.some(({ tool }) => tool === "esbuild")) {
    try {
      console.log(`passed   no module of Node in pages; gzipped: ${bundleForPages()}`);
      results.push("passed");
    } catch (error) {
      console.log(`failed   pages: ${error instanceof Error ? error.message : error}`);
      results.push("failed");
    }
  }
  for (const [i, one] of cases.entries()) {
    results.push(await attempt(one, `${one.tool.toLowerCase().replaceAll(/\W/g, "")}-${i}`, expected));
  }
  const count = (result: string) => results.filter((one) => one === result).length;
  console.log(`${count("passed")} passed, ${count("failed")} failed, ${count("skipped")} skipped`);
  return count("failed") > 0 ? 1 : 0;
}

process.exitCode = await main(process.argv.slice(2));
