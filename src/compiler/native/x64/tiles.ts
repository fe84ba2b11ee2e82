import { type Label, littleEndian32 } from "../code.js";
import { type Mem, memText, ripTo, vec } from "./operands.js";
import { X64Simd } from "./simd.js";

/** The instructions on tiles of AMX, numbered from 0 to 7. Places of tiles have an index: the bytes from row to row. */
export class X64Tiles extends X64Simd {
  /** Says how large each tile is. */
  ldtilecfg(from: Mem): this {
    return this.instruction(
      () => `ldtilecfg ${memText(from)}`,
      () => this.encode({ map: 2, pp: 0, opcode: 0x49, w: [0, 0] }, vec(128, 0), undefined, from),
    );
  }

  /** Says that tiles are not needed any more, so that the system need not keep them. */
  tilerelease(): this {
    return this.instruction(
      () => "tilerelease",
      () => this.encode({ map: 2, pp: 0, opcode: 0x49, w: [0, 0] }, vec(128, 0), undefined, vec(128, 0)),
    );
  }

  tilezero(tile: number): this {
    return this.instruction(
      () => `tilezero tmm${tile}`,
      () => this.encode({ map: 2, pp: 3, opcode: 0x49, w: [0, 0] }, vec(128, tile), undefined, vec(128, 0)),
    );
  }

  tileloadd(tile: number, from: Mem): this {
    return this.instruction(
      () => `tileloadd tmm${tile}, ${memText(from)}`,
      () => this.encode({ map: 2, pp: 3, opcode: 0x4b, w: [0, 0] }, vec(128, tile), undefined, from),
    );
  }

  tilestored(to: Mem, tile: number): this {
    return this.instruction(
      () => `tilestored ${memText(to)}, tmm${tile}`,
      () => this.encode({ map: 2, pp: 2, opcode: 0x4b, w: [0, 0] }, vec(128, tile), undefined, to),
    );
  }

  /** sum += a · b, where b holds pairs of rows. */
  tdpbf16ps(sum: number, a: number, b: number): this {
    return this.instruction(
      () => `tdpbf16ps tmm${sum}, tmm${a}, tmm${b}`,
      () => this.encode({ map: 2, pp: 2, opcode: 0x5c, w: [0, 0] }, vec(128, sum), vec(128, b), vec(128, a)),
    );
  }
}

/** How many rows a tile has, and how many bytes are in each. */
export interface TileShape {
  readonly rows: number;
  readonly bytes: number;
}

/** The tiles of a kernel, each of the shape that its number says. */
export class Tiles {
  private readonly config: Label;

  constructor(
    protected readonly x: X64Tiles,
    protected readonly shapes: readonly TileShape[],
  ) {
    this.config = x.label();
  }

  /** Begins to use tiles. */
  configure(): void {
    this.x.ldtilecfg(ripTo(this.config));
  }

  /** Ends the use of tiles. */
  release(): void {
    this.x.tilerelease();
  }

  /** Makes a tile zero. */
  clear(tile: number): void {
    this.x.tilezero(tile);
  }

  /** Loads a tile; the index of the place is what lies between its rows. */
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

  /** Writes the shapes behind the code. */
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
