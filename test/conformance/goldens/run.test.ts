import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import "../../../src/index.js";
import { createReferenceEngine } from "../../../src/engines/index.js";
import { goldenFolder } from "../../support/goldens.js";
import { runConformance } from "./run.js";

let folder = "";

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "conformance-"));
  for (const ending of ["json", "safetensors"]) {
    await cp(join(goldenFolder, `collectives.${ending}`), join(folder, `collectives.${ending}`));
  }
});

afterEach(() => rm(folder, { recursive: true }));

async function check(area?: string): Promise<{ lines: string[]; passed: number; failed: number }> {
  const lines: string[] = [];
  const result = await runConformance({
    folder,
    area,
    openEngine: (numDevices) => createReferenceEngine({ numDevices }),
    print: (line) => lines.push(line),
  });
  return { lines, ...result };
}

/** Changes the cases of the folder. */
async function edit(change: (cases: Record<string, unknown>[]) => void): Promise<void> {
  const path = join(folder, "collectives.json");
  const content: { cases: Record<string, unknown>[] } = JSON.parse(await readFile(path, "utf8"));
  change(content.cases);
  await writeFile(path, JSON.stringify(content));
}

describe("runConformance", () => {
  test("ends with the numbers of passed and failed cases", async () => {
    expect((await check()).lines).toEqual(["35 passed, 0 failed"]);
  });

  test("prints one line for a failing case, with the largest difference", async () => {
    await edit(([psum, pmean]) => {
      if (psum && pmean) psum.y = pmean.y;
    });
    const { lines, failed } = await check("collectives");
    expect(failed).toBe(1);
    expect(lines).toHaveLength(2);
    expect(lines[0]).toMatch(/^FAIL collectives\/psum_2: y: \d+ of \d+ elements differ .* difference [\d.]+/);
    expect(lines[1]).toBe("34 passed, 1 failed");
  });

  test("counts cases that it does not know as failed", async () => {
    await edit((cases) => {
      const [first] = cases;
      if (first) first.name = "pmedian_2";
    });
    expect((await check()).lines).toEqual([
      "FAIL collectives/pmedian_2: unknown collective pmedian",
      "34 passed, 1 failed",
    ]);
  });

  test("counts files that cannot be read as failed", async () => {
    await writeFile(join(folder, "collectives.json"), "{");
    const { lines } = await check();
    expect(lines[0]).toMatch(/^FAIL collectives: /);
    expect(lines[1]).toBe("0 passed, 1 failed");
  });

  test("says which areas there are when the wanted one is missing", async () => {
    await expect(check("modules")).rejects.toThrow('has no area "modules": it has collectives');
  });
});
