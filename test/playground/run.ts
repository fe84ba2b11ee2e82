/**
 * Opens the playground in a browser and tries all of it:
 *
 *   npm run test:playground [-- --part programs|mistakes|pages|gpu|access] [--screenshots FOLDER]
 *
 * Needs chromium; without it the exit code is 3.
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { Browser, Page } from "playwright-core";
import { buildPlayground } from "../../scripts/playground/build.js";
import { serve } from "../../scripts/playground/serve.js";
import { launchBrowser } from "../support/browserPage.js";
import { findChromium } from "../support/programs.js";
import { accessProblems } from "./access.js";

const { values } = parseArgs({ options: { part: { type: "string" }, screenshots: { type: "string" } } });
const executablePath = findChromium();
if (executablePath === undefined) {
  console.log("skipped: there is no chromium (CHROMIUM names one)");
  process.exit(3);
}

const folder = mkdtempSync(join(tmpdir(), "playground-"));
await buildPlayground(folder);
const server = await serve(`${folder}/`, 0);
const plain = await serve(`${folder}/`, 0, false);
const address = (of: typeof server) => `http://127.0.0.1:${(of.address() as AddressInfo).port}/`;
const browser: Browser = await launchBrowser(executablePath);
let [passed, failed] = [0, 0];

/** A page of its own, on which nothing may be written to the console but what is expected there. */
async function withPage(
  options: Parameters<Browser["newContext"]>[0],
  work: (page: Page) => Promise<void>,
  expected?: RegExp,
): Promise<void> {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const written: string[] = [];
  page.on("console", (message) => {
    if (!expected?.test(message.text())) written.push(`${message.type()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => written.push(`error: ${error.message}`));
  try {
    await work(page);
    if (written.length > 0) throw new Error(`written to the console: ${written.join("; ")}`);
  } finally {
    await context.close();
  }
}

/** Runs a check and counts it. */
async function check(name: string, work: () => Promise<void>): Promise<void> {
  const begin = performance.now();
  try {
    await work();
    passed++;
    console.log(`ok ${name} (${((performance.now() - begin) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed++;
    console.log(`FAILED ${name}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function same(actual: unknown, expected: unknown, what: string): void {
  if (actual !== expected)
    throw new Error(`${what}: ${JSON.stringify(actual)} instead of ${JSON.stringify(expected)}`);
}

function matches(text: string | null, pattern: RegExp): void {
  if (!pattern.test(text ?? "")) throw new Error(`${JSON.stringify(text)} does not match ${pattern}`);
}

const open = async (page: Page, hash: string, base = address(server)) => {
  await page.goto(`${base}#/${hash}`);
  await page.waitForSelector("main h2, main .panes");
};
const openEditor = async (page: Page, hash = "program") => {
  await open(page, hash);
  await page.waitForSelector('[data-editor="ready"]', { timeout: 60_000 });
};
const write = async (page: Page, code: string) => {
  await page.click(".cm-content");
  await page.keyboard.press("Control+a");
  await page.keyboard.insertText(code);
};
const run = async (page: Page, limit = 120_000): Promise<string> => {
  await page.getByRole("button", { name: "Run" }).click();
  await page.waitForFunction(
    () => !/^(Compiling|Running|Ready)/.test(document.querySelector(".status")?.textContent ?? "Running"),
    undefined,
    { timeout: limit },
  );
  return (await page.textContent(".status")) ?? "";
};

async function programs(): Promise<void> {
  await withPage({}, async (page) => {
    await openEditor(page);
    const options = await page.$$eval('[aria-label="Example"] option', (all) =>
      all.map((one) => ({ value: (one as HTMLOptionElement).value, title: one.textContent ?? "" })),
    );
    if (options.length < 20) throw new Error(`there are only ${options.length} examples`);
    for (const { value, title } of options) {
      await check(`program: ${title}`, async () => {
        await page.selectOption('[aria-label="Example"]', value);
        matches(await run(page), /^Finished/);
      });
    }
  });
  await check("engines of a program", () =>
    withPage({}, async (page) => {
      await openEditor(page);
      const code = [
        'import { engineInfo, jit, Mesh, np, P } from "shardwise";',
        "const mesh = Mesh.create({ data: 2 });",
        'const total = jit((x) => np.sum(x), { mesh, inShardings: [P("data")] })(np.ones([8]));',
        "console.log(engineInfo().engine, String(await total.item()));",
      ];
      await write(page, code.join("\n"));
      for (const [engine, said] of [
        ["workers", /^threads 8/],
        ["one thread", /oneThread 8/],
      ] as const) {
        await page.getByLabel("Engine").selectOption(engine);
        matches(await run(page), /^Finished/);
        matches(await page.textContent("pre.output"), said);
      }
    }),
  );
  await check("views of a program", async () => {
    await withPage({}, async (page) => {
      await openEditor(page, "program?example=tensorParallel");
      matches(await run(page), /^Finished/);
      await page.getByRole("tab", { name: "Programs" }).click();
      matches(await page.textContent(".body"), /what every device runs|what the compiler turns into kernels/);
      await page.locator(".program td.source button").first().click();
      matches(await page.evaluate(() => document.activeElement?.className ?? ""), /cm-content/);
      await page.getByRole("tab", { name: "Devices" }).click();
      if ((await page.locator(".placement").count()) < 2) throw new Error("no placements are drawn");
      await page.getByRole("tab", { name: "Messages" }).click();
      matches(await page.textContent(".body"), /over model/);
      await page.getByRole("tab", { name: "Times" }).click();
      matches(await page.textContent(".body"), /shardMap.*\d m?s\s*[\d.]+ ms/);
    });
  });
  await check("completion in the editor", () =>
    withPage({}, async (page) => {
      await openEditor(page);
      await write(page, 'import { np } from "shardwise";\n');
      await page.keyboard.press("Control+End");
      await page.keyboard.type("np.matm");
      await page.locator(".cm-tooltip-autocomplete li", { hasText: "matmul" }).waitFor({ timeout: 30_000 });
      await page.keyboard.press("Enter");
      matches(await page.textContent(".cm-content"), /np\.matmul/);
    }),
  );
}

async function mistakes(): Promise<void> {
  const cases: readonly (readonly [name: string, code: string, status: RegExp])[] = [
    ["a syntax error", "const a = 1;\nconst b = ;\n", /^Line 2: Expression expected/],
    [
      "an error that is thrown",
      'const a: number = 1;\n\nthrow new Error("no " + a);\n',
      /^Line 3: Error: no 1/,
    ],
    [
      "an error in a loop",
      'for (const i of [1, 2]) { if (i === 2)\n  throw new Error("at " + i); }\n',
      /^Line 2: Error: at 2/,
    ],
    [
      "a rejected promise",
      'void Promise.reject(new Error("late"));\nawait new Promise((done) => setTimeout(done, 50));\n',
      /Error: late/,
    ],
    ["an unknown module", 'import { readFile } from "fs";\nreadFile;\n', /^Line 1: .*no module "fs"/],
    [
      "shapes that do not fit",
      'import { np } from "shardwise";\n\nnp.matmul(np.ones([2, 3]), np.ones([2, 3]));\n',
      /^Line 3: \w*Error: /,
    ],
    [
      "100 GB",
      'import { np } from "shardwise";\nconsole.log(String(np.sum(np.ones([160_000, 160_000]))));\n',
      /^Line 2: \w*Error: /,
    ],
    [
      "storage of this site",
      'await new Promise((done, refused) => {\n  const asked = indexedDB.open("x");\n  asked.onsuccess = done;\n  asked.onerror = () => refused(asked.error);\n});\n',
      /SecurityError|not allowed|denied/i,
    ],
  ];
  for (const [name, code, status] of cases) {
    await check(`mistake: ${name}`, () =>
      withPage({}, async (page) => {
        await openEditor(page);
        await write(page, code);
        matches(await run(page), status);
        await write(page, 'console.log("well");\n');
        matches(await run(page), /^Finished/);
      }),
    );
  }
  await check("mistake: a program that never ends", () =>
    withPage({}, async (page) => {
      await openEditor(page);
      await write(page, "let n = 0;\nwhile (n < 10) n--;\n");
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByText("The loop in line 2 has not paused for").waitFor({ timeout: 60_000 });
      await page.getByRole("button", { name: "Stop" }).click();
      same(await page.textContent(".status"), "Stopped.", "status");
      await write(page, 'console.log("well");\n');
      matches(await run(page), /^Finished/);
    }),
  );
  await check("mistake: output without end", () =>
    withPage({}, async (page) => {
      await openEditor(page);
      await write(page, 'for (;;) console.log("");\n');
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByText("further output is not shown").waitFor({ timeout: 60_000 });
      await page.getByRole("button", { name: "Stop" }).click();
      same(await page.textContent(".status"), "Stopped.", "status");
      if ((await page.locator("pre.output span").count()) > 5000) throw new Error("too much is shown");
    }),
  );
  await check("a program that is stopped before it runs", () =>
    withPage({}, async (page) => {
      await openEditor(page);
      await write(page, 'console.log("it ran");\n');
      matches(await run(page), /^Finished/);
      await page.evaluate(() => {
        const buttons = [...document.querySelectorAll<HTMLButtonElement>(".bar button")];
        for (const name of ["Run", "Stop"]) buttons.find(({ textContent }) => textContent === name)?.click();
      });
      await page.waitForTimeout(2000);
      same(await page.textContent(".status"), "Stopped.", "status");
      same(await page.textContent("pre.output"), "", "output");
      matches(await run(page), /^Finished/);
    }),
  );
  await check("a program in a link waits for a click", () =>
    withPage({ permissions: ["clipboard-read", "clipboard-write"] }, async (page) => {
      await openEditor(page);
      await write(page, 'console.log("from a link");\n');
      await page.getByRole("button", { name: "Share" }).click();
      await page.waitForFunction(() => location.hash.includes("code="));
      const url = page.url();
      await page.goto("about:blank");
      await page.goto(url);
      await page.waitForSelector('[data-editor="ready"]');
      await page.waitForTimeout(500);
      matches(await page.textContent(".banner"), /came with the link/);
      same(await page.textContent("pre.output"), "", "output before the click");
      matches(await run(page), /^Finished/);
      matches(await page.textContent("pre.output"), /from a link/);
    }),
  );
  await check("a broken link", () =>
    withPage({}, async (page) => {
      await openEditor(page, "program?code=AAAA");
      matches(await page.textContent(".cm-content"), /This link holds no program/);
    }),
  );
}

/** Waits for some steps of training; returns the loss. */
async function lossAfter(page: Page, steps: number): Promise<number> {
  await page.waitForFunction(
    (steps) =>
      document.querySelector(".status.error") !== null ||
      Number(document.querySelector(".facts dd")?.textContent) >= steps,
    steps,
    { timeout: 240_000 },
  );
  matches(await page.textContent(".status"), /^Training on/);
  const label = await page.locator('svg[aria-label^="Loss"]').getAttribute("aria-label");
  const [, loss] = /Loss: ([\d.]+)/.exec(label ?? "") ?? [];
  return Number(loss);
}

/** Waits for some steps of training, after which the loss must be clearly below that of guesses, ln 260 = 5.6. */
async function trained(page: Page, steps: number): Promise<void> {
  const loss = await lossAfter(page, steps);
  if (!(loss < 5)) throw new Error(`the loss is ${loss}`);
}

async function pages(): Promise<void> {
  await check("functions: every moment of every picture", () =>
    withPage({}, async (page) => {
      await open(page, "functions");
      const cards = page.locator(".card");
      for (let i = 0; i < (await cards.count()); i++) {
        const card = cards.nth(i);
        const [, count = "1"] =
          /of (\d+):/.exec((await card.locator("p[aria-live]").textContent()) ?? "") ?? [];
        for (let k = 1; k < Number(count); k++)
          await card.getByRole("button", { name: "Next moment" }).click();
        matches(await card.locator("p[aria-live]").textContent(), new RegExp(`^${count} of ${count}`));
      }
    }),
  );
  await check("pipelines: every schedule is drawn, one is measured", () =>
    withPage({}, async (page) => {
      await open(page, "pipelines");
      const names = await page.$$eval("main select option", (all) => all.map((one) => one.textContent ?? ""));
      for (const name of names) {
        await page.selectOption("main select", name);
        matches(await page.textContent("main"), /bubble/);
        same(await page.locator("main .error").count(), 0, `errors of ${name}`);
      }
      await page.selectOption("main select", "1f1b");
      await page.getByLabel("Stages").fill("2");
      await page.getByRole("button", { name: "Measure" }).click();
      await page.getByText("Measured in this tab").waitFor({ timeout: 120_000 });
    }),
  );
  for (const [name, base] of [
    ["workers", address(server)],
    ["one thread", address(plain)],
  ] as const) {
    const isPlain = base === address(plain);
    await check(`training: the loss falls on ${name}`, () =>
      withPage(
        isPlain ? { serviceWorkers: "block" } : {},
        async (page) => {
          await open(page, "training", base);
          await page.getByRole("button", { name: "Train" }).click();
          // Past the first text that it writes.
          await trained(page, 12);
          matches(await page.textContent("pre.output"), /^The .{20}/s);
        },
        isPlain ? /not cross-origin isolated|Service Worker registration blocked/ : undefined,
      ),
    );
  }
  await check("training: a mesh is chosen by clicks", () =>
    withPage({}, async (page) => {
      await open(page, "training");
      for (const axis of ["data", "pipe", "model"])
        await page
          .getByRole("group", { name: new RegExp(`^${axis}:`) })
          .getByText(axis === "data" ? "1" : "2")
          .click();
      same(await page.locator(".devices li").count(), 4, "devices of the mesh");
      await page.getByRole("button", { name: "Train" }).click();
      await trained(page, 12);
      same(await page.locator('svg[aria-label^="What 4 devices did"]').count(), 1, "timelines");
    }),
  );
  await check("everything works without a network after the first load of one page", () =>
    withPage({}, async (page) => {
      await open(page, "functions");
      await page.waitForSelector('[data-offline="ready"]', { timeout: 60_000 });
      await page.context().setOffline(true);
      await page.reload();
      await page.waitForSelector("main h2");
      matches(await page.textContent("main h2"), /Functions/);
      await openEditor(page);
      matches(await run(page), /^Finished/);
      await open(page, "training");
      await page.getByRole("button", { name: "Train" }).click();
      await trained(page, 12);
    }),
  );
  await check("digits: it learns", () =>
    withPage({}, async (page) => {
      await open(page, "digits");
      await page.getByText(/finished learning/).waitFor({ timeout: 240_000 });
      const { x, y } = (await page.locator("canvas.pad").boundingBox()) ?? { x: 0, y: 0 };
      await page.mouse.move(x + 60, y + 50);
      await page.mouse.down();
      await page.mouse.move(x + 160, y + 50, { steps: 5 });
      await page.mouse.move(x + 110, y + 190, { steps: 5 });
      await page.mouse.up();
      await page.getByText("That is a 7.").waitFor();
    }),
  );
}

/** Takes two steps on the software adapter, which compiles shaders for longer than it computes. */
async function gpu(): Promise<void> {
  await check("training: steps on WebGPU", () =>
    withPage({}, async (page) => {
      await open(page, "training");
      await page
        .getByRole("group", { name: /^data:/ })
        .getByText("1")
        .click();
      const engine = page.getByLabel("Engine");
      await engine.focus();
      await page.locator("option:not([disabled])", { hasText: "WebGPU" }).waitFor({ state: "attached" });
      await engine.selectOption({ index: 1 });
      await page.getByRole("button", { name: "Train" }).click();
      const loss = await lossAfter(page, 2);
      if (!(loss > 5 && loss < 7)) throw new Error(`the loss is ${loss}`);
      matches(await page.textContent(".status"), /engine webgpu on \w/);
    }),
  );
}

/** Layout shift that counts as none: https://web.dev/articles/cls calls pages below 0.1 good. */
const maxShift = 0.02;

/** Adds up how far contents of the page move without the user having done something; runs inside of the page. */
function observeShifts(): void {
  const page = globalThis as { layoutShift?: number };
  page.layoutShift = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries() as unknown as { value: number; hadRecentInput: boolean }[])
      if (!entry.hadRecentInput) page.layoutShift = (page.layoutShift ?? 0) + entry.value;
  }).observe({ type: "layout-shift", buffered: true });
}

async function access(): Promise<void> {
  if (values.screenshots) mkdirSync(values.screenshots, { recursive: true });
  const views = { wide: { width: 1280, height: 800 }, phone: { width: 390, height: 844 } };
  for (const hash of ["program", "functions", "pipelines", "training", "digits"]) {
    for (const colorScheme of ["light", "dark"] as const) {
      for (const [size, viewport] of Object.entries(views)) {
        await check(`access: ${hash}, ${colorScheme}, ${size}`, () =>
          withPage({ viewport, colorScheme }, async (page) => {
            await page.addInitScript(observeShifts);
            await (hash === "program" ? openEditor(page) : open(page, hash));
            await page.waitForTimeout(300);
            const problems = await page.evaluate(accessProblems);
            if (values.screenshots) {
              await page.screenshot({
                path: join(values.screenshots, `${hash}-${colorScheme}-${size}.png`),
                fullPage: true,
              });
            }
            const shift = await page.evaluate(
              () => (globalThis as { layoutShift?: number }).layoutShift ?? 0,
            );
            if (shift > maxShift)
              problems.push(`its contents moved while it was loaded: ${shift.toFixed(3)}`);
            if (problems.length > 0) throw new Error(problems.join("; "));
          }),
        );
      }
    }
  }
  await check("the first load is below 1 MB before the editor", () =>
    withPage({}, async (page) => {
      let bytes = 0;
      await page.route(/editor|types\.json|language\.js/, (route) => route.abort());
      page.on("response", async (response) => {
        bytes += Number(response.headers()["content-length"] ?? 0);
      });
      await open(page, "functions");
      await page.waitForTimeout(500);
      if (!(bytes > 10_000 && bytes < 1e6)) throw new Error(`${bytes} bytes were loaded`);
    }),
  );
}

const parts = { programs, mistakes, pages, gpu, access };
for (const [name, part] of Object.entries(parts)) {
  if (values.part === undefined || values.part === name) await part();
}
await browser.close();
server.close();
plain.close();
rmSync(folder, { recursive: true, force: true });
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
