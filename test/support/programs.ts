/** Finds programs that are installed, as a shell would. */
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

/** The program of one of these names, as a shell would find it. */
export function onPath(...names: readonly string[]): string | undefined {
  const folders = (process.env.PATH ?? "").split(delimiter).filter((folder) => folder !== "");
  return names.flatMap((name) => folders.map((folder) => join(folder, name))).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** A Firefox, or one that the environment names. */
export function findFirefox(): string | undefined {
  return process.env.FIREFOX ?? onPath("firefox-esr", "firefox");
}

/** A Chromium, or one that the environment names. */
export function findChromium(): string | undefined {
  return process.env.CHROMIUM ?? onPath("chromium", "chromium-browser", "google-chrome");
}

/** The driver of a WebKit, or one that the environment names. */
export function findWebKit(): string | undefined {
  return process.env.WEBKIT ?? onPath("WebKitWebDriver");
}
