import { mkdirSync, rmSync, writeFileSync } from "#platform/fs";
import { join } from "#platform/path";
import { ConfigError } from "../../ir/errors.js";
import type * as node from "./lock.js";

export const lockFile: typeof node.lockFile = "run.lock";

/** The browser itself keeps pages and workers of an origin from holding a lock twice, and releases it at their end. */
export const holdRun: typeof node.holdRun = (folder) =>
  new Promise((resolve, reject) => {
    const path = join(folder, lockFile);
    const hold = (lock: Lock | null): Promise<void> | undefined => {
      if (lock === null) {
        const what = `[train] another page or worker of this origin is training into ${folder}: wait for it, stop it, or choose another folder`;
        reject(new ConfigError(what));
        return undefined;
      }
      mkdirSync(folder, { recursive: true });
      writeFileSync(path, "{}");
      return new Promise((release) => {
        resolve(() => {
          rmSync(path, { force: true });
          release();
        });
      });
    };
    navigator.locks.request(`shardwise run ${folder}`, { ifAvailable: true }, hold).catch(reject);
  });
