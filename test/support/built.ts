/**
 * The package and the programs of tests in few files, for processes that tests start: a process that loads the modules
 * one by one takes a second for it, three times as long.
 */
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
import { join, relative, sep } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build, type Plugin } from "esbuild";
import { v8Flags } from "./v8Flags.js";
import { workerPlugin } from "./workerPlugin.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const builds = join(root, "node_modules", ".cache", "shardwise-built");

/** Where the modules lie that processes of tests load. */
const folders = ["src", "examples", "test/fixtures", "test/support", "test/conformance/goldens"];

/** The files that such a process starts from; what several of them load lies between them. */
const startsThere =
  /^(examples|test\/fixtures)\/|^src\/(index|cli\/main|engines\/threads\/engine)\.ts$|^test\/conformance\/goldens\/main\.ts$/;

/** The arguments of `node` that run a TypeScript file, whose path begins at the repository. */
export function nodeProgram(path: string): string[] {
  return [...v8Flags, builtFile(path)];
}

/** The compiled form of a TypeScript file that processes start from. */
export function builtFile(path: string): string {
  const file = join(folder, compiled(path));
  if (!existsSync(file))
    throw new Error(`processes do not start from ${path}: say so in test/support/built.ts`);
  return file;
}

const compiled = (path: string) => path.replace(/\.ts$/, ".js");

const folder = await builtFolder();

async function builtFolder(): Promise<string> {
  const paths = folders.flatMap((name) =>
    readdirSync(join(root, name), { recursive: true, encoding: "utf8" })
      .map((path) => `${name}/${path.replaceAll(sep, "/")}`)
      .filter((path) => path.endsWith(".ts") && !path.includes(".test.")),
  );
  const digest = createHash("sha256");
  const sources = new Map(paths.sort().map((path) => [path, readFileSync(join(root, path), "utf8")]));
  const own = readFileSync(join(root, "package.json"), "utf8");
  // What is built knows where it lies, and is of no use in a copy of the repository.
  digest.update(root);
  for (const [path, text] of [...sources, ["package.json", own] as const]) digest.update(`${path}\0${text}`);
  const built = join(builds, digest.digest("hex").slice(0, 16));
  if (!existsSync(built)) await make(sources, own, built);
  return built;
}

/** Compiles into a folder that appears as a whole. */
async function make(sources: ReadonlyMap<string, string>, own: string, target: string): Promise<void> {
  mkdirSync(builds, { recursive: true });
  removeOld();
  const partial = `${target}.${process.pid}`;
  await build({
    absWorkingDir: root,
    entryPoints: [...sources.keys()].filter((path) => startsThere.test(path)),
    outbase: ".",
    outdir: partial,
    bundle: true,
    splitting: true,
    // Below `src`, where the lines of a stack trace are the library's.
    chunkNames: "src/[name]-[hash]",
    alias: entriesOf(own),
    plugins: [workerPlugin, ownPlaces(sources, target)],
    packages: "external",
    // Programs, errors and modules tell the names of functions and classes.
    keepNames: true,
    format: "esm",
    platform: "node",
    target: "node20",
    logLevel: "error",
  });
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

/** What programs import by the package's name is what its users get. */
function entriesOf(own: string): Record<string, string> {
  const { name, exports }: { name: string; exports: Record<string, { default?: string }> } = JSON.parse(own);
  return Object.fromEntries(
    Object.entries(exports).flatMap(([entry, { default: file }]) =>
      file === undefined
        ? []
        : [[`${name}${entry.slice(1)}`, join(root, file.replace("/dist/", "/src/").replace(/\.js$/, ".ts"))]],
    ),
  );
}

/** Modules find texts and packages from where they would lie had each a file of its own. */
function ownPlaces(sources: ReadonlyMap<string, string>, target: string): Plugin {
  const place = "import.meta.url";
  return {
    name: "own places",
    setup({ onLoad }) {
      onLoad({ filter: /\.ts$/ }, ({ path }) => {
        const name = relative(root, path).replaceAll(sep, "/");
        const text = sources.get(name);
        if (!text?.includes(place)) return undefined;
        const url = JSON.stringify(pathToFileURL(join(target, compiled(name))).href);
        return { contents: text.replaceAll(place, url), loader: "ts" };
      });
    },
  };
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
