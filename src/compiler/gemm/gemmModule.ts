import { at } from "../../ir/shape.js";
import type { AddressType } from "../wasm/addresses.js";
import { type FuncType, ModuleBuilder, sharedMemory } from "../wasm/assembler.js";
import type { WasmFeatures } from "../wasm/features.js";
import type { FunctionBody, FunctionIndex, Local } from "../wasm/functionBody.js";
import { DOUBLE_GEMM_SIGNATURE, writeDoubleGemm } from "./doubleGemm.js";
import { type ALayout, countDown, LAYOUTS, MICRO_KERNEL_SIGNATURE, writeMicroKernel } from "./microKernel.js";
import { PACK_SIGNATURE, sixParams, writeGather, writeInterleave } from "./packing.js";
import { type GemmTile, PANEL_WIDTH, TILES } from "./tile.js";

/** m, k, a, bytes from row to row of a, step of a, b, step of b, c, row step of c, alpha, beta. */
const PANEL_SIGNATURE: FuncType = {
  params: [...Array.from({ length: 9 }, () => "address" as const), "f32", "f32"],
  results: [],
};

/** rows, columns, source (rows of a panel's width), c, row step of c, beta. */
const BLEND_SIGNATURE: FuncType = {
  params: ["address", "address", "address", "address", "address", "f32"],
  results: [],
};

const TILE_SIGNATURE: FuncType = { params: [], results: ["i32"] };

/** The bytes of the module whose functions are {@link GemmFunctions}; it imports a shared memory as `env.memory`. */
export function buildGemmModule(
  features: WasmFeatures,
  tile: GemmTile,
  addressType: AddressType = "i32",
): Uint8Array<ArrayBuffer> {
  const builder = new ModuleBuilder();
  builder.importMemory(sharedMemory(addressType));
  builder.function(PACK_SIGNATURE, writeInterleave, "interleave");
  builder.function(PACK_SIGNATURE, writeGather, "gather");
  builder.function(BLEND_SIGNATURE, writeBlend, "blend");
  builder.function(DOUBLE_GEMM_SIGNATURE, writeDoubleGemm, "dgemm");
  builder.function(TILE_SIGNATURE, (code) => code.i32(TILES.indexOf(tile)), "tile");
  for (const layout of LAYOUTS) {
    const kernels = tile.heights.map((height): [number, FunctionIndex] => [
      height,
      builder.function(MICRO_KERNEL_SIGNATURE, (code) =>
        writeMicroKernel(code, height, layout, tile, features),
      ),
    ]);
    builder.function(PANEL_SIGNATURE, (code) => writePanel(code, layout, kernels), `${layout}Panel`);
  }
  return builder.toBytes();
}

/** Writes the function that multiplies m rows of A with one panel of B, in strips of falling height. */
function writePanel(
  code: FunctionBody,
  layout: ALayout,
  kernels: readonly (readonly [number, FunctionIndex])[],
): void {
  const param = (index: number): Local => code.param(index);
  const [m, k, a, aRow, aStep] = [param(0), param(1), param(2), param(3), param(4)];
  const [b, bStep, c, cStep, alpha, beta] = [param(5), param(6), param(7), param(8), param(9), param(10)];
  for (const [height, kernel] of kernels) {
    countDown(code, m, height, () => {
      code.get(k).get(a);
      // A step of 0 stands for packed strips, which are as wide as they are high.
      if (layout === "columns")
        code
          .address(height * 4)
          .get(aStep)
          .get(aStep)
          .op("address.eqz")
          .op("select");
      else code.get(aRow);
      code.get(b).get(bStep).get(c).get(cStep).get(alpha).get(beta).call(kernel);
      code.get(a).get(aRow).address(height).op("address.mul").op("address.add").set(a);
      code.get(c).get(cStep).address(height).op("address.mul").op("address.add").set(c);
    });
  }
}

/** Writes the function that moves the valid columns of a stripe to C: C = stripe + beta · C. */
function writeBlend(code: FunctionBody): void {
  const [rows, columns, source, c, cStep, beta] = sixParams(code);
  const [left, from, to] = [code.local("address"), code.local("address"), code.local("address")];
  const value = code.local("f32");
  countDown(code, rows, 1, () => {
    code.get(columns).set(left).get(source).set(from).get(c).set(to);
    countDown(code, left, 1, () => {
      code.get(from).memory("f32.load").set(value);
      code
        .get(beta)
        .f32(0)
        .op("f32.ne")
        .if(() => {
          code.get(to).memory("f32.load").get(beta).op("f32.mul").get(value).op("f32.add").set(value);
        });
      code.get(to).get(value).memory("f32.store");
      code.advance(from, 4).advance(to, 4);
    });
    code.advance(source, PANEL_WIDTH * 4);
    code.get(c).get(cStep).op("address.add").set(c);
  });
}

/** A function of the module: addresses, sizes and steps in bytes, as its signature says. */
type Export = (...args: number[]) => unknown;

/** What the module exports; `tile` gives the number of its tile, as whoever instantiates it may run in another thread. */
const EXPORTS = [
  "interleave",
  "gather",
  "blend",
  "packedPanel",
  "columnsPanel",
  "rowsPanel",
  "dgemm",
  "tile",
] as const;

type Exports = { readonly [K in (typeof EXPORTS)[number]]: Export };

/** The functions of an instance, and the tile that it was built for. */
export interface GemmFunctions extends Omit<Exports, "tile"> {
  readonly tile: GemmTile;
}

/** Instantiates the module of {@link buildGemmModule} on a memory. */
export function instantiateGemm(module: WebAssembly.Module, memory: WebAssembly.Memory): GemmFunctions {
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  const found = EXPORTS.map((name) => {
    if (typeof exports[name] !== "function")
      throw new TypeError(`[createWasmGemm] the module exports no ${name}`);
    return [name, exports[name]];
  });
  const functions = Object.fromEntries(found) as Exports;
  return { ...functions, tile: at(TILES, Number(functions.tile())) };
}
