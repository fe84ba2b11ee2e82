import type * as node from "./modules.js";

export const modulePath: typeof node.modulePath = (name) => new URL(name, globalThis.location.href).href;

export const locateModule: typeof node.locateModule = (name) => new URL(name, globalThis.location.href).href;

export const requireModule: typeof node.requireModule = (file) => {
  throw new Error(`pages load modules asynchronously: await the import of ${file} first`);
};

export const packageFolder: typeof node.packageFolder = () => {
  throw new Error("pages have no installed packages: give the address of a text, or a file of the origin");
};

export const importModule: typeof node.importModule = (file) =>
  import(/* @vite-ignore */ /* webpackIgnore: true */ file);
