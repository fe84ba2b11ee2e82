import { formatBytes } from "../../ir/shape.js";
import type * as node from "./machineMemory.js";

/** The largest memory that browsers report, whatever the machine has. */
const REPORTED_GIB = 8;

/** The memory to assume if a browser does not report the machine's. */
const ASSUMED_GIB = 4;

/** The share to use: other tabs and the browser itself need the rest. */
const SHARE = 0.25;

/** A quarter of the machine's memory as reported by the browser: a tab that takes too much is killed silently. */
export const availableMemory: typeof node.availableMemory = () => {
  const { deviceMemory } = navigator as { readonly deviceMemory?: number };
  const bytes = Math.min(deviceMemory ?? ASSUMED_GIB, REPORTED_GIB) * 2 ** 30;
  const known = deviceMemory === undefined ? "assumed" : "reported by the browser";
  return { bytes: SHARE * bytes, limit: `a quarter of the ${formatBytes(bytes)} ${known}` };
};

export const addressSpace: typeof node.addressSpace = () => undefined;
