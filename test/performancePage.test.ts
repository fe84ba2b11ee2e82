import { existsSync, readdirSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";
import type { Measurements } from "../bench/measure.js";
import { performancePage } from "../scripts/performancePage.js";

const machine = { processor: "Some CPU (x64)", cores: 4, memoryGiB: 8, node: "v22.1.0", day: "2026-01-02" };

const sample: Measurements = {
  machine,
  report: {
    "training step of language models": [
      {
        model: "d256",
        parallel: "data",
        devices: 2,
        threads: 1,
        "% of products alone": 80,
        "times JAX": 1.6,
      },
      { model: "d256", parallel: "fsdp", devices: 2, threads: 1, "% of products alone": 60, "times JAX": 1 },
    ],
    "float32 products on one core, GFLOP/s": [
      { n: 64, "AVX-512 NN": 160, "OpenBLAS NN": 100, "WASM NN": 20, "AVX-512 NT": 90, "OpenBLAS NT": 100 },
    ],
  },
};

it("says how fast products and steps are beside BLAS and JAX", () => {
  const { text, plots } = performancePage([["some", sample]]);
  expect(text).toContain("## Some CPU (x64), 4 cores");
  expect(text).toContain("1.00 to 1.60 times JAX, 1.26 in the geometric mean of 2 steps.");
  expect(text).toContain("Steps reach 60 to 80 % of products alone;");
  expect(text).toContain("1.20 times as fast in the geometric mean, at least 0.90 times.");
  expect(text).toContain("| 64 | 160 | 100 | 20 | 90 | 100 |");
  const plot = plots.get("some.svg") ?? "";
  // The bar of JAX is shorter by the ratio: 80 % and 80 / 1.6 = 50 % of 342 units.
  expect(plot).toContain('class="ours" x="8" y="76" width="273.6"');
  expect(plot).toContain('class="jax" x="8" y="88" width="171.0"');
});

it("is fresh in docs/performance.md", () => {
  const folder = new URL("../docs/performance/", import.meta.url);
  if (!existsSync(folder)) return;
  const machines = readdirSync(folder)
    .filter((file) => file.endsWith(".json"))
    .sort()
    .map((file) => [file.slice(0, -5), JSON.parse(readFileSync(new URL(file, folder), "utf8"))] as const);
  const page = readFileSync(new URL("../docs/performance.md", import.meta.url), "utf8");
  expect(page).toBe(performancePage(machines).text);
});
