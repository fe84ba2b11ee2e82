import { formatBytes } from "../../ir/shape.js";
import type * as node from "./machineMemory.js";

/** The memory that browsers report at most, whatever the machine has. */
const REPORTED_GIB = 8;

/** What is assumed where a browser does not tell the memory of the machine. */
const ASSUMED_GIB = 4;

/** Other tabs and the browser itself need the rest. */
const SHARE = 0.25;

/** A quarter of the machine's memory as far as the browser tells it: a tab that takes too much is ended without a word. */
export const availableMemory: typeof node.availableMemory = () => {
  const { deviceMemory } = navigator as { readonly deviceMemory?: number };
  const bytes = Math.min(deviceMemory ?? ASSUMED_GIB, REPORTED_GIB) * 2 ** 30;
  const known = deviceMemory === undefined ? "assumed" : "reported by the browser";
  return { bytes: SHARE * bytes, limit: `a quarter of the ${formatBytes(bytes)} ${known}` };
};

export const addressSpace: typeof node.addressSpace = () => undefined;
