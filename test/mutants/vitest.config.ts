import { relative } from "node:path";
import { mergeConfig } from "vitest/config";
import base from "../../vitest.config.js";
import type { Mutant } from "./mutate.js";

const mutant: Mutant | undefined = process.env.SHARDWISE_MUTANT && JSON.parse(process.env.SHARDWISE_MUTANT);

/** The everyday configuration, with one place of one source changed while it is loaded. */
export default mergeConfig(base, {
  plugins: [
    {
      name: "mutant",
      enforce: "pre",
      transform(code: string, id: string) {
        if (mutant === undefined || relative(process.cwd(), id) !== mutant.file) return undefined;
        return code.slice(0, mutant.start) + mutant.text + code.slice(mutant.end);
      },
    },
  ],
  // A test that takes long on a busy machine has noticed nothing.
  test: { bail: 1, maxWorkers: 1, testTimeout: 180_000, hookTimeout: 180_000 },
});
