// Bundles sources of the library for browsers, as users' bundlers do with the built package: `#platform/x` is
// `x.browser.ts`, and the code of Web Workers is a string.
import { readFileSync } from "node:fs";
import { basename } from "node:path";
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

const { exports, dependencies } = JSON.parse(readFileSync(`${root}package.json`, "utf8"));

/** The source of an entry point of the package, such as `shardwise/nn`. */
function entrySource(name) {
  const entry = exports[name.replace(/^shardwise/, ".")];
  const file = entry?.browser ?? entry?.default;
  return file?.replace("./dist/", "./src/").replace(/\.js$/, ".ts");
}

/** Resolves the names inside the package as a browser does. */
const names = {
  name: "names of the package",
  setup({ onResolve, resolve }) {
    const own = (path, kind) => resolve(path, { kind, resolveDir: root });
    onResolve({ filter: /^#/ }, ({ path, kind }) => own(`./src/${path.slice(1)}.browser.ts`, kind));
    onResolve({ filter: /^shardwise(\/|$)/ }, ({ path, kind }) => own(entrySource(path) ?? path, kind));
  },
};

/** Inserts the code of Web Workers where the built package has it. */
const workers = {
  name: "code of Web Workers",
  setup({ onLoad }) {
    onLoad({ filter: /[wW]orkerCode\.browser\.ts$/ }, async ({ path }) => ({
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
  return `export const ${basename(source, ".ts")}Code = () => ${JSON.stringify(outputFiles[0].text)};\n`;
}

/** Bundles an entry point, or code given as `stdin`, into ES modules; returns esbuild's result. */
export function bundleForBrowser(options) {
  // Packages that read rare formats are loaded when they are needed, by whoever provides them.
  const external = Object.keys(dependencies);
  return build({ ...common, format: "esm", plugins: [names, workers], external, ...options });
}
