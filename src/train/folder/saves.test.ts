import { join } from "node:path";
import { afterAll, afterEach, expect, test, vi } from "vitest";
import * as np from "../../numpy/index.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import "../../index.js";
import { temporaryFolder, tinyConfig, writeText } from "../../../test/support/runs.js";
import { runMesh, runTrainingFunctions } from "../config/setup.js";
import { openCheckpoints } from "../files/checkpoints/checkpoint.js";
import { type FileSystem, nodeFileSystem } from "../files/disk/files.js";
import { restoreRun } from "./savedRun.js";
import { RunSaves } from "./saves.js";

const folder = temporaryFolder();
writeText(folder.path);
afterAll(folder.remove);
afterEach(() => {
  vi.restoreAllMocks();
});

test("a save that failed is noticed at once, and tried again when there is space", async () => {
  let isFull = true;
  const full = Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
  const fileSystem: FileSystem = {
    ...nodeFileSystem,
    create: (path) => (isFull ? Promise.reject(full) : nodeFileSystem.create(path)),
  };
  const checkpoints = openCheckpoints(join(folder.path, "checkpoints"), { fileSystem });
  const config = tinyConfig(folder.path, {});
  const training = runTrainingFunctions(config, 16, runMesh(config));
  const state = training.init(0);
  const notes: string[] = [];
  const saves = new RunSaves(config, training, checkpoints, undefined, (text) => notes.push(text));
  const clock = vi.spyOn(performance, "now").mockReturnValue(0);
  await saves.save(state, 1, null);
  await saves.settled();
  expect(notes).toEqual([
    expect.stringMatching(/of step 1 could not be written \(ENOSPC\)[\s\S]*retried when there is space/),
  ]);
  expect(saves.isDue).toBe(false);
  clock.mockReturnValue(10_000);
  expect(saves.isDue).toBe(true);
  // A try that fails, too, neither says so again nor ends the run, and comes later.
  await saves.retry(state, 2, null);
  await saves.settled();
  expect(notes).toHaveLength(1);
  expect(saves.isDue).toBe(false);
  isFull = false;
  clock.mockReturnValue(20_000);
  await saves.retry(state, 3, null);
  await saves.settled();
  expect(notes.slice(1)).toEqual(["the checkpoint of step 3 was written after all"]);
  expect(saves.step).toBe(3);
  clock.mockReturnValue(1e9);
  expect(saves.isDue).toBe(false);
});

test("an asynchronous save holds a copy of the state, so that steps go on before anything is written", async () => {
  let letGo = () => {};
  const gate = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const fileSystem: FileSystem = {
    ...nodeFileSystem,
    create: (path) => gate.then(() => nodeFileSystem.create(path)),
  };
  // Nothing is copied to the host before it is written.
  const root = join(folder.path, "async");
  const checkpoints = openCheckpoints(root, { fileSystem, maxHeldBytes: 1 });
  const config = tinyConfig(folder.path, { checkpoint: "async" });
  const training = runTrainingFunctions(config, 16, runMesh(config));
  const state = training.init(0);
  const saves = new RunSaves(config, training, checkpoints, undefined, () => {});
  const valuesOf = (tensors: unknown) =>
    Promise.all(tree.leaves(tensors).map((leaf) => (leaf instanceof Tensor ? leaf.js() : leaf)));
  const before = await valuesOf(state);
  await saves.save(state, 1, null);
  const tokens = np.zeros([4, 9], { dtype: "int32" });
  const [after] = training.step(state, tokens);
  await after.step.ready();
  expect(saves.step).toBe(0);
  letGo();
  await saves.settled();
  expect(saves.step).toBe(1);
  const restored = await restoreRun(await openCheckpoints(root).load(1), training);
  expect(await valuesOf(restored)).toEqual(before);
});
