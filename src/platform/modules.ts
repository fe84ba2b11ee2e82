/** Modules that users name at run time. */
import { createRequire } from "node:module";
import { isAbsolute, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const fromHere = () => createRequire(resolve("module.js"));

/** The path of a module that is named by a path or a URL; undefined for the name of a package. */
export function modulePath(name: string): string | undefined {
  const path = name.startsWith("file:") ? fileURLToPath(name) : name;
  return path.startsWith(".") || isAbsolute(path) ? resolve(path) : undefined;
}

/** The file of a module: packages and relative paths are looked for from the working directory. Throws without one. */
export function locateModule(name: string): string {
  return fromHere().resolve(modulePath(name) ?? name);
}

/** Loads the module of a file at once. */
export function requireModule(file: string): unknown {
  return fromHere()(file);
}

/** Loads the module of a file. */
export async function importModule(file: string): Promise<unknown> {
  return import(pathToFileURL(file).href);
}

/**
 * The file or URL from which a package is found: this module or, where a bundler packed it into another file, the
 * program or the working directory.
 */
export function packagesFrom(name: string): string | undefined {
  return [import.meta.url, process.argv[1], resolve("index.js")].find((from) => {
    try {
      return from && createRequire(from).resolve(name);
    } catch {
      return false;
    }
  });
}
