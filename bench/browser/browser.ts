/**
 * Our engines in pages of Chromium beside jax-js and TensorFlow.js, both WebAssembly, in the same page: one that is
 * cross-origin isolated, where those two start threads of their own, too, and one where nobody has threads. Those two are
 * installed into a folder for temporary files.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { bundleForBrowser } from "../../scripts/package/browserBundle.mjs";
import { launchBrowser, openPage, pageWith, serve } from "../../test/support/browserPage.js";
import { findChromium } from "../../test/support/programs.js";
import type { Report, Row } from "../measure.js";
import { listOption } from "../options.js";
import { timeOurs } from "./ourPage.js";
import { pauses } from "./pauses.js";

const folder = join(tmpdir(), "shardwise-bench-browser");
const [rows, columns] = [2048, 1024];

/** How often all take turns at each work, and for how long each repeats it in a turn, in milliseconds. */
const [numRounds, patienceMs] = [5, 300];

const works = [
  "matmul 256",
  "matmul 512",
  "matmul 1024",
  "tanh-gelu",
  "softmax",
  "layer norm",
  "AdamW update",
  "training step",
];

type Ask = (page: Page, work: string) => Promise<number | null>;

const inPage =
  (call: string): Ask =>
  (page, work) =>
    page.evaluate(call.replace("WORK", `"${work}", ${rows}, ${columns}, ${patienceMs}`));

/** The same in this process, whose products and kernels are WebAssembly, too. */
const inNode =
  (engine: "threads" | "one thread"): Ask =>
  (_, work) =>
    timeOurs(engine, work, rows, columns, patienceMs, availableParallelism());

/** How times are measured, by kind of page and column. */
const tables: Readonly<Record<string, Readonly<Record<string, Ask>>>> = {
  isolated: {
    "threads ms": inPage('timeOurs("threads", WORK)'),
    "one thread ms": inPage('timeOurs("one thread", WORK)'),
    "tfjs-wasm, threads ms": inPage("timeOther(0, WORK)"),
    "jax-js, threads ms": inPage("timeOther(1, WORK)"),
    "Node threads ms": inNode("threads"),
  },
  plain: {
    "one thread ms": inPage('timeOurs("one thread", WORK)'),
    "tfjs-wasm ms": inPage("timeOther(0, WORK)"),
    "jax-js ms": inPage("timeOther(1, WORK)"),
    "Node one thread ms": inNode("one thread"),
  },
};

/** The shortest time of each column: rivals take turns, so that what else the machine does reaches all of them. */
async function timeWork(
  page: Page,
  work: string,
  asks: Readonly<Record<string, Ask>>,
  lines: readonly string[],
): Promise<Row> {
  const row: Record<string, string | number | null> = { work };
  for (let round = 0; round < numRounds; round++) {
    for (const [column, ask] of Object.entries(asks)) {
      const time = await ask(page, work).catch((error: unknown) => {
        console.error(`${work}, ${column}: ${String(error).split("\n")[0]}; ${lines.at(-1) ?? ""}`);
        return null;
      });
      const before = row[column];
      row[column] = typeof before === "number" && time !== null ? Math.min(before, time) : time;
    }
  }
  return row;
}

/** Installs the other libraries in the versions of `bench/package.json`. */
function installOthers(): void {
  const manifest = readFileSync(new URL("../package.json", import.meta.url), "utf8");
  const own = join(folder, "package.json");
  mkdirSync(folder, { recursive: true });
  if (existsSync(join(folder, "node_modules")) && readFileSync(own, "utf8") === manifest) return;
  writeFileSync(own, manifest);
  const args = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
  const { status, stderr } = spawnSync("npm", args, { cwd: folder, encoding: "utf8" });
  if (status !== 0) throw new Error(`npm could not install what to compare with: ${stderr}`);
}

async function codeOf(file: string): Promise<Uint8Array> {
  const { outputFiles } = await bundleForBrowser({
    entryPoints: [fileURLToPath(new URL(file, import.meta.url))],
    nodePaths: [join(folder, "node_modules")],
    // TensorFlow.js starts its workers from the text of a function, where a helper for names is not defined.
    keepNames: false,
  });
  return outputFiles[0]?.contents ?? new Uint8Array();
}

/** What the page loads: both bundles, and the WebAssembly of TensorFlow.js. */
async function servedFiles(): Promise<Map<string, string | Uint8Array>> {
  const wasm = join(folder, "node_modules", "@tensorflow", "tfjs-backend-wasm", "dist");
  const modules = readdirSync(wasm).filter((name) => name.endsWith(".wasm"));
  return new Map<string, string | Uint8Array>([
    ["/index.html", `${pageWith("ours.js")}<script type="module" src="others.js"></script>`],
    ["/ours.js", await codeOf("./ourPage.ts")],
    ["/others.js", await codeOf("./otherPage.mjs")],
    ["/pauses.html", pageWith("pauses.js")],
    ["/pauses.js", await codeOf("./pausePage.ts")],
    ...modules.map((name) => [`/${name}`, readFileSync(join(wasm, name))] as const),
  ]);
}

/** Runs the benchmark. */
export async function browser(): Promise<Report> {
  const executable = findChromium();
  if (executable === undefined) {
    console.error("browser: skipped, there is none (Debian: chromium)");
    return {};
  }
  const all = [...Object.keys(tables), "pauses"];
  const parts = listOption("parts", all, all);
  installOthers();
  const { url, server } = await serve(await servedFiles());
  const chromium = await launchBrowser(executable);
  try {
    Object.assign(process.env, { SHARDWISE_GEMM: "wasm", SHARDWISE_KERNELS: "wasm" });
    const report: Record<string, Row[]> = {};
    for (const [kind, asks] of Object.entries(tables)) {
      if (!parts.includes(kind)) continue;
      const { page, lines } = await openPage(chromium, `${url}/${kind}/index.html`);
      const table: Row[] = [];
      for (const work of works) table.push(await timeWork(page, work, asks, lines));
      const which =
        kind === "isolated" ? "an isolated page, where all have threads" : "a page without threads";
      report[`Chromium ${chromium.version()}, ${which}`] = table;
      await page.close();
    }
    if (parts.includes("pauses"))
      report["Time of the page's thread until a first call has returned"] = await pauses(
        chromium,
        `${url}/isolated/pauses.html`,
      );
    return report;
  } finally {
    await chromium.close();
    server.close();
  }
}
