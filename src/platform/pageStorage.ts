/** What pages have instead of files: downloads, and the private file system of their origin. */

/** Files that the browser keeps for an origin. */
export interface OriginFiles {
  /** The names of all files. */
  names(): Promise<string[]>;
  /** The content of a file; undefined without one of this name. */
  read(name: string): Promise<Uint8Array | undefined>;
  /** Writes a file, which appears or changes as a whole. */
  write(name: string, bytes: Uint8Array): Promise<void>;
  /** Removes a file if there is one. */
  remove(name: string): Promise<void>;
}

/** The paths and contents of all files in a folder of the origin and in folders inside it. */
export type FoundFiles = AsyncIterable<readonly [path: string, content: Uint8Array]>;

const pagesOnly = "only pages have it: use node:fs";

/** Lets the user save bytes as a file. */
export function offerDownload(_bytes: Uint8Array, _name: string): void {
  throw new Error(pagesOnly);
}

/** Opens a folder of the origin's private file system, creating it if necessary. */
export async function openOriginFolder(_path: readonly string[]): Promise<OriginFiles> {
  throw new Error(pagesOnly);
}

/** All files in a folder of the origin's private file system and in folders inside it. */
export function filesOfOrigin(_path: string): FoundFiles {
  throw new Error(pagesOnly);
}
