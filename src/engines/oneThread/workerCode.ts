import { lazily } from "../../ir/identity.js";
import { bundleWorker } from "../system/bundleWorker.js";

/** The code of `worker.ts` in one string. */
export const workerCode = lazily(() => bundleWorker(new URL("./worker.ts", import.meta.url)));
