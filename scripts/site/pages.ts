/** The pages of the documentation in the order in which the site shows them. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = new URL("../../", import.meta.url);

/** A heading of the site's navigation, and the pages under it by their paths in `docs/`. */
export interface Chapter {
  readonly title: string;
  readonly pages: readonly string[];
}

/** All chapters; a test compares them with the existing files. */
export const chapters: readonly Chapter[] = [
  { title: "Start", pages: ["quick-start.md", "guide.md", "jax.md"] },
  {
    title: "Programs",
    pages: ["arrays.md", "eager-and-jit.md", "derivatives.md", "memory.md", "debugging.md", "limits.md"],
  },
  {
    title: "Training",
    pages: [
      "modules.md",
      "training-loop.md",
      "data.md",
      "checkpoints.md",
      "fine-tuning.md",
      "generation.md",
      "cli.md",
      "faults.md",
    ],
  },
  {
    title: "Many devices",
    pages: [
      "parallelism/meshes.md",
      "sharding.md",
      "parallelism/data.md",
      "parallelism/tensor.md",
      "parallelism/context.md",
      "parallelism/pipeline.md",
      "parallelism/circular-pipeline.md",
      "parallelism/schedules.md",
      "parallelism/experts.md",
      "planning.md",
      "clusters.md",
      "gpu.md",
      "webgpu.md",
      "performance.md",
    ],
  },
  {
    title: "Inside",
    pages: [
      "architecture.md",
      "compiler.md",
      "threads-engine.md",
      "divergence.md",
      "reliability.md",
      "security.md",
      "engines.md",
      "add-an-op.md",
      "glossary.md",
      "platforms.md",
      "bundlers.md",
      "browser.md",
    ],
  },
];

/** The sources of the entry points, in the order of the reference. */
export const entryPoints: readonly string[] = [
  "src/index.ts",
  "src/nn/index.ts",
  "src/optim/index.ts",
  "src/parallel/index.ts",
  "src/engines/index.ts",
  "src/random/index.ts",
  "src/train/index.ts",
];

/** The text of a file, by its path in the repository. */
export function readText(path: string): string {
  return readFileSync(fileURLToPath(new URL(path, root)), "utf8");
}

/** The heading of a page, without Markdown markup. */
export function titleOf(text: string): string {
  const [, title = ""] = /^# (.+)$/m.exec(text) ?? [];
  return title.replaceAll("`", "");
}

/** The front page of the site: what shardwise is on one screen, and below it what the README says in detail. */
export function frontPage(): string {
  const [, included] = readText("README.md").split(/^(?=## What is included$)/m);
  const [detail, documentation = ""] = included?.split(/^(?=## Documentation$)/m) ?? [];
  const [, performance] = documentation.split(/^(?=## Performance$)/m);
  if (!detail || !performance) throw new Error("README.md has no such sections for the front page");
  return `${readText("scripts/site/front.md")}\n${detail}${performance}`;
}
