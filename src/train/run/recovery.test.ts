import { cpSync, existsSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import "../../index.js";
import { silent, temporaryFolder, tinyConfig, writeText } from "../../../test/support/runs.js";
import type { RunConfig } from "../config/runConfig.js";
import { checkpointFolder } from "../config/setup.js";
import { openCheckpoint } from "../files/checkpoints/checkpoint.js";
import { readMetrics } from "../report/metrics.js";
import type { RunOutcome } from "./runOptions.js";
import { trainRun } from "./trainRun.js";

const folder = temporaryFolder();
writeText(folder.path);
afterAll(folder.remove);

const configOf = (out: string, more: Readonly<Record<string, unknown>> = {}) =>
  tinyConfig(folder.path, { out: join(folder.path, out), checkpointEvery: 2, evalEvery: 2, ...more });

/** Trains, and gives what was said besides. */
async function trained(config: RunConfig, resume: boolean): Promise<RunOutcome & { readonly said: string }> {
  let said = "";
  const stream = {
    write: (text: string) => {
      said += text;
    },
  };
  const outcome = await trainRun({ config, resume, stream, finish: false });
  return { ...outcome, said };
}

const filesOf = async (checkpoint: string) => (await openCheckpoint(checkpoint)).manifest.files;
const at = (out: string, ...names: readonly string[]) =>
  join(checkpointFolder(join(folder.path, out)), ...names);

let whole: RunOutcome;
beforeAll(async () => {
  whole = await trainRun({ config: configOf("whole"), stream: silent, finish: false });
});

const tensors = "tensors-00001-of-00001.safetensors";
const damages: { readonly what: string; readonly says: string; readonly harm: (newest: string) => void }[] = [
  {
    what: "a changed byte",
    says: "its checksum is",
    harm: (newest) => {
      const bytes = readFileSync(join(newest, tensors));
      bytes[bytes.length - 9] = (bytes[bytes.length - 9] ?? 0) ^ 1;
      writeFileSync(join(newest, tensors), bytes);
    },
  },
  { what: "a missing file", says: "the file is missing", harm: (newest) => rmSync(join(newest, tensors)) },
  {
    what: "a missing manifest",
    says: "there is no such file",
    harm: (newest) => rmSync(join(newest, "manifest.json")),
  },
  {
    what: "half a manifest",
    says: "manifest.json, byte",
    harm: (newest) => truncateSync(join(newest, "manifest.json"), 1000),
  },
];

test("a run that has made all its steps says that none is left", { timeout: 60_000 }, async () => {
  cpSync(join(folder.path, "whole"), join(folder.path, "done"), { recursive: true });
  const again = await trained(configOf("done"), true);
  expect(again.said).toContain("6 steps, from step 6: none is left, raise --steps to continue");
});

describe("a run whose newest checkpoint is damaged", { timeout: 60_000 }, () => {
  test.each(damages)("by $what goes on from the one before, and says so", async ({ what, says, harm }) => {
    const out = `damaged by ${what}`;
    cpSync(join(folder.path, "whole"), join(folder.path, out), { recursive: true });
    harm(at(out, "step-00000006"));
    const again = await trained(configOf(out), true);
    expect(again.said).toContain("skipped a damaged checkpoint: ");
    expect(again.said).toContain(says);
    expect(again.said).toContain("from step 4");
    expect(await filesOf(again.checkpoint)).toEqual(await filesOf(whole.checkpoint));
    const told = readMetrics(join(folder.path, out, "metrics.jsonl"));
    expect(told.filter(({ loss }) => loss !== undefined).map(({ step }) => step)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(told.filter(({ loss }) => loss === undefined).map(({ step }) => step)).toEqual([2, 4, 6]);
  });

  test("is neither begun anew nor taken up when all are, and every one is named", async () => {
    cpSync(join(folder.path, "whole"), join(folder.path, "lost"), { recursive: true });
    for (const name of readdirSync(at("lost"))) rmSync(at("lost", name, tensors));
    await expect(trained(configOf("lost"), true)).rejects.toThrow(
      /that can be loaded:\n.*step-00000006.*missing\n.*step-00000004.*missing\nstart without --resume in another/,
    );
    await expect(trained(configOf("lost"), false)).rejects.toThrow("holds a run already, at step 6");
    expect(readdirSync(at("lost"))).toEqual(["step-00000004", "step-00000006"]);
  });
});

test("a start that never got to a checkpoint leaves nothing to the next: no metrics, no tokeniser", async () => {
  const config = configOf("anew", { "data.tokenizer": "bpe", "data.vocabSize": 260, steps: 1 });
  await trainRun({ config, stream: silent, finish: false });
  rmSync(at("anew"), { recursive: true });
  const other = configOf("anew", { "data.tokenizer": "bpe", "data.vocabSize": 264, steps: 2 });
  await trainRun({ config: other, stream: silent, finish: false });
  const { model } = JSON.parse(readFileSync(join(folder.path, "anew", "tokenizer.json"), "utf8")) as {
    readonly model: { readonly vocab: object };
  };
  expect(Object.keys(model.vocab).length).toBeGreaterThan(260);
  const steps = readMetrics(join(folder.path, "anew", "metrics.jsonl")).map(({ step }) => step);
  expect(steps).toEqual([1, 2, 2]);
});

test("two runs at once into a folder: the second is refused, and the first is not disturbed", async () => {
  const config = configOf("busy");
  const first = trainRun({ config, stream: silent, finish: false });
  await expect(trained(config, false)).rejects.toThrow(/process \d+ is training into/);
  expect(await filesOf((await first).checkpoint)).toEqual(await filesOf(whole.checkpoint));
  expect(existsSync(join(folder.path, "busy", "run.lock"))).toBe(false);
});
