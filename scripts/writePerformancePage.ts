/** Makes docs/performance.md of the measurements in docs/performance. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import type { Measurements } from "../bench/measure.js";
import { performancePage } from "./performancePage.js";

/** Writes the page and its plots, and says what it has. */
export function writePerformancePage(): void {
  const docs = new URL("../docs/", import.meta.url);
  const folder = new URL("performance/", docs);
  const files = readdirSync(folder).filter((file) => file.endsWith(".json"));
  const machines = files.sort().map((file) => {
    const measured: Measurements = JSON.parse(readFileSync(new URL(file, folder), "utf8"));
    return [file.slice(0, -".json".length), measured] as const;
  });
  const { text, plots } = performancePage(machines);
  const images = new URL("images/performance/", docs);
  mkdirSync(images, { recursive: true });
  for (const [file, plot] of plots) writeFileSync(new URL(file, images), plot);
  writeFileSync(new URL("performance.md", docs), text);
  console.error(`docs/performance.md: ${machines.length} machines, ${plots.size} plots`);
}
