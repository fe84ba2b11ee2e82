/** Checkpoints saved on one mesh and loaded on another; `npm run test:meshes` takes all pairs. */
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { temporaryFolder, tinyConfig } from "../../../test/support/runs.js";
import { devicePut, np, tree } from "../../index.js";
import type { Tensor } from "../../trace/tensor.js";
import type { RunConfig } from "../config/runConfig.js";
import { checkpointFolder, runMesh, runTrainingFunctions } from "../config/setup.js";
import { openCheckpoint, openCheckpoints } from "../files/checkpoints/checkpoint.js";
import { onHost, restoreRun } from "../folder/savedRun.js";
import { RunSaves } from "../folder/saves.js";
import { toCanonical } from "../models/layerOrder.js";
import type { Training } from "../step/training.js";

const meshes: Readonly<Record<string, Readonly<Record<string, number | string>>>> = {
  "one device": {},
  "data=2": { "mesh.data": 2 },
  "fsdp=2": { "mesh.fsdp": 2 },
  "model=2": { "mesh.model": 2 },
  "pipe=2": { "mesh.pipe": 2 },
  "data=2 x model=2": { "mesh.data": 2, "mesh.model": 2 },
  "fsdp=2 x model=2, async": { "mesh.fsdp": 2, "mesh.model": 2, tensor: "async" },
  "context=2 x model=2": { "mesh.context": 2, "mesh.model": 2 },
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
afterAll(folder.remove);

const configs = new Map<string, RunConfig>();
function configOf(name: string): RunConfig {
  const out = join(folder.path, name.replaceAll(/\W+/g, "-"));
  const made = configs.get(name) ?? tinyConfig(folder.path, { out, steps: 2, ...meshes[name] });
  configs.set(name, made);
  return made;
}

const saved = new Map<string, Promise<string>>();
/** The checkpoint after two steps on a mesh. */
function checkpointFrom(name: string): Promise<string> {
  const known = saved.get(name) ?? trainAndSave(name);
  saved.set(name, known);
  return known;
}

/** Two steps of a run, saved as it saves them. */
async function trainAndSave(name: string): Promise<string> {
  const training = trainingOn(name);
  let state = training.init(0);
  for (const seed of [3, 5]) [state] = training.step(state, await tokensOn(training, seed));
  const checkpoints = openCheckpoints(checkpointFolder(configOf(name).out));
  const saves = new RunSaves(configOf(name), training, checkpoints, undefined, () => {});
  await saves.save(state, 2, null, true);
  await checkpoints.finished();
  if (saves.folder === undefined) throw new Error("nothing was saved");
  return saves.folder;
}

function tokensOn({ batchSharding }: Training, seed: number): Promise<Tensor> {
  const tokens = np.array(Int32Array.from({ length: 4 * 9 }, (_, i) => (i * seed) % 50)).reshape([4, 9]);
  return devicePut(tokens, batchSharding);
}

const trainings = new Map<string, Training>();
/** The functions of a mesh, compiled once. */
function trainingOn(name: string): Training {
  const config = configOf(name);
  const known = trainings.get(name) ?? runTrainingFunctions(config, 257, runMesh(config));
  trainings.set(name, known);
  return known;
}

/** The loss of one more step, which depends on parameters alone. */
async function nextLoss(name: string, folderOf: string): Promise<{ loss: number; state: unknown }> {
  const training = trainingOn(name);
  const state = await restoreRun(await openCheckpoint(folderOf), training);
  const whole = toCanonical(await onHost(state), training.layout);
  const [, metrics] = training.step(state, await tokensOn(training, 7));
  return { loss: await metrics.loss.item(), state: whole };
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
