import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { temporaryFolder, tinyConfig } from "../../../test/support/runs.js";
import { comparePage, compareText, differences, readRuns } from "./compareRuns.js";
import { openMetricsFile } from "./metrics.js";

const folder = temporaryFolder();
afterAll(folder.remove);

/** Writes the folder of a run whose loss falls by a factor. */
function writeRun(name: string, changes: Readonly<Record<string, unknown>>, factor: number): string {
  const out = join(folder.path, name);
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, "config.json"), JSON.stringify(tinyConfig(folder.path, { ...changes, out })));
  const file = openMetricsFile(join(out, "metrics.jsonl"));
  for (let step = 1; step <= 10; step++) {
    file.write(step, { loss: 6 * factor ** step, tokensPerSecond: 64, seconds: 0.5 });
    if (step % 5 === 0) file.write(step, { evaluationLoss: 6 * factor ** (step - 1) });
  }
  file.close();
  return out;
}

const slow = writeRun("slow", { "optimizer.learningRate": 0.001 }, 0.95);
const fast = writeRun("fast", { "optimizer.learningRate": 0.01, "data.batch": 8 }, 0.8);

describe("a comparison of runs", () => {
  const runs = readRuns([slow, `${fast}/`]);

  test("tells what differs in their configurations, and nothing else", () => {
    expect(differences(runs)).toEqual([
      ["data.batch", "4", "8"],
      ["optimizer.learningRate", "0.001", "0.01"],
    ]);
  });

  test("prints a row for each run", () => {
    const lines = compareText(runs).split("\n");
    expect(lines[0]).toMatch(/^run +steps +loss +validation loss +tokens +time +tokens\/s$/);
    expect(lines[1]).toMatch(/slow +10 +3\.592 +3\.781 +320 +5s +64$/);
    expect(lines[2]).toMatch(/fast +10 +0\.644\d? +0\.805\d? +640 +5s +64$/);
    expect(lines).toContain("What differs in their configurations:");
    const [first] = runs;
    expect(compareText(first ? [first, first] : [])).toContain("Their configurations are the same.");
  });

  test("draws loss by step, tokens and time, and the speed, with a line for each run", () => {
    const html = comparePage(runs);
    const headings = [...html.matchAll(/<h2>(.*?)<\/h2>/g)].map(([, title]) => title);
    expect(headings).toEqual([
      "Runs",
      "Settings",
      "Loss by step",
      "Loss by tokens",
      "Loss by time",
      "Validation loss",
      "Throughput",
    ]);
    expect(html.match(/<path /g)).toHaveLength(2 * 5);
    // Both runs end after 5 s; by tokens the slow one ends half-way.
    const [, byTokens = ""] = html.split("<h2>Loss by tokens</h2>");
    const ends = [...byTokens.matchAll(/ d="[^"]*L([\d.]+) [\d.]+"/g)].slice(0, 2).map(([, x]) => Number(x));
    expect(ends[1]).toBe(1000);
    expect(ends[0]).toBeCloseTo((1000 * (320 - 32)) / (640 - 32), 0);
    expect(html).not.toMatch(/<script|https?:\/\//);
  });

  test("refuses what is not a run, and says why", () => {
    const refused = (...folders: string[]) => {
      try {
        readRuns(folders);
      } catch (error) {
        return error instanceof Error ? error.message.replaceAll(folder.path, "") : "";
      }
      return "";
    };
    expect(refused(slow, join(folder.path, "none"))).toContain("there is no folder /none");
    mkdirSync(join(folder.path, "other"));
    expect(refused(slow, join(folder.path, "other"))).toContain("/other is not a run");
    expect(refused(slow, join(slow, "config.json"))).toContain("is not a run");
    expect(refused(slow, `${slow}/`)).toContain("is given twice");
    const config = join(folder.path, "other", "config.json");
    writeFileSync(config, "{");
    expect(refused(slow, join(folder.path, "other"))).toContain("config.json cannot be read");
    writeFileSync(config, JSON.stringify({ model: { flavour: "sweet" } }));
    expect(refused(slow, join(folder.path, "other"))).toMatch(
      /another release may have written it:\n.*flavour/,
    );
    writeFileSync(config, JSON.stringify(tinyConfig(folder.path)));
    expect(refused(slow, join(folder.path, "other"))).toContain("has no steps to compare");
  });
});
