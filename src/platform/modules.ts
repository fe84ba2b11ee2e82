/** Modules and packages that are found when the program runs, also where a bundler packed this library. */
import { existsSync } from "node:fs";
import { dirname, isAbsolute, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** Node's function of this name, reached in a way that bundlers do not follow: they cannot pack native code. */
const createRequire = (from: string) => process.getBuiltinModule("node:module").createRequire(from);

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
  return import(/* @vite-ignore */ /* webpackIgnore: true */ pathToFileURL(file).href);
}

/** Where the program is: its file, or its executable where it was compiled into one. */
const programFile = () => [process.execPath, process.argv[1] ?? ""].findLast((path) => existsSync(path));

/**
 * The first place from which a module is found: this file (in a bundle, that of the bundle, or none), the program, the
 * working directory.
 */
export function packagesFrom(name: string): string | undefined {
  for (const place of [() => import.meta.url, programFile, () => resolve("index.js")]) {
    try {
      const from = place();
      if (from !== undefined && createRequire(from).resolve(name)) return from;
    } catch {
      // Nothing exists there, or Deno does not permit looking.
    }
  }
  return undefined;
}

/** Loads a package, from the place where it is found. */
export function requirePackage(name: string): unknown {
  const from = packagesFrom(name);
  return from && createRequire(from)(name);
}

/** Imports a package, from the place where it is found; undefined if it is not installed. */
export async function importPackage(name: string): Promise<unknown> {
  const from = packagesFrom(name);
  return from && importModule(createRequire(from).resolve(name));
}

/** The folder of an installed package that exports its `package.json`. */
export function packageFolder(name: string): string | undefined {
  const file = `${name}/package.json`;
  const from = packagesFrom(file);
  return from && dirname(createRequire(from).resolve(file));
}
