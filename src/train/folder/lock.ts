/** Keeps two processes from training into the same folder. */
import { randomUUID } from "node:crypto";
import {
  linkSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { ConfigError, ShardwiseError } from "../../ir/errors.js";
import { FileError, reasonOf, systemCode } from "../files/disk/fileError.js";
import { isObject } from "../files/disk/json.js";

/** The process that trains into a folder. */
export interface RunHolder {
  readonly pid: number;
  readonly host: string;
  /** Distinguishes it from a later process with the same id; null if the system does not provide it. */
  readonly started: string | null;
}

/** The file in a run's folder that names the process which trains into it. */
export const lockFile = "run.lock";

/**
 * Locks a run's folder for this process, and makes the folder if it does not exist. The lock of a process that no
 * longer runs is taken over.
 *
 * @returns a function that releases the folder
 */
export function lockRun(folder: string): () => void {
  try {
    const isNew = mkdirSync(folder, { recursive: true }) !== undefined;
    const path = join(folder, lockFile);
    const own: RunHolder = { pid: process.pid, host: hostname(), started: startOf(process.pid) ?? null };
    // Other processes may be taking over the same folder, so this is retried.
    for (let attempt = 0; attempt < 5; attempt++) {
      if (createWhole(path, JSON.stringify(own))) return releasing(folder, path, isNew);
      requireFile(path);
      const holder = runHolder(folder);
      if (holder) throw inUse(folder, path, holder);
      removeStale(path);
    }
    throw new FileError("train", path, 0, "other processes keep taking the folder: try again");
  } catch (cause) {
    if (cause instanceof ShardwiseError) throw cause;
    const rule = `the run cannot be written here (${reasonOf(cause)}): choose another folder with --out`;
    throw new FileError("train", folder, 0, rule, { cause });
  }
}

/** The same, which pages can do only asynchronously. */
export async function holdRun(folder: string): Promise<() => void> {
  return lockRun(folder);
}

/** Throws if the lock is not a regular file: reading a FIFO, for example, could block for ever. */
function requireFile(path: string): void {
  if (lstatSync(path, { throwIfNoEntry: false })?.isFile() ?? true) return;
  throw new FileError("train", path, 0, "it is not a file: remove it, or choose another folder with --out");
}

/** A function that removes the file, and a new folder if it is still empty; it also runs when the process exits. */
function releasing(folder: string, path: string, isNew: boolean): () => void {
  const release = () => {
    process.off("exit", release);
    rmSync(path, { force: true });
    if (!isNew) return;
    try {
      rmdirSync(folder);
    } catch {
      // The folder is not empty.
    }
  };
  process.once("exit", release);
  return release;
}

/** The process that trains into a folder at this moment, if there is one. */
export function runHolder(folder: string): RunHolder | undefined {
  const holder = readHolder(join(folder, lockFile));
  return holder && isRunning(holder) ? holder : undefined;
}

function inUse(folder: string, path: string, { pid, host }: RunHolder): ShardwiseError {
  const elsewhere = host !== hostname();
  const advice = elsewhere ? `; if it is gone, remove ${path}` : "";
  return new ConfigError(
    `[train] process ${pid}${elsewhere ? ` on ${host}` : ""} is training into ${folder}: wait for it, stop it, or choose another folder with --out${advice}`,
  );
}

/** Creates a file atomically with its content; false if it exists. */
function createWhole(path: string, content: string): boolean {
  const draft = `${path}.${randomUUID()}`;
  try {
    writeFileSync(draft, content);
    linkSync(draft, path);
    return true;
  } catch (error) {
    if (systemCode(error) === "EEXIST") return false;
    throw error;
  } finally {
    rmSync(draft, { force: true });
  }
}

/** Removes the file of a process that no longer runs, unless another process was faster. */
function removeStale(path: string): void {
  const doomed = `${path}.${randomUUID()}`;
  try {
    renameSync(path, doomed);
  } catch (error) {
    if (systemCode(error) === "ENOENT") return;
    throw error;
  }
  const holder = readHolder(doomed);
  if (holder && isRunning(holder)) renameSync(doomed, path);
  else rmSync(doomed, { force: true });
}

function readHolder(path: string): RunHolder | undefined {
  try {
    if (!lstatSync(path).isFile()) return undefined;
    const value: unknown = JSON.parse(readFileSync(path, "utf8"));
    if (!isObject(value)) return undefined;
    const { pid, host, started } = value;
    if (typeof pid !== "number" || !Number.isSafeInteger(pid) || pid < 1 || typeof host !== "string")
      return undefined;
    return { pid, host, started: typeof started === "string" ? started : null };
  } catch {
    return undefined;
  }
}

function isRunning({ pid, host, started }: RunHolder): boolean {
  // The processes of other machines that share the disk cannot be checked.
  if (host !== hostname()) return true;
  try {
    process.kill(pid, 0);
  } catch (error) {
    return systemCode(error) === "EPERM";
  }
  return started === null || startOf(pid) === started;
}

/** The start time of a running process, as the system reports it (Linux only). */
function startOf(pid: number): string | undefined {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name of the process, in brackets, may contain anything; field 3 comes after it.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" ? undefined : `${boot}/${fields[19]}`;
  } catch {
    return undefined;
  }
}
