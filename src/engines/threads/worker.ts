/** The entry point of worker threads under Node when all devices are in one process. */
import { InternalError } from "../../ir/errors.js";
import { runNodeWorker } from "../devices/nodeWorker.js";

runNodeWorker(() => () => ({
  prepare() {
    throw new InternalError("[threads] there is no other process");
  },
  progress() {},
  moveTo() {},
}));
