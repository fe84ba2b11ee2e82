import { tileFor } from "../gemm/tile.js";
import type { WasmFeatures } from "../wasm/features.js";
import type { AttentionTile } from "./attentionKernel.js";

/** The tiles of machine code, by the width of its vectors, and of WebAssembly: as high as those of matrix products. */
export function attentionTile(features: WasmFeatures, vectorBits?: 256 | 512): AttentionTile {
  if (vectorBits === 512) return { lanes: 16, rows: 14, columns: 32 };
  if (vectorBits === 256) return { lanes: 8, rows: 6, columns: 16 };
  return { lanes: 4, rows: tileFor(features).heights[0], columns: 8 };
}
