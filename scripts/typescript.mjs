// Lets Node run the TypeScript of this repository without a build:
//
//   node --import ./scripts/typescript.mjs bench/collectives.ts
//
// Types are stripped file by file with esbuild, and the result is kept in node_modules/.cache; `./x.js` means `./x.ts`
// where only that exists, and the package's own names (`shardwise/nn`, `#platform/system`) mean its sources.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import * as modules from "node:module";
import { fileURLToPath } from "node:url";
import { isMainThread, threadId } from "node:worker_threads";

const source = new URL("../src/", import.meta.url);
const cache = new URL("../node_modules/.cache/typescript/", import.meta.url);

// Hooks run in the same thread if Node supports it, else in a separate thread that loads this file a second time.
if (modules.registerHooks) modules.registerHooks({ resolve, load });
else if (isMainThread) modules.register(import.meta.url);

export function resolve(specifier, context, next) {
  if (specifier.startsWith("#")) {
    // Dependencies have their own names that begin like this.
    const own = new URL(`${specifier.slice(1)}.ts`, source);
    return next(existsSync(own) ? own.href : specifier, context);
  }
  if (specifier === "shardwise") return next(new URL("index.ts", source).href, context);
  if (specifier.startsWith("shardwise/")) {
    const name = specifier.slice("shardwise/".length);
    const entry = new URL(`entries/${name}.ts`, source);
    return next(existsSync(entry) ? entry.href : new URL(`${name}/index.ts`, source).href, context);
  }
  if (specifier.startsWith(".") && specifier.endsWith(".js") && context.parentURL?.startsWith("file:")) {
    const candidate = new URL(specifier.replace(/\.js$/, ".ts"), context.parentURL);
    if (existsSync(candidate)) return next(candidate.href, context);
  }
  return next(specifier, context);
}

export function load(url, context, next) {
  if (!url.startsWith("file:") || !url.endsWith(".ts")) return next(url, context);
  return { format: "module", source: stripped(fileURLToPath(url)), shortCircuit: true };
}

function stripped(path) {
  const text = readFileSync(path, "utf8");
  const key = createHash("sha256").update(path).update("\0").update(text).digest("hex");
  const file = new URL(`${key}.js`, cache);
  if (existsSync(file)) return readFileSync(file, "utf8");
  const { transformSync } = modules.createRequire(import.meta.url)("esbuild");
  const { code } = transformSync(text, {
    loader: "ts",
    format: "esm",
    target: "node20",
    sourcemap: "inline",
    sourcefile: path,
  });
  // Other processes may write it at the same time, so the file is renamed into place.
  mkdirSync(cache, { recursive: true });
  const partial = new URL(`${key}.${process.pid}.${threadId}`, cache);
  writeFileSync(partial, code);
  renameSync(partial, file);
  return code;
}
