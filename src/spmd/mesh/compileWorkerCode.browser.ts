import type * as node from "./compileWorkerCode.js";

/** The code of `compileWorker.ts` for Web Workers, which the build puts here (`scripts/package/workers.mjs`). */
export const compileWorkerCode: typeof node.compileWorkerCode = () => {
  throw new Error("the sources were bundled without the code of Web Workers");
};
