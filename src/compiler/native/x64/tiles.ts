import { type Label, littleEndian32 } from "../code.js";
import type { X64 } from "./assembler.js";
import { type Mem, ripTo } from "./operands.js";

/** The rows of a tile, and the bytes of each. */
export interface TileShape {
  readonly rows: number;
  readonly bytes: number;
}

/** The tiles of a kernel, with the shape of each. */
export class Tiles {
  private readonly config: Label;

  constructor(
    protected readonly x: X64,
    protected readonly shapes: readonly TileShape[],
  ) {
    this.config = x.label();
  }

  /** Configures tiles. */
  configure(): void {
    this.x.ldtilecfg(ripTo(this.config));
  }

  /** Releases tiles. */
  release(): void {
    this.x.tilerelease();
  }

  /** Clears a tile. */
  clear(tile: number): void {
    this.x.tilezero(tile);
  }

  /** Loads a tile; the index of the memory operand is the distance between rows. */
  load(tile: number, from: Mem): void {
    this.x.tileloadd(tile, from);
  }

  /** Stores a tile. */
  store(to: Mem, tile: number): void {
    this.x.tilestored(to, tile);
  }

  /** sum += a · b. */
  sumProducts(sum: number, a: number, b: number): void {
    this.x.tdpbf16ps(sum, a, b);
  }

  /** Writes the shapes after the code. */
  placeShapes(): void {
    const bytes = new Uint8Array(64);
    bytes[0] = 1;
    this.shapes.forEach((shape, tile) => {
      bytes.set(littleEndian32(shape.bytes).slice(0, 2), 16 + 2 * tile);
      bytes[48 + tile] = shape.rows;
    });
    this.x.place(this.config).data(bytes);
  }
}
