import type { WasmFeatures } from "../wasm/features.js";

/** The shape of the block of C that a micro-kernel keeps in registers, two vectors wide. */
export interface GemmTile {
  /** Heights of the micro-kernels, falling to 1; the first is the one that does nearly all the work. */
  readonly heights: readonly [number, ...number[]];
  /**
   * How an element of A reaches all lanes: by its own load (`load`), or by loading four elements at once and repeating
   * their lanes (`lane`), which is better where every load pays for a bounds check.
   */
  readonly broadcast: "load" | "lane";
}

/** Columns of C that one panel of B covers: two vectors. */
export const PANEL_WIDTH = 8;

/** For 32 vector registers and checked loads (ARM). */
export const WIDE_TILE: GemmTile = { heights: [8, 4, 2, 1], broadcast: "lane" };

/** For 16 vector registers and loads whose bounds the hardware checks (x86-64). */
export const NARROW_TILE: GemmTile = { heights: [4, 2, 1], broadcast: "load" };

/** The same where no product has to be kept before it is added: V8 has 15 registers for the 12 sums, B and A. */
export const FUSED_TILE: GemmTile = { heights: [6, 4, 2, 1], broadcast: "load" };

/** All tiles. */
export const TILES = [WIDE_TILE, NARROW_TILE, FUSED_TILE] as const;

/** The tile for a processor. */
export function tileFor({ fma, fewRegisters = false }: WasmFeatures): GemmTile {
  if (!fewRegisters) return WIDE_TILE;
  return fma ? FUSED_TILE : NARROW_TILE;
}
