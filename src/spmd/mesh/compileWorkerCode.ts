import { bundleWorker } from "../../engines/system/bundleWorker.js";
import { lazily } from "../../ir/identity.js";

/** The code of `compileWorker.ts` in one string. */
export const compileWorkerCode = lazily(() => bundleWorker(new URL("./compileWorker.ts", import.meta.url)));
