/** Stands in for calls of native functions: the only one that is left gives up the processor. */
import { park } from "../../runtime.js";

export type Koffi = typeof import("koffi");

const YIELD_MS = 0.05;

export function loadKoffi(): unknown {
  return { load: () => ({ func: () => () => park(() => false, YIELD_MS) }) };
}
