import { gpr, low32, type Mem, mem, vec } from "../../src/compiler/native/x64/operands.js";
import { type TileShape, Tiles } from "../../src/compiler/native/x64/tiles.js";

const { rsp, rbp } = gpr;

const [TILE_BYTES, ROW_BYTES] = [1024, 64];
const [POINTER, MASK] = [rbp, 2];
/** Where the pointer is put aside, and where it begins. */
const [KEPT, START] = [mem(rsp, -16 * TILE_BYTES - 8), mem(rsp, -16 * TILE_BYTES - 16)];

/**
 * Tiles in memory below the stack pointer and their products in instructions that every processor with AVX-512 has,
 * so that kernels for AMX run there too.
 */
export class EmulatedTiles extends Tiles {
  override configure(): void {}

  override release(): void {}

  override placeShapes(): void {}

  override clear(tile: number): void {
    this.x.vpxor(vec(512, 0), vec(512, 0), vec(512, 0));
    for (let row = 0; row < 16; row++) this.x.vmovups(this.row(tile, row), vec(512, 0));
  }

  override load(tile: number, from: Mem): void {
    this.eachRow(tile, from, (row, place) => {
      this.x
        .vmovups(vec(512, 0), place, { mask: MASK, zero: true })
        .vmovups(this.row(tile, row), vec(512, 0));
    });
  }

  override store(to: Mem, tile: number): void {
    this.eachRow(tile, to, (row, place) => {
      this.x.vmovups(vec(512, 0), this.row(tile, row)).vmovups(place, vec(512, 0), { mask: MASK });
    });
  }

  override sumProducts(sum: number, a: number, b: number): void {
    const { x } = this;
    const { rows } = this.shape(sum);
    const [total, element, line, left, right] = [0, 1, 2, 3, 4].map((id) => vec(512, id));
    if (!total || !element || !line || !left || !right) throw new Error("five registers");
    for (let row = 0; row < rows; row++) {
      x.vmovups(total, this.row(sum, row));
      for (let pair = 0; pair < this.shape(b).rows; pair++) {
        x.vbroadcastss(element, this.row(a, row, 4 * pair)).vmovups(line, this.row(b, pair));
        for (const half of ["vpsrld", "vpslld"] as const) {
          x[half](left, element, 16)[half](right, line, 16);
          if (half === "vpsrld") x.vpslld(left, left, 16).vpslld(right, right, 16);
          x.vfmadd231ps(total, left, right);
        }
      }
      x.vmovups(this.row(sum, row), total);
    }
  }

  private eachRow(tile: number, place: Mem, visit: (row: number, at: Mem) => void): void {
    const { x } = this;
    const { rows, bytes } = this.shape(tile);
    if (place.kind !== "mem" || place.index === undefined) throw new Error("tiles have an index");
    x.mov(KEPT, POINTER).lea(POINTER, mem(place.base, place.disp)).mov(START, POINTER);
    x.mov(low32(POINTER), 2 ** (bytes / 4) - 1)
      .kmovw(MASK, low32(POINTER))
      .mov(POINTER, START);
    for (let row = 0; row < rows; row++) {
      visit(row, mem(POINTER));
      x.lea(POINTER, mem(POINTER, 0, place.index, place.scale));
    }
    x.mov(POINTER, KEPT);
  }

  private shape(tile: number): TileShape {
    const shape = this.shapes[tile];
    if (shape === undefined) throw new Error(`tile ${tile} has no shape`);
    return shape;
  }

  /** Beyond what signals may use for themselves. */
  private row(tile: number, row: number, byte = 0): Mem {
    return mem(rsp, -16 * TILE_BYTES + tile * TILE_BYTES + row * ROW_BYTES + byte);
  }
}
