import { bundleWorker } from "../../../engines/system/bundleWorker.js";
import { lazily } from "../../../ir/identity.js";

/** The code of `tokenizeWorker.ts` in one string. */
export const tokenizeWorkerCode = lazily(() => bundleWorker(new URL("./tokenizeWorker.ts", import.meta.url)));
