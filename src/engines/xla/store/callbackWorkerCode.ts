import { lazily } from "../../../ir/identity.js";
import { bundleWorker } from "../../system/bundleWorker.js";

/** The code of `callbackWorker.ts` in one string. */
export const callbackWorkerCode = lazily(() => bundleWorker(new URL("./callbackWorker.ts", import.meta.url)));
