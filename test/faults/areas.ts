import type { FaultArea } from "./row.js";
import { devices } from "./rows/devices.js";
import { checkpoints, safetensors } from "./rows/files.js";
import { sizes } from "./rows/limits.js";
import { moments } from "./rows/moments.js";
import { operands, options } from "./rows/numbers.js";
import { commands, runs } from "./rows/processes.js";

/** All parts of the table, in its order. */
export const areas: readonly FaultArea[] = [
  runs,
  moments,
  checkpoints,
  safetensors,
  devices,
  operands,
  options,
  sizes,
  commands,
];
