import { Ambient } from "../ir/ambient.js";
import { need } from "../ir/arguments.js";

/** Receives messages about how parameters are split; the library itself never prints. */
export interface Logger {
  /** Something expected that is worth knowing. */
  info(message: string): void;
  /** Something that is probably a mistake. */
  warn(message: string): void;
}

/** Shows warnings on the console and drops the rest. */
export const consoleLogger: Logger = {
  info: () => {},
  warn: (message) => console.warn(message),
};

const current = new Ambient<Logger>({
  name: "logger",
  initial: consoleLogger,
  setBy: "setLogger",
  dependence: { unkeyed: "messages are logged once, when a function is traced" },
});

/** The logger in use. */
export function logger(): Logger {
  return current.get();
}

/**
 * Sends messages elsewhere.
 *
 * @returns the logger that was in use, to put it back
 *
 * @example
 * ```ts
 * const before = parallel.setLogger({ info: () => {}, warn: () => {} });
 * parallel.setLogger(before) !== before; // true
 * ```
 */
export function setLogger(next: Logger): Logger {
  need("object", next, "the logger", "setLogger");
  need("function", next.info, "info of the logger", "setLogger");
  need("function", next.warn, "warn of the logger", "setLogger");
  return current.set(next);
}
