import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";

/**
 * The file a device's worker starts from; `source` is where its module lies in the built package.
 *
 * In the built package that is the file itself. When the library runs from its TypeScript sources
 * (tests, examples, benchmarks), Node 20 could not load it in a worker, so the worker's sources are bundled
 * once per process into one file below `node_modules/.cache`.
 */
export function workerEntry(source: URL): URL {
  if (!import.meta.url.endsWith(".ts")) return source;
  const { href } = source;
  const entry = bundled.get(href) ?? bundleWorker(new URL(href.replace(/\.js$/, ".ts")));
  bundled.set(href, entry);
  return entry;
}

const bundled = new Map<string, URL>();

/** The part of esbuild's interface that is used here; esbuild comes with vite, a development dependency. */
interface Esbuild {
  buildSync(options: Readonly<Record<string, unknown>>): {
    readonly outputFiles: readonly { readonly contents: Uint8Array }[];
  };
}

function bundleWorker(source: URL): URL {
  const require = createRequire(source);
  const esbuild = require("esbuild") as Esbuild;
  const { outputFiles } = esbuild.buildSync({
    entryPoints: [fileURLToPath(source)],
    bundle: true,
    write: false,
    platform: "node",
    format: "esm",
    target: "node20",
    packages: "external",
  });
  const contents = outputFiles[0]?.contents ?? new Uint8Array();
  const folder = new URL("../../../node_modules/.cache/shardwise/", source);
  const digest = createHash("sha256").update(contents).digest("hex").slice(0, 16);
  const target = new URL(`worker-${digest}.mjs`, folder);
  if (!existsSync(target)) {
    // Processes may do this at the same time: a rename makes the whole file appear at once.
    mkdirSync(folder, { recursive: true });
    removeOld(folder);
    const temporary = new URL(`worker-${digest}-${process.pid}.tmp`, folder);
    writeFileSync(temporary, contents);
    renameSync(temporary, target);
  }
  return pathToFileURL(fileURLToPath(target));
}

/** Every change of a source leaves a file behind; those of other days are of no use. */
function removeOld(folder: URL): void {
  const yesterday = Date.now() - 24 * 60 * 60 * 1000;
  for (const name of readdirSync(folder)) {
    const file = new URL(name, folder);
    const { mtimeMs } = statSync(file, { throwIfNoEntry: false }) ?? {};
    if (mtimeMs !== undefined && mtimeMs < yesterday) rmSync(file, { force: true });
  }
}
