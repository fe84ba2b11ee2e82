import { createHash, randomUUID } from "node:crypto";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { userCache } from "#platform/system";

/** Programs that compile in fewer milliseconds are not cached. */
export const WORTH_KEEPING_MS = 200;

/** Compiled programs on disk, keyed by everything they depend on. */
export class ExecutableCache {
  /** @param folder where the files are; created when the first one is written */
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

  /** The cached program for a key, if there is one. */
  async read(key: string): Promise<Uint8Array | undefined> {
    return await readFile(join(this.folder, key)).catch(() => undefined);
  }

  /** Writes a program; if the disk is full or read-only, the next start merely has to compile again. */
  async write(key: string, content: Uint8Array): Promise<void> {
    // Engines of this process, and processes of other machines with the same number, may write the same program.
    const partial = `${key}.${randomUUID()}.partial`;
    try {
      await mkdir(this.folder, { recursive: true });
      await writeFile(join(this.folder, partial), content);
      await rename(join(this.folder, partial), join(this.folder, key));
    } catch {
      await this.drop(partial);
    }
  }

  /** Removes a program that cannot be used. */
  async drop(key: string): Promise<void> {
    await rm(join(this.folder, key), { force: true }).catch(() => {});
  }
}

/** The cache folder: `SHARDWISE_XLA_CACHE`, or one in the user's cache; undefined if it is `off`. */
export function cacheFolder(environment: NodeJS.ProcessEnv = process.env): string | undefined {
  const named = environment.SHARDWISE_XLA_CACHE;
  if (named === "off") return undefined;
  if (named !== undefined && named !== "") return named;
  return join(userCache(environment), "xla");
}
