import { relative } from "node:path";
import { mergeConfig } from "vitest/config";
import type { Vite } from "vitest/node";
import base from "../../vitest.config.js";
import type { Mutant } from "./mutate.js";

const mutant: Mutant | undefined = process.env.SHARDWISE_MUTANT && JSON.parse(process.env.SHARDWISE_MUTANT);

const isMutated = (id: string): boolean => relative(process.cwd(), id) === mutant?.file;

const mutation: Vite.Plugin = {
  name: "mutant",
  enforce: "pre",
  // What is kept of compiled sources is found by their text on the disk, which does not tell mutants apart.
  configureVitest: ({ experimental_defineCacheKeyGenerator: defineKey }) =>
    defineKey(({ id }) => (isMutated(id) ? false : undefined)),
  transform(code, id) {
    if (mutant === undefined || !isMutated(id)) return undefined;
    return code.slice(0, mutant.start) + mutant.text + code.slice(mutant.end);
  },
};

/** The everyday configuration, with one place of one source changed while it is loaded. */
export default mergeConfig(base, {
  plugins: [mutation],
  // A test that takes long on a busy machine has noticed nothing.
  test: { bail: 1, maxWorkers: 1, testTimeout: 180_000, hookTimeout: 180_000 },
});
