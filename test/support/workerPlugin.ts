import { basename } from "node:path";
import type { Plugin } from "esbuild";
import { bundleWorker } from "../../src/engines/system/bundleWorker.js";

/**
 * Makes esbuild put the code of worker threads into what it builds from the sources, as the built package has it. Where
 * it builds a copy of the sources, workers are those of the repository, in which esbuild finds everything.
 */
export const workerPlugin: Plugin = {
  name: "worker code",
  setup({ onLoad }) {
    onLoad({ filter: /orkerCode\.ts$/ }, ({ path }) => {
      const [, module = ""] = /[\\/]src[\\/](.*)Code\.ts$/.exec(path) ?? [];
      const code = bundleWorker(new URL(`../../src/${module.replaceAll("\\", "/")}.ts`, import.meta.url));
      return { contents: `export const ${basename(path, ".ts")} = () => ${JSON.stringify(code)};` };
    });
  },
};
