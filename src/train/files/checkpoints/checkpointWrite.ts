import { freeBytes } from "#platform/fs";
import { dirname, join } from "#platform/path";
import { range } from "../../../ir/shape.js";
import { FileError, reasonOf, systemCode } from "../disk/fileError.js";
import { type FileSystem, inParallel } from "../disk/files.js";
import { HeldBytes } from "../disk/heldBytes.js";
import { layOutTypes } from "../safetensors/safetensorsBytes.js";
import type { NamedLeaf } from "../safetensors/treeFiles.js";
import { formatManifest, type ManifestFile, manifestName } from "./checkpointManifest.js";
import { leafBytes, partMemory, type Snapshot } from "./checkpointSnapshot.js";
import { type FileParts, writePieces } from "./pieceFiles.js";
import { alone, type ProcessGroup, together } from "./processGroup.js";

/** Maximum number of files that are written or read at once: disks reach their speed with several. */
export const MAX_FILES = 4;

/** The form of the folder name of a step. */
const stepName = /^step-(\d{1,16})(?:\.(\d{1,9}))?$/;

/** A folder whose name is that of a checkpoint. */
export interface StepFolder {
  readonly name: string;
  readonly step: number;
  /** How many times the same step was saved before. */
  readonly generation: number;
}

/** The checkpoints in a folder by their names, newest first. */
export async function listSteps(files: FileSystem, root: string): Promise<StepFolder[]> {
  const found = (await files.list(root)).flatMap((name): StepFolder[] => {
    const match = stepName.exec(name);
    return match ? [{ name, step: Number(match[1]), generation: Number(match[2] ?? 0) }] : [];
  });
  return found.sort((a, b) => b.step - a.step || b.generation - a.generation);
}

/** Groups leaves into files of at most `maxFileBytes`; a larger leaf gets a file of its own. */
export function groupLeaves(leaves: readonly Pick<NamedLeaf, "type">[], maxFileBytes: number): number[] {
  let file = 0;
  let bytes = 0;
  return leaves.map(({ type }) => {
    const size = leafBytes(type);
    if (bytes > 0 && bytes + size > maxFileBytes) {
      file++;
      bytes = 0;
    }
    bytes += size;
    return file;
  });
}

/**
 * Writes a checkpoint atomically: to a folder with a temporary name, which is renamed once everything in it is on the
 * disk. Whenever the process or the machine stops, either the new checkpoint is complete or only those before it exist.
 *
 * @returns the name of its folder
 */
export async function writeCheckpoint(
  files: FileSystem,
  root: string,
  snapshot: Snapshot,
  maxFileBytes: number,
  group: ProcessGroup = alone,
  maxHeldBytes = Number.POSITIVE_INFINITY,
): Promise<string> {
  const { step } = snapshot.manifest;
  const label = `step-${String(step).padStart(8, "0")}`;
  const isFirst = group.index === 0;
  const [draft = ""] = await group.share(join(root, `.partial-${label}-${crypto.randomUUID()}`));
  try {
    await together(group, async () => {
      if (isFirst) await files.makeFolder(draft);
      return "";
    });
    const { tensorFiles, manifest } = layOut(snapshot, maxFileBytes);
    const reports = await together(group, async () =>
      JSON.stringify(await writeTensors(files, draft, tensorFiles, group, new HeldBytes(maxHeldBytes))),
    );
    const written = tensorFiles.map(({ name }, i) => ({
      name,
      ...(JSON.parse(reports[i % group.count] ?? "{}") as Record<string, Written>)[name],
    }));
    const [name = ""] = await together(group, async () =>
      isFirst ? commit(files, root, draft, label, manifest(written as ManifestFile[])) : "",
    );
    return name;
  } catch (cause) {
    if (isFirst) await files.remove(draft).catch(() => {});
    throw await explain(cause, root, snapshot, maxFileBytes);
  }
}

/** Completes a draft with its manifest and gives it its name. */
async function commit(
  files: FileSystem,
  root: string,
  draft: string,
  label: string,
  manifest: Uint8Array,
): Promise<string> {
  await writeFile(files, join(draft, manifestName), [manifest]);
  await files.syncFolder(draft);
  const before = await listSteps(files, root);
  const same = before.filter(({ name }) => name.replace(/\.\d+$/, "") === label);
  const generation = same.length === 0 ? 0 : (same[0]?.generation ?? 0) + 1;
  const name = generation === 0 ? label : `${label}.${generation}`;
  await files.rename(draft, join(root, name));
  await files.syncFolder(root);
  if (before.length === 0) await syncFoldersAbove(files, root);
  return name;
}

/** Puts a folder's name on the disk, and those of the folders it is in, which may be as new as its first checkpoint. */
async function syncFoldersAbove(files: FileSystem, folder: string): Promise<void> {
  for (let above = dirname(folder); above !== folder; [folder, above] = [above, dirname(above)]) {
    await files.syncFolder(above).catch((error: unknown) => {
      // A folder that this process may not read is not one that it has made.
      if (systemCode(error) === undefined) throw error;
    });
  }
}

/** The files of tensors that a snapshot becomes, and its manifest once their checksums are known. */
function layOut(snapshot: Snapshot, maxFileBytes: number) {
  const groups = groupLeaves(
    snapshot.leaves.map((leaf) => ({ type: leaf })),
    maxFileBytes,
  );
  const numFiles = (groups.at(-1) ?? -1) + 1;
  const number = (n: number) => String(n).padStart(5, "0");
  const tensorFiles = range(numFiles).map((file) => {
    const members = snapshot.leaves.filter((_, i) => groups[i] === file);
    const { header, arrays } = layOutTypes(members.map((leaf) => [leaf.path, leaf] as const));
    const name = `tensors-${number(file + 1)}-of-${number(numFiles)}.safetensors`;
    const bytes = arrays.reduce((sum, leaf) => sum + leafBytes(leaf), header.length);
    return { name, header, leaves: arrays, bytes };
  });
  const leaves = snapshot.leaves.map(({ path, dtype, shape, spec }, i) => ({
    path,
    dtype,
    shape,
    spec,
    file: groups[i] ?? 0,
  }));
  const manifest = (written: readonly ManifestFile[]) =>
    formatManifest({ ...snapshot.manifest, leaves, files: written });
  return { tensorFiles, manifest };
}

/** A file of tensors that is to be written. */
type TensorFile = ReturnType<typeof layOut>["tensorFiles"][number];

/** The fields of a file in the manifest, without its name. */
type Written = Omit<ManifestFile, "name">;

/** Writes this process's share of the tensor files, several at once, and returns their sizes and checksums. */
async function writeTensors(
  files: FileSystem,
  draft: string,
  tensorFiles: readonly TensorFile[],
  { index, count }: ProcessGroup,
  held: HeldBytes,
): Promise<Record<string, Written>> {
  const written: Record<string, Written> = {};
  const own = tensorFiles.filter((_, i) => i % count === index);
  await inParallel(own, MAX_FILES, async (file) => {
    try {
      written[file.name] = await writeFile(files, join(draft, file.name), contentsOf(file, held));
    } catch (cause) {
      if (index === 0 || systemCode(cause) !== "ENOENT") throw cause;
      const rule =
        "process 0 made this folder, but it does not exist here: checkpoints of several hosts need a shared file system";
      throw new FileError("checkpoint", draft, 0, rule, { cause });
    }
  });
  return written;
}

/** The header of a file and the elements of its tensors; a chunk is in memory until the next is asked for. */
async function* contentsOf({ header, leaves }: TensorFile, held: HeldBytes): AsyncGenerator<Uint8Array> {
  yield header;
  const chunks = leaves.flatMap((leaf) => leaf.chunks);
  const memory = partMemory(chunks);
  for (const { bytes, read } of chunks) {
    await held.take(bytes);
    try {
      yield await read(memory);
    } finally {
      held.giveBack(bytes);
    }
  }
}

/** The total size of the files of a checkpoint in bytes. */
function sizeOfFiles(snapshot: Snapshot, maxFileBytes: number): number {
  const { tensorFiles, manifest } = layOut(snapshot, maxFileBytes);
  const sizes = tensorFiles.map(({ name, bytes }) => ({
    name,
    bytes,
    sha256: "0".repeat(64),
    pieces: "",
  }));
  return sizes.reduce((sum, { bytes }) => sum + bytes, manifest(sizes).length);
}

/** Writes a file, and returns when it is on the disk. */
async function writeFile(files: FileSystem, path: string, parts: FileParts): Promise<Written> {
  const file = await files.create(path);
  try {
    const written = await writePieces(file, parts);
    await file.sync();
    return written;
  } finally {
    await file.close();
  }
}

const diskFull = new Set(["ENOSPC", "EDQUOT", "EFBIG"]);

async function explain(
  cause: unknown,
  root: string,
  snapshot: Snapshot,
  maxFileBytes: number,
): Promise<unknown> {
  const code = systemCode(cause);
  if (code === undefined || cause instanceof FileError) return cause;
  const what = `the checkpoint of step ${snapshot.manifest.step} could not be written`;
  const kept = "the checkpoints before it are untouched";
  const free = await freeBytes(root).then(
    (bytes) => ` and ${bytes} are free`,
    () => "",
  );
  const advice = diskFull.has(code)
    ? `the disk is full, it needs ${sizeOfFiles(snapshot, maxFileBytes)} bytes${free}: free space, or keep fewer checkpoints`
    : reasonOf(cause);
  return new FileError("checkpoint", root, 0, `${what} (${code}): ${advice}; ${kept}`, { cause });
}

/**
 * Removes all but the newest checkpoints, older copies of a step that was saved twice, and what interrupted writes left
 * behind.
 *
 * @param written the one that was just written; it is kept even if there are later steps
 * @returns what could not be removed
 */
export async function removeOld(
  files: FileSystem,
  root: string,
  keep: number,
  written: string,
): Promise<string[]> {
  const folders = await listSteps(files, root);
  const newest = folders.filter((folder, i) => folders.findIndex(({ step }) => step === folder.step) === i);
  const kept = new Set([written, ...newest.slice(0, keep).map(({ name }) => name)]);
  const failed: string[] = [];
  for (const { name } of folders) {
    if (kept.has(name)) continue;
    // Under its new name it is not a checkpoint any more, even if the removal is interrupted.
    const doomed = join(root, `.removing-${name}-${crypto.randomUUID()}`);
    await files.rename(join(root, name), doomed).catch(() => failed.push(name));
  }
  for (const name of await files.list(root)) {
    if (!/^\.(partial|removing)-step-/.test(name)) continue;
    await files.remove(join(root, name)).catch(() => failed.push(name));
  }
  return failed;
}
