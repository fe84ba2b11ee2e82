// Lets Node run the TypeScript of this repository without a build:
//
//   node --import ./scripts/typescript.mjs bench/collectives.ts
//
// Types are stripped file by file with esbuild; `./x.js` means `./x.ts` where only that exists, and the package's
// own name means its sources.
import { existsSync, readFileSync } from "node:fs";
import { createRequire, register } from "node:module";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";

const source = new URL("../src/", import.meta.url);

// Node loads this file a second time, in the thread where the hooks run.
if (isMainThread) register(import.meta.url);

export async function resolve(specifier, context, next) {
  if (specifier === "shardwise") return next(new URL("index.ts", source).href, context);
  if (specifier.startsWith("shardwise/")) {
    return next(new URL(`${specifier.slice("shardwise/".length)}/index.ts`, source).href, context);
  }
  if (specifier.startsWith(".") && specifier.endsWith(".js") && context.parentURL?.startsWith("file:")) {
    const candidate = new URL(specifier.replace(/\.js$/, ".ts"), context.parentURL);
    if (existsSync(candidate)) return next(candidate.href, context);
  }
  return next(specifier, context);
}

export async function load(url, context, next) {
  if (!url.startsWith("file:") || !url.endsWith(".ts")) return next(url, context);
  const { transformSync } = createRequire(import.meta.url)("esbuild");
  const path = fileURLToPath(url);
  const { code } = transformSync(readFileSync(path, "utf8"), {
    loader: "ts",
    format: "esm",
    target: "node20",
    sourcemap: "inline",
    sourcefile: path,
  });
  return { format: "module", source: code, shortCircuit: true };
}
