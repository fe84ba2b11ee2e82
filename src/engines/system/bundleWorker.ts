import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

/** The part of esbuild's interface that is used here; esbuild comes with vite, a development dependency. */
interface Esbuild {
  buildSync(options: Readonly<Record<string, unknown>>): {
    readonly outputFiles: readonly { readonly text: string }[];
  };
}

/**
 * The code of a worker thread in one string, from the TypeScript module that it starts with. Each such module `x.ts`
 * has a module `xCode.ts` that calls this when the library runs from its sources (tests, examples, benchmarks); in the
 * built package it holds the string instead (scripts/package/workers.mjs).
 */
export function bundleWorker(source: URL): string {
  const esbuild = createRequire(source)("esbuild") as Esbuild;
  const { outputFiles } = esbuild.buildSync({
    entryPoints: [fileURLToPath(source)],
    bundle: true,
    write: false,
    platform: "node",
    // Runtimes run code without a file as a script. An immediately called function keeps it strict in all of them.
    format: "iife",
    target: "node20",
    packages: "external",
    define: { "import.meta.url": "moduleUrl" },
    // Error messages contain the names of classes.
    keepNames: true,
    minifyWhitespace: true,
    logLevel: "error",
  });
  return outputFiles.map(({ text }) => text).join("");
}
