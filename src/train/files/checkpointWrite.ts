import { randomUUID } from "node:crypto";
import { statfs } from "node:fs/promises";
import { join } from "node:path";
import type { HostData } from "../../ir/dtype.js";
import { byteSize } from "../../ir/dtype.js";
import { range, sizeOf } from "../../ir/shape.js";
import { formatManifest, type Manifest, type ManifestFile, manifestName } from "./checkpointManifest.js";
import { FileError, reasonOf, systemCode } from "./fileError.js";
import type { FileSystem } from "./files.js";
import { alone, type ProcessGroup, together } from "./processGroup.js";
import { bytesOf, layOutSafetensors } from "./safetensorsBytes.js";
import { PieceHasher, piecesOf } from "./seal.js";
import type { NamedLeaf } from "./treeFiles.js";

/** A state whose elements were copied from the devices. */
export interface Snapshot {
  readonly manifest: Omit<Manifest, "files" | "leaves">;
  readonly leaves: readonly (Omit<Manifest["leaves"][number], "file"> & { readonly data: HostData })[];
}

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
    const size = sizeOf(type.shape) * byteSize(type.dtype);
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
): Promise<string> {
  const { step } = snapshot.manifest;
  const label = `step-${String(step).padStart(8, "0")}`;
  const isFirst = group.index === 0;
  const [draft = ""] = await group.share(join(root, `.partial-${label}-${randomUUID()}`));
  try {
    await together(group, async () => {
      if (isFirst) await files.makeFolder(draft);
      return "";
    });
    const { tensorFiles, manifest } = layOut(snapshot, maxFileBytes);
    const reports = await together(group, async () =>
      JSON.stringify(await writeTensors(files, draft, tensorFiles, group)),
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
  const same = (await listSteps(files, root)).filter(({ name }) => name.replace(/\.\d+$/, "") === label);
  const generation = same.length === 0 ? 0 : (same[0]?.generation ?? 0) + 1;
  const name = generation === 0 ? label : `${label}.${generation}`;
  await files.rename(draft, join(root, name));
  await files.syncFolder(root);
  return name;
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
    const { header, arrays } = layOutSafetensors(members.map((leaf) => [leaf.path, leaf] as const));
    return {
      name: `tensors-${number(file + 1)}-of-${number(numFiles)}.safetensors`,
      parts: [header, ...arrays.map(({ data }) => bytesOf(data))],
    };
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

/** The fields of a file in the manifest, without its name. */
type Written = Omit<ManifestFile, "name">;

/** Writes this process's share of the tensor files, and returns their sizes and checksums. */
async function writeTensors(
  files: FileSystem,
  draft: string,
  tensorFiles: ReturnType<typeof layOut>["tensorFiles"],
  { index, count }: ProcessGroup,
): Promise<Record<string, Written>> {
  const written: Record<string, Written> = {};
  for (const { name, parts } of tensorFiles.filter((_, i) => i % count === index)) {
    try {
      written[name] = await writeFile(files, join(draft, name), parts);
    } catch (cause) {
      if (index === 0 || systemCode(cause) !== "ENOENT") throw cause;
      const rule =
        "process 0 made this folder, but it does not exist here: checkpoints of several hosts need a shared file system";
      throw new FileError("checkpoint", draft, 0, rule, { cause });
    }
  }
  return written;
}

/** The total size of the files of a checkpoint in bytes. */
function sizeOfFiles(snapshot: Snapshot, maxFileBytes: number): number {
  const { tensorFiles, manifest } = layOut(snapshot, maxFileBytes);
  const sizes = tensorFiles.map(({ name, parts }) => ({
    name,
    bytes: parts.reduce((sum, part) => sum + part.length, 0),
    sha256: "0".repeat(64),
    pieces: "",
  }));
  return sizes.reduce((sum, { bytes }) => sum + bytes, manifest(sizes).length);
}

/** Writes a file piece by piece, while other threads hash the pieces before. */
async function writeFile(files: FileSystem, path: string, parts: readonly Uint8Array[]): Promise<Written> {
  const hasher = new PieceHasher();
  const file = await files.create(path);
  let bytes = 0;
  try {
    for (const piece of piecesOf(parts)) {
      await hasher.add(piece);
      await file.write(piece);
      bytes += piece.length;
    }
    await file.sync();
  } finally {
    await file.close();
  }
  return { bytes, ...(await hasher.finish()) };
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
  const free = await statfs(root).then(
    ({ bavail, bsize }) => ` and ${bavail * bsize} are free`,
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
    const doomed = join(root, `.removing-${name}-${randomUUID()}`);
    await files.rename(join(root, name), doomed).catch(() => failed.push(name));
  }
  for (const name of await files.list(root)) {
    if (!/^\.(partial|removing)-step-/.test(name)) continue;
    await files.remove(join(root, name)).catch(() => failed.push(name));
  }
  return failed;
}
