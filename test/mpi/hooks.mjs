// Lets a process run test files by itself: what they import from vitest comes from `vitest.ts` beside this file.
//
//   node --import ./scripts/typescript.mjs --import ./test/mpi/hooks.mjs test/mpi/suite.ts FILE…
import * as modules from "node:module";
import { isMainThread } from "node:worker_threads";

if (modules.registerHooks) modules.registerHooks({ resolve });
else if (isMainThread) modules.register(import.meta.url);

export function resolve(specifier, context, next) {
  return specifier === "vitest" ? next(new URL("./vitest.ts", import.meta.url).href, context) : next(specifier, context);
}
