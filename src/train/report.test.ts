import { execFileSync } from "node:child_process";
import { existsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { lineChart, table, timeline } from "./charts.js";
import { type RunReport, reportHtml } from "./report.js";
import { temporaryFolder } from "./testRuns.js";

const folder = temporaryFolder();
afterAll(folder.remove);

const report: RunReport = {
  title: 'A run called <script>alert("no")</script>',
  facts: [["loss", "6.1 → 2.0"]],
  steps: [1, 2, 3].map((step) => ({ step, loss: 4 - step, gradientNorm: 1, tokensPerSecond: 1000 * step })),
  evaluations: [{ step: 3, loss: 1.5 }],
  timeline: [0, 1].map((device) => ({
    device,
    spans: [
      { begin: device, end: 4, kind: "gemm", title: "dotGeneral" },
      { begin: 4, end: 5, kind: "collective", title: "psum" },
    ],
  })),
  schedule: [
    ["0", "1", null],
    [null, "0", "1"],
  ],
  parameters: [{ path: "embed/embedding", shape: "f32[4,4]", spec: "P()", bytes: 64, bytesPerDevice: 64 }],
  memory: [{ what: "parameters", bytesPerDevice: 2048 }],
  collectives: [{ kind: "psum", axis: "data", count: 2, bytes: 128 }],
  sample: "Call me <b>Ishmael</b>",
};

describe("a report", () => {
  const html = reportHtml(report);

  test("shows everything that is known and needs no network and no script", () => {
    for (const text of ["validation", "device 1", "stage 1", "33.3 %", "embed/embedding", "2 KiB", "psum"]) {
      expect(html).toContain(text);
    }
    expect(html).not.toMatch(/<script|https?:\/\//);
    expect(html).not.toContain("<b>Ishmael");
  });

  const browsers = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  const browser = browsers.find((path) => existsSync(path));

  test.skipIf(!browser)("is drawn by a browser as it is written", { timeout: 120_000 }, () => {
    const page = join(folder.path, "report.html");
    const picture = join(folder.path, "report.png");
    writeFileSync(page, html);
    const open = (...args: readonly string[]) =>
      execFileSync(
        browser ?? "",
        ["--headless", "--no-sandbox", "--disable-gpu", ...args, `file://${page}`],
        {
          encoding: "utf8",
          stdio: ["ignore", "pipe", "ignore"],
        },
      );
    const dom = open("--dump-dom");
    expect(dom.match(/<svg/g)).toHaveLength(3);
    expect(dom.match(/<rect class="kind-gemm"/g)).toHaveLength(2);
    open("--hide-scrollbars", "--window-size=960,2400", `--screenshot=${picture}`);
    expect(statSync(picture).size).toBeGreaterThan(20_000);
  });
});

test("charts say so when there is nothing to draw, and show a single point", () => {
  expect(lineChart([], { x: "step", y: "loss" })).toContain("nothing was recorded");
  expect(timeline([], "ms")).toContain("no step was recorded");
  const one = lineChart([{ name: "a", colour: "red", points: [[1, 2]] }], { x: "step", y: "loss" });
  expect(one).toContain("<circle");
  expect(one).not.toContain("NaN");
  expect(table(["a", "size"], [["x", { bytes: 1024 }]])).toContain('<td class="number">1 KiB</td>');
});
