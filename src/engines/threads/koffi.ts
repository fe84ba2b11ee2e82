import { createRequire } from "node:module";

/** The package that calls native functions. */
export type Koffi = typeof import("koffi");

let loaded: { readonly koffi: Koffi | undefined } | undefined;

/** The FFI, or nothing on platforms it has no binary for. */
export function loadKoffi(): Koffi | undefined {
  if (loaded === undefined) {
    try {
      loaded = { koffi: createRequire(import.meta.url)("koffi") as Koffi };
    } catch {
      loaded = { koffi: undefined };
    }
  }
  return loaded.koffi;
}
