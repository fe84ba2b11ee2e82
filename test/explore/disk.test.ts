import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { np, type Tensor } from "shardwise";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openCheckpoints } from "../../src/train/files/checkpoints/checkpoint.js";
import { newestSound } from "../../src/train/files/checkpoints/newestSound.js";
import type { FileSystem } from "../../src/train/files/disk/files.js";
import { SimulatedDisk } from "./disk.js";
import { randomFrom } from "./search.js";

let scratch: string;
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), "shardwise-disk-"));
});
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

const folder = "/runs/first/checkpoints";
const valuesAt = (step: number) => [step, step + 0.5, -step];

/** Saves two checkpoints, of which one is kept; returns the steps whose saves were complete when the power went off. */
async function saveTwo(files: FileSystem): Promise<number> {
  const checkpoints = openCheckpoints(folder, { keep: 1, maxFileBytes: 8, fileSystem: files });
  let saved = 0;
  for (const step of [1, 2]) {
    const state = { w: np.array(valuesAt(step)), b: np.array([step]) };
    const { committed } = await checkpoints.save(step, state);
    const isSaved = await committed.then(
      () => true,
      () => false,
    );
    if (!isSaved) break;
    saved = step;
  }
  return saved;
}

/** What is wrong with the checkpoints after a power cut before an operation; undefined if nothing is. */
async function problemAfter(
  limit: number,
  seed: number,
  wrap: (disk: SimulatedDisk) => FileSystem,
): Promise<{ readonly problem: string | undefined; readonly isOver: boolean }> {
  const disk = new SimulatedDisk(limit);
  const saved = await saveTwo(wrap(disk));
  const isOver = disk.numOperations < limit;
  const into = join(scratch, `${limit}-${seed}`);
  rmSync(into, { recursive: true, force: true });
  disk.disk.survive(randomFrom(1000 * seed + limit)).writeTo(into);
  const { checkpoint, damaged } = await newestSound(openCheckpoints(join(into, folder)));
  const found = checkpoint?.step ?? 0;
  const problem = (what: string) => ({
    problem: `cut before operation ${limit}, seed ${seed}: ${what}`,
    isOver,
  });
  if (damaged.length > 0) return problem(`damaged: ${damaged[0]?.problem}`);
  if (found < saved) return problem(`step ${saved} was saved, but step ${found} is found`);
  const restored = (await checkpoint?.restoreTree()) as { readonly w: Tensor } | undefined;
  const values = restored && (await restored.w.data());
  rmSync(into, { recursive: true, force: true });
  if (found > 0 && String(values) !== String(valuesAt(found))) return problem(`step ${found} has ${values}`);
  return { problem: undefined, isOver };
}

/** The first problem of power cuts before every operation. */
async function firstProblem(
  numSeeds: number,
  wrap: (disk: SimulatedDisk) => FileSystem = (disk) => disk,
): Promise<string | undefined> {
  for (let limit = 0; ; limit++) {
    for (let seed = 1; seed <= numSeeds; seed++) {
      const { problem, isOver } = await problemAfter(limit, seed, wrap);
      if (problem !== undefined) return problem;
      if (isOver) return undefined;
    }
  }
}

/** The operations of a disk, some of them replaced. */
function replacing(disk: SimulatedDisk, replaced: Partial<FileSystem>): FileSystem {
  return {
    makeFolder: (path) => disk.makeFolder(path),
    create: (path) => disk.create(path),
    syncFolder: (path) => disk.syncFolder(path),
    rename: (from, to) => disk.rename(from, to),
    remove: (path) => disk.remove(path),
    list: (path) => disk.list(path),
    size: (path) => disk.size(path),
    ...replaced,
  };
}

const isDraft = (path: string): boolean => path.includes(".partial-");

const planted: Readonly<Record<string, (disk: SimulatedDisk) => FileSystem>> = {
  "files are not synced": (disk) =>
    replacing(disk, { create: async (path) => ({ ...(await disk.create(path)), sync: async () => {} }) }),
  "the draft's folder is not synced": (disk) =>
    replacing(disk, { syncFolder: async (path) => (isDraft(path) ? undefined : disk.syncFolder(path)) }),
  "the folder of checkpoints is not synced": (disk) =>
    replacing(disk, { syncFolder: async (path) => (path === folder ? undefined : disk.syncFolder(path)) }),
  "the folders above are not synced": (disk) =>
    replacing(disk, {
      syncFolder: async (path) => (path.includes(folder) ? disk.syncFolder(path) : undefined),
    }),
  "a checkpoint gets its name before its parts are written": (disk) => {
    const late: (() => Promise<void>)[] = [];
    return replacing(disk, {
      create: async (path) => {
        const file = await disk.create(path);
        return {
          ...file,
          write: async (bytes) => void late.push(() => file.write(bytes)),
          sync: async () => {},
        };
      },
      rename: async (from, to) => {
        await disk.rename(from, to);
        for (const write of late.splice(0)) await write();
      },
    });
  },
  "the old checkpoint is removed before the new one is complete": (disk) =>
    replacing(disk, {
      makeFolder: async (path) => {
        for (const name of await disk.list(folder)) await disk.remove(join(folder, name));
        await disk.syncFolder(folder).catch(() => {});
        await disk.makeFolder(path);
      },
    }),
};

describe("checkpoints on a disk that loses power", () => {
  test("are the old ones or the new ones, whole, whenever that happens", async () => {
    expect(await firstProblem(3)).toBeUndefined();
  });

  test.each(Object.keys(planted))("would be lost or damaged if %s", async (name) => {
    expect(await firstProblem(6, planted[name])).toMatch(/damaged|was saved/);
  });
});
