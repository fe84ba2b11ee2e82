import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import "../src/index.js";
import { createThreadsEngine } from "../src/engines/index.js";
import { openLivePage } from "../src/train/report/livePage.js";
import { trainRun } from "../src/train/run/trainRun.js";
import { describeWith, browser as installedBrowser } from "./support/optional.js";
import { silent, temporaryFolder, tinyConfig, writeText } from "./support/runs.js";

/** Where to put pictures of the report, to be looked at; nowhere by default. */
const pictures = process.env.SHARDWISE_SCREENSHOTS;

const flags = [
  "--no-sandbox",
  "--disable-gpu",
  // Containers have little of it, or none.
  "--disable-dev-shm-usage",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

const sections = [
  "Loss",
  "Throughput",
  "Gradient norm",
  "Learning rate",
  "A sample",
  "Checkpoints",
  "One step, device by device",
  "Pipeline schedule",
  "Parameters",
  "Memory of each device",
  "Communication of a step",
];

describeWith(installedBrowser, "the report of a circular run", (executablePath) => {
  const folder = temporaryFolder();
  let address = "";
  let browser: Browser;

  beforeAll(async () => {
    writeText(folder.path);
    const engine = createThreadsEngine({ numDevices: 2 });
    try {
      const changes = { "mesh.pipe": 2, "pipeline.repeats": 2, "pipeline.microbatches": 4, sample: 12 };
      const config = tinyConfig(folder.path, { ...changes, evalEvery: 3 });
      const { files } = await trainRun({ config, engine, stream: silent });
      address = pathToFileURL(files.report ?? "").href;
    } finally {
      await engine.close();
    }
    // Every launch has a new, empty profile.
    browser = await chromium.launch({ executablePath, headless: true, args: flags });
  }, 180_000);
  afterAll(async () => {
    await browser?.close();
    folder.remove();
  });

  /** Opens the report and gives what the page complained about and asked for. */
  const open = async (width: number, colorScheme: "light" | "dark") => {
    const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
    const complaints: string[] = [];
    const requests: string[] = [];
    page.on("console", (message) => complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("request", (request) => requests.push(request.url()));
    await page.goto(address);
    if (pictures) {
      mkdirSync(pictures, { recursive: true });
      await page.screenshot({ path: join(pictures, `report-${width}-${colorScheme}.png`), fullPage: true });
    }
    return { page, complaints, requests };
  };

  test.each([
    [1280, "light"],
    [1280, "dark"],
    [768, "light"],
    [768, "dark"],
    [360, "light"],
    [360, "dark"],
  ] as const)("is whole at %i pixels in %s colours", { timeout: 60_000 }, async (width, scheme) => {
    const { page, complaints, requests } = await open(width, scheme);
    try {
      expect(complaints).toEqual([]);
      expect(requests).toEqual([address]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
      expect(await page.locator("h2").allTextContents()).toEqual(sections);
      for (const [i, title] of sections.entries()) {
        const box = await page.locator("section").nth(i).boundingBox();
        expect(box?.height, title).toBeGreaterThan(80);
        expect(box?.width, title).toBeGreaterThan(300);
      }
      expect(await misplacedLabels(page), "labels outside the page or over each other").toEqual([]);
      const ends = await page
        .locator(".chart path, .chart circle, .chart rect")
        .evaluateAll((nodes) => nodes.map((node) => node.getBoundingClientRect().right));
      expect(Math.max(...ends), "right end of what charts draw").toBeLessThanOrEqual(width);
      expect(await readability(page), "contrast of text and paper").toBeGreaterThan(4.5);
    } finally {
      await page.close();
    }
  });

  test("shows numbers, operations and wide tables to a reader without a pointer", {
    timeout: 60_000,
  }, async () => {
    const { page } = await open(360, "light");
    try {
      const seen: string[] = [];
      for (let i = 0; i < 40; i++) {
        await page.keyboard.press("Tab");
        const focused = await page.evaluate(() => {
          const element = document.activeElement;
          return (
            element?.textContent &&
            `${element.tagName}: ${element.getAttribute("aria-label") ?? element.textContent}`
          );
        });
        if (focused) seen.push(focused);
        if (focused === "SUMMARY: Numbers" && !seen.includes("opened")) {
          await page.keyboard.press("Enter");
          seen.push("opened");
        }
      }
      expect(await page.locator("details[open] td").first().textContent()).toBe("1");
      expect(seen).toContain("SUMMARY: Longest operations");
      expect(seen).toContain("DIV: parameter, shape, split over, size, on each device");
      const names = await page.locator("svg[role=img]").evaluateAll((all) => all.map((one) => one.ariaLabel));
      expect(names[0]).toMatch(
        /^loss \(nats per token\) by step: training from \S+ at 1 to \S+ at 6; validation from/,
      );
      expect(names.every((name) => name)).toBe(true);
    } finally {
      await page.close();
    }
  });

  test("draws planned and measured iterations on one scale", { timeout: 60_000 }, async () => {
    const { page } = await open(1280, "light");
    try {
      const section = page.locator("section", {
        has: page.locator("h2", { hasText: "Pipeline schedule" }),
      });
      const boxes = await section.locator("rect.slot").evaluateAll((nodes) =>
        nodes.map((node) => {
          const { left, right, top } = node.getBoundingClientRect();
          return { left, right, top, fill: getComputedStyle(node).fill };
        }),
      );
      // 4 microbatches, 2 repeats, 2 stages: 9 iterations each way in 2 planned and 2 measured rows.
      expect(boxes).toHaveLength(4 * 2 * 9);
      const heights = [...new Set(boxes.map(({ top }) => Math.round(top)))];
      const rows = heights.map((height) => boxes.filter(({ top }) => Math.round(top) === height));
      const ends = rows.map((row) => Math.max(...row.map(({ right }) => right)));
      const begins = rows.map((row) => Math.min(...row.map(({ left }) => left)));
      expect(rows.map((row) => row.length)).toEqual([18, 18, 18, 18]);
      // One of the two devices begins first and one ends last, where the plan does.
      for (const edges of [begins, ends]) {
        const [planned = 0, , ...measured] = edges;
        expect(Math.min(...measured.map((edge) => Math.abs(edge - planned)))).toBeLessThan(2);
      }
      // Four colours in two shades, and the bubble.
      expect(new Set(boxes.map(({ fill }) => fill)).size).toBe(4 * 2 + 1);
    } finally {
      await page.close();
    }
  });
});

describeWith(installedBrowser, "a live page", (executablePath) => {
  test("changes by itself, keeps what the reader opened, and says when the run ends", {
    timeout: 120_000,
  }, async () => {
    const live = await openLivePage({ interval: 10 });
    const browser = await chromium.launch({ executablePath, headless: true, args: flags });
    try {
      const page = await browser.newPage();
      const complaints: string[] = [];
      page.on("console", (message) => complaints.push(message.text()));
      page.on("pageerror", (error) => complaints.push(error.message));
      await page.goto(live.address);
      await page.locator("#connection", { hasText: "updates automatically" }).waitFor();
      const show = (loss: string, more: readonly { id: string; html: string }[] = []) => {
        const html = `<p>loss ${loss}</p><details><summary>Numbers</summary>1 2 3</details>`;
        live.show({ title: "a run", folder: ".", sections: () => [...more, { id: "loss", html }] });
      };
      show("5.5");
      await page.getByText("loss 5.5").waitFor();
      await page.locator("summary").focus();
      await page.keyboard.press("Enter");
      show("4.4", [{ id: "first", html: "<p>new</p>" }]);
      await page.getByText("loss 4.4").waitFor();
      expect(await page.locator("details[open]").count()).toBe(1);
      expect(await page.evaluate(() => document.activeElement?.tagName)).toBe("SUMMARY");
      expect(await page.locator("main > div").evaluateAll((all) => all.map(({ id }) => id))).toEqual([
        "connection",
        "status",
        "first",
        "loss",
      ]);
      await live.close("The run has finished.");
      await page.locator("#connection", { hasText: "The run has finished." }).waitFor();
      expect(complaints).toEqual([]);
    } finally {
      await browser.close();
    }
  });
});

/** Labels of charts that lie outside the page, are too small, or cover each other. */
function misplacedLabels(page: Page): Promise<string[]> {
  return page.evaluate(() =>
    [...document.querySelectorAll("svg[role=img]")].flatMap((chart) => {
      const labels = [...chart.querySelectorAll("text")]
        .map((node) => ({ text: node.textContent ?? "", box: node.getBoundingClientRect() }))
        .filter(({ box }) => box.width > 0);
      const outside = labels.filter(
        ({ box }) => box.left < 0 || box.right > document.documentElement.clientWidth || box.height < 11,
      );
      const covering = labels.filter(({ box }, i) =>
        labels
          .slice(i + 1)
          .some(
            ({ box: other }) =>
              box.left < other.right - 1 &&
              other.left < box.right - 1 &&
              box.top < other.bottom - 4 &&
              other.top < box.bottom - 4,
          ),
      );
      return [...outside, ...covering].map(({ text }) => `${chart.ariaLabel}: ${text}`);
    }),
  );
}

/** The contrast of the body's text with its background, as WCAG counts it. */
function readability(page: Page): Promise<number> {
  return page.evaluate(() => {
    const { color, backgroundColor } = getComputedStyle(document.body);
    const luminance = (text: string) => {
      const [r = 0, g = 0, b = 0] = (text.match(/[\d.]+/g) ?? []).map((part) => {
        const share = Number(part) / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const [low = 0, high = 0] = [luminance(color), luminance(backgroundColor)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  });
}
