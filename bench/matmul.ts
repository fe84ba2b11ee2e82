/**
 * Square float32 products on one core: our machine code, every BLAS of the system, our WebAssembly; then through
 * `jit`. With `--dtype bfloat16`, products of bfloat16 compared with products of float32.
 */

import { devicePut, jit, Mesh, NamedSharding, np, P, random, type Tensor } from "shardwise";
import { createThreadsEngine } from "shardwise/engines";
import { GEMM_SCRATCH_BYTES } from "../src/compiler/gemm/blockedGemm.js";
import { buildGemmModule } from "../src/compiler/gemm/gemmModule.js";
import { tileFor } from "../src/compiler/gemm/tile.js";
import { createWasmGemm } from "../src/compiler/gemm/wasmGemm.js";
import { detectFeatures } from "../src/compiler/wasm/features.js";
import { allNativeGemmsHere } from "../src/engines/products/available.js";
import { findAllBlas } from "../src/engines/products/blas.js";
import { NativeGemm, targetsOf } from "../src/engines/products/nativeGemm.js";
import { CodeMemory } from "../src/engines/system/codeMemory.js";
import { INSTRUCTION_SETS, type ProductSets } from "../src/engines/system/instructionSets.js";
import { nativeAddress, releaseNativeAddress } from "../src/engines/system/nativeAddress.js";
import { compileWasmModule, enableRelaxedSimd } from "../src/engines/system/v8Flags.js";
import { best, type Report, type Row } from "./measure.js";
import { listOption } from "./options.js";

const SIZES = [64, 128, 256, 512, 1024, 2048];
const LAYOUTS = [
  { name: "NN", transposeA: false, transposeB: false },
  { name: "NT", transposeA: false, transposeB: true },
  { name: "TN", transposeA: true, transposeB: false },
];

/** Runs the benchmark. */
export async function matmul(): Promise<Report> {
  const [dtype] = listOption("dtype", ["float32"], ["float32", "bfloat16"]);
  if (dtype === "bfloat16") {
    const products = productRows((memory) => ({
      ...nativeMultipliers(memory, bestFloats()),
      ...nativeMultipliers(memory, bfloat16Multipliers()),
    }));
    return {
      "bfloat16 products on one core beside float32, GFLOP/s": products,
      "bfloat16 products through jit (one device)": await jitRows("bfloat16"),
    };
  }
  const products = productRows((memory) => ({
    ...nativeMultipliers(memory, floatMultipliers()),
    ...blasMultipliers(memory),
    ...wasmMultiplier(memory),
  }));
  return {
    "float32 products on one core, GFLOP/s": products,
    "how many times as fast our machine code is as others": comparisons(products),
    "products through jit (one device)": await jitRows("float32"),
  };
}

const geometricMean = (values: readonly number[]): number =>
  Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);

/** The fastest of our instruction sets compared with all others: the geometric mean over all sizes, and the minimum. */
function comparisons(rows: readonly Row[]): Row[] {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))]
    .filter((column) => column !== "n")
    .map((column) => column.replace(/ \S+$/, ""));
  const isOurs = (name: string) => INSTRUCTION_SETS.some((set) => set === name);
  const ours = names.filter(isOurs);
  if (ours.length === 0) return [];
  const ratios = (name: string, layout: string) =>
    rows.map((row) => {
      const fastest = Math.max(...ours.map((set) => Number(row[`${set} ${layout}`])));
      return fastest / Number(row[`${name} ${layout}`]);
    });
  return [...new Set(names)]
    .filter((name) => !isOurs(name))
    .map((beside) => {
      const ofLayouts = LAYOUTS.map(({ name }) => [name, ratios(beside, name)] as const);
      const all = ofLayouts.flatMap(([, values]) => values);
      return {
        beside,
        ...Object.fromEntries(ofLayouts.map(([name, values]) => [name, geometricMean(values)])),
        "geometric mean": geometricMean(all),
        least: Math.min(...all),
      };
    });
}

type Layout = (typeof LAYOUTS)[number];

/** Makes a product of n × n matrices that lie one after the other, from `data` on. */
type Preparer = (layout: Layout, n: number, data: number) => () => void;

/** Implementations of products by name. */
type Multipliers = Readonly<Record<string, Preparer>>;

function productRows(make: (memory: WebAssembly.Memory) => Multipliers): Row[] {
  const memory = new WebAssembly.Memory({ initial: 1024, maximum: 1024, shared: true });
  const data = Math.ceil(GEMM_SCRATCH_BYTES / 4096) * 4096;
  // About a half as float32, and a half twice as a pair of bfloat16.
  new Uint32Array(memory.buffer, data).fill(0x3f003f00);
  const multipliers = make(memory);
  const rows: Row[] = [];
  for (const n of SIZES) {
    const row: Record<string, number> = { n };
    for (const layout of LAYOUTS) {
      const runs = Object.entries(multipliers).map(
        ([name, prepare]) => [`${name} ${layout.name}`, prepare(layout, n, data)] as const,
      );
      for (const [column, milliseconds] of inTurn(runs, n)) row[column] = (2 * n ** 3) / milliseconds / 1e6;
    }
    rows.push(row);
  }
  releaseNativeAddress(memory);
  return rows;
}

/** The shortest time of each, measured in turn so that other load on the machine affects all of them. */
function inTurn(runs: readonly (readonly [string, () => void])[], n: number): Map<string, number> {
  const repeats = Math.max(1, Math.round(2 ** 21 / n ** 3));
  const shortest = new Map<string, number>();
  for (const [, run] of runs) run();
  const end = performance.now() + (n > 1024 ? 4000 : 1000);
  for (let round = 0; round < 3 || performance.now() < end; round++) {
    for (const [name, run] of runs) {
      const start = performance.now();
      for (let i = 0; i < repeats; i++) run();
      const milliseconds = (performance.now() - start) / repeats;
      shortest.set(name, Math.min(shortest.get(name) ?? Number.POSITIVE_INFINITY, milliseconds));
    }
  }
  return shortest;
}

/** Machine code that multiplies one type of factors. */
interface NativeMultiplier {
  readonly name: string;
  readonly sets: ProductSets;
  readonly type: "float32" | "bfloat16";
}

function floatMultipliers(): NativeMultiplier[] {
  return allNativeGemmsHere().flatMap((sets) =>
    sets.bfloat16 === undefined ? [{ name: sets.set, sets, type: "float32" }] : [],
  );
}

function bestFloats(): NativeMultiplier[] {
  return floatMultipliers().slice(0, 1);
}

function bfloat16Multipliers(): NativeMultiplier[] {
  return allNativeGemmsHere().flatMap((sets) =>
    sets.bfloat16 === undefined ? [] : [{ name: sets.bfloat16, sets, type: "bfloat16" }],
  );
}

function nativeMultipliers(memory: WebAssembly.Memory, list: readonly NativeMultiplier[]): Multipliers {
  const code = CodeMemory.open();
  if (typeof code === "string") return {};
  const base = nativeAddress(memory);
  return Object.fromEntries(
    list.map(({ name, sets, type }) => {
      const gemm = new NativeGemm(code, targetsOf(sets));
      const prepare: Preparer = ({ transposeA, transposeB }, n, data) => {
        const shape = { transposeA, transposeB, m: n, n, k: n, lda: n, ldb: n, ldc: n };
        const product = gemm.prepare(type, { ...shape, alpha: 1, beta: 0 });
        const [a, b, c] = [base + data, base + data + n * n * 4, base + data + 2 * n * n * 4];
        return () => product(a, b, c);
      };
      return [name, prepare];
    }),
  );
}

function blasMultipliers(memory: WebAssembly.Memory): Multipliers {
  return Object.fromEntries(
    findAllBlas().map((blas) => {
      const base = nativeAddress(memory);
      blas.warmUp();
      const prepare: Preparer = ({ transposeA, transposeB }, n, data) => {
        const [a, b, c] = [base + data, base + data + n * n * 4, base + data + 2 * n * n * 4];
        return () => blas.sgemm(transposeA, transposeB, n, n, n, 1, a, n, b, n, 0, c, n);
      };
      return [blas.name, prepare];
    }),
  );
}

function wasmMultiplier(memory: WebAssembly.Memory): Multipliers {
  enableRelaxedSimd();
  const features = detectFeatures();
  const { sgemm } = createWasmGemm(
    compileWasmModule(buildGemmModule(features, tileFor(features))),
    memory,
    0,
  );
  const prepare: Preparer = ({ transposeA, transposeB }, n, data) => {
    const [a, b, c] = [data, data + n * n * 4, data + 2 * n * n * 4];
    return () => sgemm(transposeA, transposeB, n, n, n, 1, a, n, b, n, 0, c, n);
  };
  return { WASM: prepare };
}

async function jitRows(dtype: "float32" | "bfloat16"): Promise<Row[]> {
  const engine = createThreadsEngine({ numDevices: 1 });
  const mesh = Mesh.create({ x: 1 }, { engine });
  const rows: Row[] = [];
  for (const n of SIZES) {
    // Small products are repeated inside one run, each with the result of the one before.
    const repeats = Math.max(1, Math.round(2 ** 27 / n ** 3));
    const a = await devicePut(
      random
        .normal(random.key(0), [n, n])
        .mul(1 / Math.sqrt(n))
        .astype(dtype),
      new NamedSharding(mesh, P()),
    );
    const multiply = jit((x: Tensor) => {
      let y = x;
      for (let i = 0; i < repeats; i++) y = np.matmul(y, x);
      return y;
    });
    const milliseconds = await best(async () => (await multiply(a).ready()).dispose());
    rows.push({ n, [engine.info().gemm]: (2 * n ** 3 * repeats) / milliseconds / 1e6 });
  }
  await engine.close();
  return rows;
}
