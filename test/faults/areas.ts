import type { FaultArea } from "./row.js";
import { devices } from "./rows/devices.js";
import { checkpoints, safetensors } from "./rows/files.js";
import { operands, options } from "./rows/numbers.js";
import { commands, runs } from "./rows/processes.js";

/** All parts of the table, in its order. */
export const areas: readonly FaultArea[] = [
  runs,
  checkpoints,
  safetensors,
  devices,
  operands,
  options,
  commands,
];
