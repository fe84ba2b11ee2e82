import { readFileSync } from "node:fs";
import { totalmem } from "node:os";
import { join } from "node:path";
import { ShardwiseError } from "../../ir/errors.js";
import { formatBytes } from "../../ir/shape.js";

/** How much memory this process may still take, and what sets the limit. */
export interface AvailableMemory {
  readonly bytes: number;
  /** Its description in messages, for example `the container's limit of 2 GiB`. */
  readonly limit: string;
}

/** In the files of control groups, this many bytes or more mean "no limit". */
const UNLIMITED = 2 ** 60;

/** The share of the machine's memory to use if it is unknown how much is free. */
const SHARE_OF_TOTAL = 0.75;

/**
 * How much memory this process may still take: the least of what is free on the machine, what control groups leave
 * (containers; versions 1 and 2, this group and its ancestors), and what `ulimit -v` leaves of the address space.
 *
 * @param root the folder with the system's files
 */
export function availableMemory(root = "/"): AvailableMemory {
  const limits = [...controlGroups(root), addressSpace(root) ?? []].flat();
  const machine = freeOfMachine(root) ?? shareOfMachine();
  return limits.reduce((least, one) => (one.bytes < least.bytes ? one : least), machine);
}

function shareOfMachine(): AvailableMemory {
  try {
    const total = totalmem();
    return { bytes: SHARE_OF_TOTAL * total, limit: `three quarters of the machine's ${formatBytes(total)}` };
  } catch (cause) {
    const rule =
      "Deno does not permit asking how much memory the machine has, which limits that of devices: run with --allow-sys=systemMemoryInfo, or set memoryBytes";
    throw new ShardwiseError("config", rule, { cause });
  }
}

/** What `ulimit -v` leaves of this process's address space, if it is limited. */
export function addressSpace(root = "/"): AvailableMemory | undefined {
  const [soft] = /^Max address space\s+(\d+)/m.exec(read(root, "proc/self/limits"))?.slice(1) ?? [];
  if (soft === undefined) return undefined;
  const taken = kibibytes(read(root, "proc/self/status"), "VmSize") ?? 0;
  return {
    bytes: Math.max(0, Number(soft) - taken),
    limit: `ulimit -v, which allows ${formatBytes(Number(soft))} of address space`,
  };
}

function freeOfMachine(root: string): AvailableMemory | undefined {
  const text = read(root, "proc/meminfo");
  const free = kibibytes(text, "MemAvailable");
  if (free === undefined) return undefined;
  const total = kibibytes(text, "MemTotal") ?? free;
  return { bytes: free, limit: `what is free of the machine's ${formatBytes(total)}` };
}

/** The files of a control group of either version. */
interface GroupFiles {
  readonly max: string;
  readonly current: string;
  /** The line of `memory.stat` with the file pages that are reclaimed when memory is short. */
  readonly reclaimable: string;
}

const version1: GroupFiles = {
  max: "memory.limit_in_bytes",
  current: "memory.usage_in_bytes",
  reclaimable: "total_inactive_file",
};
const version2: GroupFiles = {
  max: "memory.max",
  current: "memory.current",
  reclaimable: "inactive_file",
};

/** What is left in the control groups of this process and in their ancestors. */
function controlGroups(root: string): AvailableMemory[] {
  const lines = read(root, "proc/self/cgroup").split("\n");
  return lines.flatMap((line) => {
    const [, controllers = "", path = "/"] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    const names = controllers.split(",");
    if (names.includes("memory")) return walkUp(join(root, "sys/fs/cgroup/memory"), path, version1);
    // Hybrid mode mounts version 2 without controllers next to version 1; its files are missing then.
    return line.startsWith("0::") ? walkUp(join(root, "sys/fs/cgroup"), path, version2) : [];
  });
}

/** A limit of every group from `path` up to the mount; a container sees its own group as the mount itself. */
function walkUp(mount: string, path: string, files: GroupFiles): AvailableMemory[] {
  const parts = path.split("/").filter((part) => part !== "" && part !== "..");
  return Array.from({ length: parts.length + 1 }, (_, depth) =>
    join(mount, ...parts.slice(0, depth)),
  ).flatMap((folder) => groupLimit(folder, files) ?? []);
}

function groupLimit(folder: string, files: GroupFiles): AvailableMemory | undefined {
  const max = Number.parseInt(read(folder, files.max), 10);
  if (!(max < UNLIMITED)) return undefined;
  const current = Number.parseInt(read(folder, files.current), 10) || 0;
  const cached = new RegExp(`^${files.reclaimable} (\\d+)`, "m").exec(read(folder, "memory.stat"))?.[1];
  const bytes = Math.max(0, max - Math.max(0, current - Number(cached ?? 0)));
  return { bytes, limit: `the container's limit of ${formatBytes(max)}` };
}

function kibibytes(text: string, name: string): number | undefined {
  const found = new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(text)?.[1];
  return found === undefined ? undefined : Number(found) * 1024;
}

/** The text of a system file; empty if it does not exist. */
function read(root: string, path: string): string {
  try {
    return readFileSync(join(root, path), "utf8");
  } catch {
    return "";
  }
}
