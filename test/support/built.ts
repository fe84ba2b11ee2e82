/** The package as its users have it, for processes that tests start: compiled once, so that each starts quickly. */
import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import { v8Flags } from "./v8Flags.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const builds = join(root, "node_modules", ".cache", "shardwise-built");

/** What processes of tests run: the package, and programs beside it that import it by its name or by the folder `src`. */
const folders = ["src", "examples", "test/fixtures", "test/support", "test/conformance/goldens"];

/** The arguments of `node` that run a TypeScript file of {@link folders}, whose path begins at the repository. */
export function nodeProgram(path: string): string[] {
  return [...v8Flags, builtFile(path)];
}

/** The compiled form of a TypeScript file of {@link folders}. */
export function builtFile(path: string): string {
  folder ??= builtFolder();
  return join(folder, path.replace(/^src\//, "dist/").replace(/\.ts$/, ".js"));
}

let folder: string | undefined;

function builtFolder(): string {
  const files = folders.flatMap((name) =>
    readdirSync(join(root, name), { recursive: true, encoding: "utf8" })
      .map((path) => `${name}/${path.replaceAll(sep, "/")}`)
      .filter((path) => path.endsWith(".ts") && !path.includes(".test.")),
  );
  const digest = createHash("sha256");
  for (const path of [...files.sort(), "package.json"])
    digest.update(`${path}\0`).update(readFileSync(join(root, path)));
  const built = join(builds, digest.digest("hex").slice(0, 16));
  if (!existsSync(built)) build(files, built);
  return built;
}

/** Compiles file by file, as the build of the package does, into a folder that appears as a whole. */
function build(files: readonly string[], target: string): void {
  mkdirSync(builds, { recursive: true });
  removeOld();
  const partial = `${target}.${process.pid}`;
  buildSync({
    absWorkingDir: root,
    entryPoints: [...files],
    outbase: ".",
    outdir: partial,
    format: "esm",
    platform: "node",
    target: "node20",
    sourcemap: true,
    sourcesContent: false,
    logLevel: "error",
  });
  renameSync(join(partial, "src"), join(partial, "dist"));
  // Modules are known by the folders that links lead to, so that nothing is loaded twice.
  symlinkSync(join(target, "dist"), join(partial, "src"), "junction");
  symlinkSync(join(root, "texts"), join(partial, "texts"), "junction");
  copyFileSync(join(root, "package.json"), join(partial, "package.json"));
  try {
    renameSync(partial, target);
  } catch (error) {
    // Another process was quicker.
    if (!existsSync(target)) throw error;
    rmSync(partial, { recursive: true });
  }
}

/** Every change of a source leaves a folder behind, which is of no use when the tests that run from it are over. */
function removeOld(): void {
  const before = Date.now() - 3 * 60 * 60 * 1000;
  for (const name of readdirSync(builds)) {
    const path = join(builds, name);
    if ((statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? before) < before)
      rmSync(path, { recursive: true, force: true });
  }
}
