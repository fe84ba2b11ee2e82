/** The library in a real browser: pages with and without cross-origin isolation; `npm run test:browsers` runs more. */
import { readFileSync } from "node:fs";
import type { Server } from "node:http";
import { gzipSync } from "node:zlib";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { bundleForBrowser } from "../../scripts/package/browserBundle.mjs";
import { bundlePage, launchBrowser, openPage, pageWith, serve } from "../support/browserPage.js";
import { describeWith, browser as installedBrowser } from "../support/optional.js";
import { train, values } from "./basics.js";

/** Calls a function that the page made global. */
const call = <T>(page: Page, name: string, ...args: unknown[]): Promise<T> =>
  page.evaluate(
    ([name, args]) =>
      (globalThis as never as Record<string, (...args: unknown[]) => T>)[name as string]?.(
        ...(args as unknown[]),
      ),
    [name, args] as const,
  ) as Promise<T>;

/** A page that starts the program of a worker, and counts the turns of its own event loop meanwhile. */
const startsWorker = `
  Object.assign(globalThis, { steps: [], turns: 0, hasEnded: false });
  setInterval(() => turns++, 5);
  const worker = new Worker("page0.js", { type: "module" });
  worker.onerror = ({ message }) => console.error(message);
  worker.onmessage = ({ data }) => {
    if (data.hasEnded) hasEnded = true;
    else steps.push(data.step);
  };
`;

/** Gathers the workers of a page that nobody has ended. */
const countsWorkers = `
  globalThis.workers = new Set();
  globalThis.Worker = class extends Worker {
    constructor(...args) {
      super(...args);
      workers.add(this);
    }
    terminate() {
      workers.delete(this);
      super.terminate();
    }
  };
`;

/** A page that tells its server what becomes of a run while the browser puts the page away and takes it out again. */
const putAway = `
  import { jit, lax, Mesh, np } from "shardwise";
  const say = (what) => fetch("said?" + encodeURIComponent(what), { keepalive: true });
  const mesh = Mesh.create({ data: 2 });
  const long = jit((x) => np.sum(lax.foriLoop(0, 400, (_, y) => np.tanh(np.matmul(y, y)), x)), { mesh });
  const sum = jit((x) => np.sum(x), { mesh });
  await sum(np.ones([8])).item();
  const running = long(np.ones([256, 256])).item();
  addEventListener("pagehide", ({ persisted }) => say(persisted ? "put away" : "ended"));
  addEventListener("pageshow", async ({ persisted }) => {
    if (!persisted) return;
    await say("back");
    await say("the value: " + (await running.catch(String)));
    const again = jit((x) => np.sum(x), { mesh: Mesh.create({ data: 2 }) });
    await say("two more values: " + (await sum(np.ones([8])).item()) + ", " + (await again(np.ones([8])).item()));
  });
  await say("computing");
`;

describeWith(installedBrowser, "a page", (executablePath) => {
  let browser: Browser;
  let served: { readonly url: string; readonly server: Server };

  beforeAll(async () => {
    const code = await bundlePage("test/browser/basics.ts");
    const files = new Map<string, string | Uint8Array>([
      ["/index.html", pageWith("page.js")],
      ["/page.js", code],
    ]);
    served = await serve(files);
    // The same code from a server of another origin.
    const elsewhere = served.url.replace("127.0.0.1", "localhost");
    files.set(
      "/elsewhere.html",
      pageWith(`${elsewhere}/page.js`).replace("<script ", "<script crossorigin "),
    );
    browser = await launchBrowser(executablePath);
  });
  afterAll(async () => {
    await browser?.close();
    served?.server.close();
  });

  const near = (got: Record<string, number>, want: Record<string, unknown>) => {
    expect(Object.keys(got)).toEqual(Object.keys(want));
    for (const [name, value] of Object.entries(want)) {
      expect(got[name], name).toBeCloseTo(Number(value), 1);
    }
  };

  test.each(["isolated/index.html", "plain/index.html", "isolated/elsewhere.html"])(
    "%s computes what Node computes",
    async (path) => {
      const { page, lines } = await openPage(browser, `${served.url}/${path}`);
      const isIsolated = path.startsWith("isolated");
      expect(await call(page, "withoutMesh")).toBeCloseTo(4 * Math.tanh(1), 5);
      expect(page.workers()).toEqual([]);
      near(await call(page, "values"), await values());
      const info = await call<{ engine: string; gemm?: string }>(page, "engineInfo");
      expect(info.engine).toBe(isIsolated ? "threads" : "oneThread");
      expect(info.gemm).toContain("WebAssembly");
      expect(await call(page, "roundTrip")).toBe(true);
      expect(page.workers().length).toBe(
        isIsolated ? await page.evaluate(() => Math.max(2, navigator.hardwareConcurrency)) : 1,
      );
      // Without isolation, one line says why all devices are in one worker.
      expect(lines).toHaveLength(isIsolated ? 0 : 1);
      for (const line of lines)
        expect(line).toMatch(
          /^warning: .*not cross-origin isolated.*Cross-Origin-Opener-Policy: same-origin/,
        );
      await page.close();
    },
  );

  test("that is isolated in a browser without shared memory has all devices in one worker", async () => {
    const context = await browser.newContext();
    // The worker has it, but nothing uses it there.
    await context.addInitScript("delete globalThis.SharedArrayBuffer");
    const { page, lines } = await openPage(context, `${served.url}/isolated/index.html`);
    near(await call(page, "values"), await values());
    expect((await call<{ engine: string }>(page, "engineInfo")).engine).toBe("oneThread");
    expect(lines).toEqual([
      expect.stringMatching(/^warning: .*this browser has no SharedArrayBuffer.*one worker/),
    ]);
    await context.close();
  });

  test("trains a language model on a mesh of workers", async () => {
    const { page } = await openPage(browser, `${served.url}/isolated/index.html`);
    const axes = { data: 2 };
    const [got, want] = [await call<number[]>(page, "train", axes), await train(axes)];
    expect(got).toHaveLength(want.length);
    for (const [i, loss] of got.entries()) expect(loss).toBeCloseTo(want[i] ?? 0, 3);
    expect(got.at(-1)).toBeLessThan(got[0] ?? 0);
    await page.close();
  });

  test("computes on its GPU, also on a mesh", { timeout: 240_000 }, async () => {
    const { page } = await openPage(browser, `${served.url}/plain/index.html`);
    const { got, want, refused, deviceKind } = await call<{
      readonly got: readonly number[][];
      readonly want: readonly number[][];
      readonly refused: string;
      readonly deviceKind: string;
    }>(page, "onWebGpu");
    for (const [i, values] of want.entries()) {
      expect(got[i]).toHaveLength(values.length);
      for (const [k, value] of values.entries())
        expect(Math.abs((got[i]?.[k] ?? Number.NaN) - value)).toBeLessThan(1e-5 * (1 + Math.abs(value)));
    }
    expect(refused).toMatch(/sin.* has f64\[32,32\], but the webgpu engine has no float64/);
    expect(deviceKind).not.toBe("");
    await page.close();
  });

  test("keeps files for its origin, and reads files by URL and of a picker", async () => {
    const { page } = await openPage(browser, `${served.url}/isolated/index.html`);
    const { refused, threads, ...rest } = await call<Record<string, unknown>>(page, "files");
    expect(rest).toEqual({ names: ["a.bin"], read: [4, 5], gone: undefined, isWhole: true, picked: [7] });
    expect(refused).toContain("missing.bin, byte 0: the server answers 404");
    expect(threads).toContain("devices in a browser have one thread each");
    const restored = { steps: [2], metadata: { step: 2 }, w: [2, 2, 2, 2] };
    expect(await call(page, "checkpoints")).toEqual(restored);
    await page.close();
  });

  test("reads data behind addresses, in parts where the server allows it, and trains on it", async () => {
    const fixture = (name: string) => readFileSync(new URL(`../data/fixtures/${name}`, import.meta.url));
    const twelve = Array.from({ length: 12 }, (_, i) => `Text ${i} with naïve 🦈 signs.`);
    const lines = twelve.map((text) => `${JSON.stringify({ text })}\n`).join("");
    const { url, server } = await serve(
      new Map<string, string | Uint8Array>([
        ["/index.html", pageWith("page.js")],
        ["/page.js", await bundlePage("test/browser/basics.ts")],
        ["/data/a.jsonl.gz", gzipSync(lines)],
        ["/data/b.csv", `id,text\n${twelve.map((text, i) => `${i},${text}\n`).join("")}`],
        ["/data/c.parquet", fixture("snappy.parquet")],
        ["/data/d.jsonl.zst", fixture("texts.jsonl.zst")],
        ["/data/e.txt", lines],
      ]),
    );
    const { page, lines: written } = await openPage(browser, `${url}/isolated/index.html`);
    const parts: string[] = [];
    page.on("request", (request) => {
      if (request.headers().range !== undefined) parts.push(new URL(request.url()).hostname);
    });
    // The second server does not tell pages of this origin how long a file is.
    const elsewhere = url.replace("127.0.0.1", "localhost");
    const sources = [
      "data/a.jsonl.gz",
      "data/b.csv",
      `${url}/data/c.parquet`,
      `${elsewhere}/data/c.parquet`,
      "data/d.jsonl.zst",
    ];
    expect(await call(page, "textsBehind", sources)).toEqual(sources.map(() => twelve));
    expect(parts.filter((host) => host === "localhost")).toHaveLength(1);
    expect(parts.filter((host) => host === "127.0.0.1").length).toBeGreaterThan(2);
    const [missing] = await call<string[]>(page, "textsBehind", ["data/missing.jsonl"]);
    expect(missing).toMatch(/^\[data\] http:.*data\/missing.jsonl, byte 0: the server answers 404/);
    for (const name of ["a.jsonl.gz", "e.txt"]) {
      const losses = await call<number[]>(page, "trainFrom", `${url}/data/${name}`);
      expect(losses).toHaveLength(16);
      expect(losses.at(-1)).toBeLessThan((losses[0] ?? 0) - 0.3);
    }
    expect(written).toEqual([expect.stringContaining("404")]);
    await page.close();
    server.close();
  });

  test("trains a run into the files of its origin, and continues it", { timeout: 240_000 }, async () => {
    const { page, lines } = await openPage(browser, `${served.url}/isolated/index.html`);
    let numWorkers = 0;
    page.on("worker", () => numWorkers++);
    const first = await call<Record<string, unknown>>(page, "trainInFolder", false);
    // Besides the devices, those that compile the step, the initial state, the check and the evaluation at the same
    // time; one of them compiles the two programs that write a sample, if these come soon enough.
    expect(numWorkers - (2 + 4)).toBeLessThanOrEqual(2);
    expect(first).toMatchObject({
      violations: [],
      status: "finished",
      step: 4,
      names: ["config.json", "metrics.jsonl", "report.html", "trace.json"],
      recorded: [1, 2, 3, 4],
      report: "<!doctype html>",
    });
    expect(first.second).toMatch(/another page or worker of this origin is training into runs\/tab/);
    expect(first.checkpoint).toContain("manifest.json");
    await page.reload();
    const then = await call<Record<string, unknown>>(page, "trainInFolder", true);
    expect(then).toMatchObject({ step: 8, resumedFrom: 4, recorded: [1, 2, 3, 4, 5, 6, 7, 8] });
    expect(lines).toEqual([]);
    await page.close();
  });

  test("runs the programs of docs/browser.md that need a page", { timeout: 240_000 }, async () => {
    const text = readFileSync(new URL("../../docs/browser.md", import.meta.url), "utf8");
    const programs = [...text.matchAll(/<!-- not run: needs a page -->\n```ts\n([\s\S]*?)```/g)];
    expect(programs).toHaveLength(3);
    const novel = "It was the best of times, it was the worst of times. ".repeat(60);
    const files = new Map<string, string | Uint8Array>([["/text.txt", novel]]);
    for (const [i, [, code = ""]] of programs.entries()) {
      const contents =
        i === 0
          ? code.replace("void train();", "train().then(() => postMessage({ hasEnded: true }));")
          : `${code}\nglobalThis.hasEnded = true;`;
      const { outputFiles } = await bundleForBrowser({ stdin: { contents, resolveDir: ".", loader: "ts" } });
      files.set(`/page${i}.html`, i === 0 ? pageWith("starts.js") : pageWith(`page${i}.js`));
      files.set(`/page${i}.js`, outputFiles[0]?.contents ?? "");
    }
    files.set("/starts.js", startsWorker);
    const { url, server } = await serve(files);
    for (const i of programs.keys()) {
      const { page, lines } = await openPage(browser, "about:blank");
      const downloads: string[] = [];
      page.on("download", (download) => downloads.push(download.suggestedFilename()));
      await page.goto(`${url}/isolated/page${i}.html`);
      await page.waitForFunction("globalThis.hasEnded", undefined, { timeout: 120_000 });
      if (i > 0)
        await expect.poll(() => downloads).toEqual([[], ["first.tar.gz"], ["weights.safetensors"]][i]);
      else {
        // Lines of workers may arrive after what the page says itself.
        const saved = expect.stringMatching(/^log: runs\/first\/checkpoints\//);
        await expect.poll(() => lines).toEqual(["log: 100 %", saved]);
        expect(await page.evaluate("steps")).toEqual(Array.from({ length: 20 }, (_, step) => step + 1));
        expect(await page.evaluate<number>("turns")).toBeGreaterThan(20);
      }
      await page.close();
    }
    server.close();
  });

  test("goes on while workers compute, and ends them with their engine", async () => {
    const { page } = await openPage(browser, `${served.url}/isolated/index.html`);
    const { ticks, closed } = await call<{ ticks: number; closed: string }>(page, "whileBusy");
    expect(ticks).toBeGreaterThan(3);
    expect(closed).toBe("DisposedError");
    await expect.poll(() => page.workers().length).toBe(0);
    await page.close();
  });

  test("answers while a deep model is compiled", { timeout: 120_000 }, async () => {
    const { page } = await openPage(browser, `${served.url}/isolated/index.html`);
    expect(await call<number>(page, "compileDeep", 12)).toBeGreaterThan(10);
    await page.close();
  });

  test.each(["isolated", "plain"])(
    "of a kind that is %s leaves compiling a first call to a worker",
    { timeout: 120_000, retry: 2 },
    async (kind) => {
      const firstCall = async (isAtOnce: boolean) => {
        const { page } = await openPage(browser, `${served.url}/${kind}/index.html`);
        const found = await call<{ pause: number; sum: number }>(page, "firstCall", 16, isAtOnce);
        await page.close();
        return found;
      };
      const [left, atOnce] = [await firstCall(false), await firstCall(true)];
      expect(left.sum).toBeCloseTo(atOnce.sum, 3);
      // What remains is tracing; compiling takes several times as long.
      expect(left.pause).toBeLessThan(0.6 * atOnce.pause);
    },
  );

  test.each(["isolated", "plain"])(
    "of a kind that is %s ends runs, compilations and workers with their signal, their engine and the page",
    async (kind) => {
      const context = await browser.newContext();
      await context.addInitScript(countsWorkers);
      const { page } = await openPage(context, `${served.url}/${kind}/index.html`);
      const numWorkers = () => page.evaluate<number>("workers.size");
      expect(await call<string>(page, "abortRun")).toBe("DisposedError");
      await expect.poll(numWorkers, { timeout: 10_000 }).toBe(0);
      expect(await call<string>(page, "closeWhileCompiling")).toBe("DisposedError");
      await expect.poll(numWorkers, { timeout: 10_000 }).toBe(0);
      await call(page, "startForever");
      await call(page, "startCompiling");
      const numShared = Math.max(2, await page.evaluate(() => navigator.hardwareConcurrency));
      const all = (kind === "isolated" ? 2 + numShared : 1 + 1) + 1;
      await expect.poll(numWorkers, { timeout: 10_000 }).toBe(all);
      const leave = (persisted: boolean) =>
        page.evaluate<number>(
          `dispatchEvent(new PageTransitionEvent("pagehide", { persisted: ${persisted} })); workers.size`,
        );
      // A page that is only put away keeps its workers; when it ends, there is no time left for anything later.
      expect(await leave(true)).toBe(all);
      expect(await leave(false)).toBe(0);
      await expect.poll(() => page.workers().length, { timeout: 10_000 }).toBe(0);
      await context.close();
    },
  );

  test("computes on when it is put away and comes back", async () => {
    const { outputFiles } = await bundleForBrowser({ stdin: { contents: putAway, resolveDir: "." } });
    const { url, server } = await serve(
      new Map<string, string | Uint8Array>([
        ["/index.html", pageWith("page.js")],
        ["/page.js", outputFiles[0]?.contents ?? ""],
        ["/other.html", pageWith("other.js")],
        ["/other.js", ""],
      ]),
    );
    let said: string[] = [];
    server.on("request", ({ url = "" }) => {
      const [, what] = url.split("said?");
      if (what) said.push(decodeURIComponent(what));
    });
    const keeping = await launchBrowser(executablePath, { keepsPages: true });
    for (const kind of ["isolated", "plain"]) {
      said = [];
      const { page } = await openPage(keeping, `${url}/${kind}/index.html`);
      await expect.poll(() => said, { timeout: 20_000 }).toContain("computing");
      await page.goto(`${url}/${kind}/other.html`);
      await page.evaluate("history.back()");
      await expect.poll(() => said, { timeout: 20_000 }).toContain("two more values: 8, 8");
      expect(said).toEqual(["computing", "put away", "back", "the value: 65536", "two more values: 8, 8"]);
      await page.close();
    }
    await keeping.close();
    server.close();
  });

  test("tells what it cannot hold and what it could not stop", async () => {
    const { page } = await openPage(browser, `${served.url}/isolated/index.html`);
    const [elements = "", memory = "", pattern = ""] = await call<string[]>(page, "limits");
    expect(elements).toMatch(/^ShapeError: .*34359738368 elements, more than 2\^34: split it into parts/);
    expect(memory).toMatch(/^OutOfMemoryError: .*f32\[1073741824\].* reported by the browser/);
    expect(pattern).toMatch(/^ValueError: \[tokenizer\] the pattern .*\(a\+\)\+b.* a page cannot stop it/);
    await page.close();
  });
});

const { exports, dependencies } = JSON.parse(
  readFileSync(new URL("../../package.json", import.meta.url), "utf8"),
) as {
  readonly exports: Readonly<Record<string, object | string>>;
  readonly dependencies: Readonly<Record<string, string>>;
};
const entries = Object.keys(exports).filter((entry) => typeof exports[entry] === "object");

test("no entry point reaches a module of Node in a browser", async () => {
  const contents = entries
    .map((entry, i) => `export * as e${i} from "${entry.replace(".", "shardwise")}";`)
    .join("\n");
  // A module that a page does not have is an error here.
  const { metafile } = await bundleForBrowser({ stdin: { contents, resolveDir: "." }, metafile: true });
  // Readers of rare formats are loaded when a file needs them, and only then.
  const imports = Object.values(metafile.outputs).flatMap((output) => output.imports);
  const readers = Object.keys(dependencies).map((path) => ({ path, kind: "dynamic-import", external: true }));
  expect(imports).toEqual(readers);
});
