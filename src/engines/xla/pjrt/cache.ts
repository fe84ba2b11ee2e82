import { createHash } from "node:crypto";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";

/** Programs that compile in less time are not worth a file, in milliseconds. */
export const WORTH_KEEPING_MS = 200;

/** Compiled programs on disk, by everything that they depend on. */
export class ExecutableCache {
  /** @param folder where the files are; it is made when the first is written */
  constructor(readonly folder: string) {}

  /** The file of a program. */
  key(...parts: readonly (string | Uint8Array)[]): string {
    const hash = createHash("sha256");
    for (const part of parts) {
      hash.update(`${part.length}:`);
      hash.update(part);
    }
    return hash.digest("hex");
  }

  /** The program of a key, if it was written before. */
  async read(key: string): Promise<Uint8Array | undefined> {
    return await readFile(join(this.folder, key)).catch(() => undefined);
  }

  /** Writes a program; a disk that is full or may not be written to only costs the next start its time. */
  async write(key: string, content: Uint8Array): Promise<void> {
    const partial = join(this.folder, `${key}.${process.pid}.partial`);
    try {
      await mkdir(this.folder, { recursive: true });
      await writeFile(partial, content);
      await rename(partial, join(this.folder, key));
    } catch {
      await this.drop(`${key}.${process.pid}.partial`);
    }
  }

  /** Removes a program that cannot be used. */
  async drop(key: string): Promise<void> {
    await rm(join(this.folder, key), { force: true }).catch(() => {});
  }
}

/** The folder for compiled programs: `SHARDWISE_XLA_CACHE`, or one in the user's cache; `off` means none. */
export function cacheFolder(environment: NodeJS.ProcessEnv = process.env): string | undefined {
  const named = environment.SHARDWISE_XLA_CACHE;
  if (named === "off") return undefined;
  if (named !== undefined && named !== "") return named;
  return join(environment.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "shardwise", "xla");
}
