// Bundles sources of the library for browsers, as users' bundlers do with the built package: `#platform/x` is
// `x.browser.ts`, and the code of Web Workers is a string.
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** Build options of both the page's and the workers' code. */
const common = {
  absWorkingDir: root,
  bundle: true,
  write: false,
  platform: "browser",
  target: "es2022",
  // Error messages contain the names of classes.
  keepNames: true,
  minify: true,
  logLevel: "error",
};

const { exports, sideEffects } = JSON.parse(readFileSync(`${root}package.json`, "utf8"));

/** The source of an entry point of the package: `shardwise/nn` or `./nn`. */
function entrySource(name) {
  const entry = exports[name === "shardwise" ? "." : name.replace(/^shardwise/, ".")];
  const file = entry?.browser ?? entry?.default;
  return file && sourceOf(file);
}

const sourceOf = (file) => root + file.replace("./dist/", "src/").replace(/\.js$/, ".ts");

const withEffects = sideEffects.map(
  (file) => new RegExp(`^${sourceOf(file).replaceAll(".", "\\.").replace("*", "[^/]*")}$`),
);
const hasEffects = (path) => withEffects.some((pattern) => pattern.test(path));

/** Resolves the names inside the package as a browser does. */
const names = {
  name: "names of the package",
  setup({ onResolve, resolve }) {
    onResolve({ filter: /^#/ }, ({ path }) => {
      const found = `${root}src/${path.slice(1)}.browser.ts`;
      return existsSync(found)
        ? { path: found, sideEffects: false }
        : { errors: [{ text: `there is no ${found}` }] };
    });
    onResolve({ filter: /^shardwise(\/|$)/ }, ({ path }) => ({
      path: entrySource(path),
      sideEffects: hasEffects(entrySource(path)),
    }));
    // Only the files that package.json lists do more than export something.
    onResolve({ filter: /^\.\.?\// }, async ({ path, pluginData, ...from }) => {
      if (pluginData === names) return undefined;
      const found = await resolve(path, { ...from, pluginData: names });
      return found.path.startsWith(`${root}src/`) ? { ...found, sideEffects: hasEffects(found.path) } : found;
    });
  },
};

/** Inserts the code of Web Workers where the built package has it. */
const workers = {
  name: "code of Web Workers",
  setup({ onLoad }) {
    onLoad({ filter: /workerCode\.browser\.ts$/ }, async ({ path }) => ({
      contents: await workerModule(path.replace("Code.browser.ts", ".ts")),
    }));
  },
};

/** The module that holds the code of a Web Worker, given the source it starts from. */
export async function workerModule(source) {
  const { outputFiles } = await build({
    ...common,
    // Every bundle has the code as a string; errors that leave a worker have names of their own.
    keepNames: false,
    entryPoints: [source],
    format: "iife",
    define: { "import.meta.url": '""' },
    plugins: [names],
  });
  return `export const workerCode = () => ${JSON.stringify(outputFiles[0].text)};\n`;
}

/** Bundles an entry point, or code given as `stdin`, into ES modules; returns esbuild's result. */
export function bundleForBrowser(options) {
  return build({ ...common, format: "esm", plugins: [names, workers], ...options });
}
