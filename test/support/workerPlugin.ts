import { basename } from "node:path";
import { pathToFileURL } from "node:url";
import type { Plugin } from "esbuild";
import { bundleWorker } from "../../src/engines/system/bundleWorker.js";

/** Makes esbuild put the code of worker threads into what it builds from the sources, as the built package has it. */
export const workerPlugin: Plugin = {
  name: "worker code",
  setup({ onLoad }) {
    onLoad({ filter: /orkerCode\.ts$/ }, ({ path }) => {
      const code = bundleWorker(pathToFileURL(path.replace(/Code\.ts$/, ".ts")));
      return { contents: `export const ${basename(path, ".ts")} = () => ${JSON.stringify(code)};` };
    });
  },
};
