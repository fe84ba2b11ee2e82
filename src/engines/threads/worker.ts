/** The entry point of worker threads when all devices are in one process. */
import { InternalError } from "../../ir/errors.js";
import { runDeviceWorker } from "../devices/deviceWorker.js";

runDeviceWorker(() => () => ({
  prepare() {
    throw new InternalError("[threads] there is no other process");
  },
  progress() {},
  moveTo() {},
}));
