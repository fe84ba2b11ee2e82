import type * as node from "./workerCode.js";

/** The code of `worker.ts` for Web Workers, which the build of the package puts here (`scripts/package/workers.mjs`). */
export const workerCode: typeof node.workerCode = () => {
  throw new Error("the sources were bundled without the code of Web Workers");
};
