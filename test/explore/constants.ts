/**
 * Constants that are smaller on the simulated machine, so that few steps reach what takes many on a real one: sleeps
 * after few checks, rings of commands that are full, sums in several pieces.
 */
import type { Change } from "./load.js";

const PROTOCOL = "src/engines/protocol";

export const constants: readonly Change[] = [
  { file: `${PROTOCOL}/crew.ts`, from: "ownCore: 20_000, sharedCore: 50", to: "ownCore: 2, sharedCore: 1" },
  { file: `${PROTOCOL}/signals.ts`, from: "ownCore: 1000, sharedCore: 50", to: "ownCore: 1, sharedCore: 0" },
  { file: `${PROTOCOL}/commands.ts`, from: "RING_WORDS = 1 << 17", to: "RING_WORDS = 16" },
  { file: "src/engines/collectives/collectiveWork.ts", from: "TILE = 16 * 1024", to: "TILE = 64" },
  { file: "src/engines/flight/recorder.ts", from: "FLIGHT_RECORDS = 2048", to: "FLIGHT_RECORDS = 4" },
  { file: "src/engines/workers/workerPool.ts", from: "MAX_BEHIND = 256", to: "MAX_BEHIND = 3" },
  { file: "src/engines/devices/scratch.ts", from: "aligned(ADDRESS_UNIT, GEMM_SCRATCH_BYTES)", to: "64" },
  {
    file: "src/engines/memory/memoryLayout.ts",
    from: "new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })",
    to: "({ buffer: new SharedArrayBuffer(Math.ceil(bytes / 8) * 8) }) as WebAssembly.Memory",
  },
];
