/** Checkpoints saved on one mesh and loaded on another; `npm run test:meshes` takes all pairs. */
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { silent, temporaryFolder, tinyConfig, writeText } from "../../../test/support/runs.js";
import { tree } from "../../index.js";
import type { Tensor } from "../../trace/tensor.js";
import { openCheckpoint } from "../files/checkpoint.js";
import { toCanonical } from "../models/canonical.js";
import type { Training } from "../step/training.js";
import type { RunConfig } from "./config.js";
import { runMesh, runTrainingFunctions } from "./setup.js";
import { onHost, restoreRun } from "./state.js";
import { trainRun } from "./trainer.js";

const meshes: Readonly<Record<string, Readonly<Record<string, number | string>>>> = {
  "one device": {},
  "data=2": { "mesh.data": 2 },
  "fsdp=2": { "mesh.fsdp": 2 },
  "model=2": { "mesh.model": 2 },
  "pipe=2": { "mesh.pipe": 2 },
  "data=2 x model=2": { "mesh.data": 2, "mesh.model": 2 },
  "fsdp=2 x model=2, async": { "mesh.fsdp": 2, "mesh.model": 2, tensor: "async" },
  "pipe=2, going round twice": { "mesh.pipe": 2, "pipeline.repeats": 2 },
};
const all = process.env.SHARDWISE_ALL_MESHES === "1";
/** What other meshes of the list split as well, and more. */
const parts = ["data=2", "fsdp=2", "model=2"];
const names = Object.keys(meshes).filter((name) => all || !parts.includes(name));
/** Every mesh saves once and loads once. */
const sample = names.map((from, i) => [from, names[(i + 2) % names.length] ?? from] as const);
const pairs = all
  ? names.flatMap((from) => names.filter((to) => to !== from).map((to) => [from, to] as const))
  : sample;

const folder = temporaryFolder();
writeText(folder.path);
afterAll(folder.remove);

const configs = new Map<string, RunConfig>();
function configOf(name: string, steps: number): RunConfig {
  const key = `${name} ${steps}`;
  const out = join(folder.path, key.replaceAll(/\W+/g, "-"));
  const made = configs.get(key) ?? tinyConfig(folder.path, { out, steps, ...meshes[name] });
  configs.set(key, made);
  return made;
}

const saved = new Map<string, Promise<string>>();
/** The checkpoint after two steps on a mesh. */
function checkpointFrom(name: string): Promise<string> {
  const known =
    saved.get(name) ??
    trainRun({ config: configOf(name, 2), stream: silent, finish: false }).then((run) => run.checkpoint);
  saved.set(name, known);
  return known;
}

const trainings = new Map<string, Training>();
/** The functions of a mesh, compiled once. */
function trainingOn(name: string): Training {
  const config = configOf(name, 2);
  const known = trainings.get(name) ?? runTrainingFunctions(config, 257, runMesh(config));
  trainings.set(name, known);
  return known;
}

/** The loss of one more step, which depends on parameters alone. */
async function nextLoss(name: string, folderOf: string): Promise<{ loss: number; state: unknown }> {
  const training = trainingOn(name);
  const state = await restoreRun(await openCheckpoint(folderOf), training);
  const whole = toCanonical(await onHost(state), training.layout);
  const { devicePut, np } = await import("../../index.js");
  const tokens = np.array(Int32Array.from({ length: 4 * 9 }, (_, i) => (i * 7) % 50)).reshape([4, 9]);
  const placed = await devicePut(tokens, training.batchSharding);
  return { loss: await training.step(state, placed)[1].loss.item(), state: whole };
}

test.for(pairs)(
  "what was saved on %s loads on %s with the same bits",
  { timeout: 120_000 },
  async ([from, to]) => {
    const checkpoint = await checkpointFrom(from);
    const stored = await (await openCheckpoint(checkpoint)).read();
    const { loss, state } = await nextLoss(to, checkpoint);
    const leaves = tree.flattenWithPath(state);
    expect(leaves.map(({ path }) => path).sort()).toEqual([...stored.keys()].sort());
    for (const { path, leaf } of leaves) {
      expect(await (leaf as Tensor).data(), path).toEqual(stored.get(path)?.data);
    }
    const same = await nextLoss(from, checkpoint);
    expect(Math.abs(loss / same.loss - 1)).toBeLessThan(1e-5);
  },
);
