/** Where runtimes other than the current one are installed, and which npm packages they come from. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const cache = fileURLToPath(new URL("../node_modules/.cache/runtimes/", import.meta.url));

/** The versions of Node that are supported; the last one is the newest with long-term support. */
export const nodeVersions = ["20", "22", "24", "26"] as const;

/** A runtime that can be fetched from npm. */
export interface Runtime {
  /** Such as `node-26`, `bun` or `deno`. */
  readonly name: string;
  /** The package with its program for this system, and the version of it. */
  readonly source: string;
  /** Path of its executable, once it was fetched. */
  readonly program: string;
  /** Arguments before the script on its command line. */
  readonly arguments: readonly string[];
}

/** Every runtime that programs are tested on, fetched or not. */
export const runtimes: readonly Runtime[] = [
  ...nodeVersions.map((version) =>
    runtime(`node-${version}`, `node-${system()}-${process.arch}@${version}`, "bin/node"),
  ),
  runtime(
    "bun",
    `@oven/bun-${process.platform}-${process.arch === "arm64" ? "aarch64" : process.arch}`,
    "bin/bun",
  ),
  // All permissions: files, the environment and native libraries, as programs have on the other runtimes.
  runtime("deno", `@deno/${process.platform}-${process.arch}${libc()}`, "deno", ["run", "-A"]),
];

function runtime(name: string, source: string, program: string, args: readonly string[] = []): Runtime {
  return { name, source, program: join(cache, name, "package", program), arguments: args };
}

function system(): string {
  return process.platform === "win32" ? "win" : process.platform;
}

function libc(): string {
  return process.platform === "linux" ? "-glibc" : "";
}

/** The folder of a runtime. */
function folderOf({ name }: Runtime): string {
  return join(cache, name);
}

/** Whether a runtime is installed. */
export function isFetched({ program }: Runtime): boolean {
  return existsSync(program);
}

/** Unpacks a runtime's package into its folder, atomically. */
export function fetchRuntime(runtime: Runtime): boolean {
  const folder = folderOf(runtime);
  const partial = `${folder}.${process.pid}`;
  console.log(`fetching ${runtime.source}`);
  mkdirSync(partial, { recursive: true });
  try {
    const quiet = { stdio: "ignore", timeout: 300_000 } as const;
    const pack = ["pack", runtime.source, "--silent", "--pack-destination", partial];
    if (spawnSync("npm", pack, { ...quiet, shell: process.platform === "win32" }).status !== 0) return false;
    const file = readdirSync(partial).find((name) => name.endsWith(".tgz"));
    if (file === undefined) return false;
    if (spawnSync("tar", ["-xzf", join(partial, file), "-C", partial], quiet).status !== 0) return false;
    rmSync(join(partial, file));
    rmSync(folder, { recursive: true, force: true });
    renameSync(partial, folder);
    return isFetched(runtime);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
}
