import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { addressSpace, availableMemory } from "./machineMemory.js";

const GiB = 2 ** 30;
const folders: string[] = [];

afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

/** A folder with the files of a system, by path. */
function system(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(join(tmpdir(), "shardwise-system-"));
  folders.push(root);
  const all = { "proc/meminfo": "MemTotal:  25165824 kB\nMemAvailable:  20971520 kB\n", ...files };
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

describe("availableMemory", () => {
  test("is what other processes leave of the machine", () => {
    expect(availableMemory(system({}))).toEqual({
      bytes: 20 * GiB,
      limit: "what is free of the machine's 24 GiB",
    });
  });

  test("follows control groups of version 2, those around the own one too, without counting file caches", () => {
    const root = system({
      "proc/self/cgroup": "0::/pod/container\n",
      "sys/fs/cgroup/pod/memory.max": `${4 * GiB}\n`,
      "sys/fs/cgroup/pod/memory.current": `${3 * GiB}\n`,
      "sys/fs/cgroup/pod/memory.stat": `anon 1\ninactive_file ${2 * GiB}\n`,
      "sys/fs/cgroup/pod/container/memory.max": "max\n",
    });
    expect(availableMemory(root)).toEqual({ bytes: 3 * GiB, limit: "the container's limit of 4 GiB" });
  });

  test("finds the limit of a container that sees its own group as the mount", () => {
    const root = system({
      "proc/self/cgroup": "0::/\n",
      "sys/fs/cgroup/memory.max": `${2 * GiB}\n`,
      "sys/fs/cgroup/memory.current": `${GiB / 2}\n`,
    });
    expect(availableMemory(root).bytes).toBe(1.5 * GiB);
  });

  test("follows control groups of version 1", () => {
    const files = {
      "proc/self/cgroup": "4:cpu,cpuacct:/a\n3:memory:/a/b\n0::/\n",
      "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
      "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": `${8 * GiB}\n`,
      "sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": `${2 * GiB}\n`,
      "sys/fs/cgroup/memory/a/b/memory.stat": `total_inactive_file ${GiB}\n`,
    };
    expect(availableMemory(system(files))).toEqual({
      bytes: 7 * GiB,
      limit: "the container's limit of 8 GiB",
    });
    const unlimited = { ...files, "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n" };
    expect(availableMemory(system(unlimited)).bytes).toBe(20 * GiB);
  });

  test("knows what ulimit -v leaves", () => {
    const root = system({
      "proc/self/limits": `Limit  Soft Limit  Hard Limit  Units\nMax address space         ${6 * GiB}           unlimited            bytes\n`,
      "proc/self/status": "Name: node\nVmSize:  2097152 kB\n",
    });
    expect(availableMemory(root)).toEqual({
      bytes: 4 * GiB,
      limit: "ulimit -v, which allows 6 GiB of address space",
    });
    const free = { "proc/self/limits": "Max address space         unlimited            unlimited   bytes\n" };
    expect(addressSpace(system(free))).toBeUndefined();
  });

  test("is a share of the machine where the system says nothing", () => {
    const { bytes, limit } = availableMemory(join(tmpdir(), "no-such-folder"));
    expect(bytes).toBeGreaterThan(0);
    expect(limit).toMatch(/three quarters/);
  });
});
