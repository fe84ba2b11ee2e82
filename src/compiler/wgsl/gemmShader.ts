import { at, range } from "../../ir/shape.js";
import type { GemmStep } from "../steps.js";
import { float32Bits } from "../wasm/vectorProgram.js";
import { Arguments, param, shaderCode, WORDS_PER_ARG } from "./memory.js";
import { hex, WgslWriter } from "./registers.js";

/** The part of a product that a workgroup computes, and each of its threads. */
export interface GemmTile {
  /** Rows and columns of a workgroup, and how many products it adds at a time. */
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** Rows and columns of a thread; multiples of 4, or 1. */
  readonly threadM: number;
  readonly threadN: number;
}

/** A product without its places. */
export type GemmShape = Omit<GemmStep, "op" | "a" | "b" | "c" | "info">;

/** A matrix product as a shader; its workgroups have three dims: columns, rows, batches. */
export interface GemmShader {
  readonly code: string;
  readonly workgroups: readonly [number, number, number];
}

/** The tile that suits a product; none where each thread computes one element by itself. */
export function chooseTile({ m, n }: GemmShape, isSoftware: boolean): GemmTile | undefined {
  // Shared memory gains nothing on a CPU, and shaders with barriers take its compiler seconds.
  if (isSoftware) return undefined;
  if (m < 32 || n < 32) return { m: 16, n: 16, k: 16, threadM: 1, threadN: 1 };
  return { m: 64, n: 64, k: 16, threadM: 4, threadN: 4 };
}

/** The number of batches of a product. */
export function batchCount({ batch }: GemmShape): number {
  return batch.reduce((count, dim) => count * dim.count, 1);
}

/** The words of a product's parameters after those of its places: products of other sizes share a shader. */
export function gemmParams({ m, n, k, lda, ldb, ldc, batch }: GemmShape): number[] {
  const dims = batch.flatMap(({ count, strideA, strideB, strideC }) => [
    ...[count, strideA / 4, strideB / 4, strideC / 4],
  ]);
  return [m, n, k, lda, ldb, ldc, ...dims];
}

const FIRST_PARAM = 3 * WORDS_PER_ARG;
const SIZES = ["m", "n", "k", "lda", "ldb", "ldc"] as const;

/**
 * Writes a product as a shader: a workgroup holds a strip of both operands in shared memory, and each of its threads a
 * block of results in registers.
 *
 * @param slabs the slabs of A, B and C
 */
export function gemmShader(
  shape: GemmShape,
  slabs: readonly number[],
  tile: GemmTile | undefined,
): GemmShader {
  return tile ? new GemmWriter(shape, slabs, tile).write() : plainShader(shape, slabs);
}

/** Reads sizes and, for each operand, where this batch begins in words. */
function begin(w: WgslWriter, { batch }: GemmShape): void {
  SIZES.forEach((name, i) => {
    w.line(`let ${name} = ${param(FIRST_PARAM + i)};`);
  });
  for (const [i, name] of ["a", "b", "c"].entries()) w.line(`var start_${name} = a${i};`);
  w.line("var rest = workgroup_id.z;");
  for (const i of range(batch.length).reverse()) {
    const first = FIRST_PARAM + SIZES.length + 4 * i;
    const index = w.let(`rest % ${param(first)}`);
    for (const [o, name] of ["a", "b", "c"].entries())
      w.line(`start_${name} += ${index} * ${param(first + 1 + o)};`);
    w.line(`rest = rest / ${param(first)};`);
  }
}

function numParams({ batch }: GemmShape): number {
  return SIZES.length + 4 * batch.length;
}

/** A product in which every thread reads a row and a column. */
function plainShader(shape: GemmShape, slabs: readonly number[]): GemmShader {
  const w = new WgslWriter();
  const args = new Arguments(["float32", "float32", "float32"], slabs, [2]);
  args.open(w);
  begin(w, shape);
  w.line("let column = workgroup_id.x * 64u + local_invocation_index;");
  w.line("if (column >= n) { return; }");
  const [slabA, slabB, slabC] = slabs;
  const left = shape.transposeA ? "d * lda + r" : "r * lda + d";
  const right = shape.transposeB ? "column * ldb + d" : "d * ldb + column";
  const rows = Math.min(shape.m, 65_535);
  w.block(`for (var r = workgroup_id.y; r < m; r += ${rows}u)`, () => {
    w.line("var sum = 0.0;");
    w.block("for (var d = 0u; d < k; d++)", () => {
      w.line(
        `sum += bitcast<f32>(slab${slabA}[start_a + ${left}]) * bitcast<f32>(slab${slabB}[start_b + ${right}]);`,
      );
    });
    w.line("let index = start_c + r * ldc + column;");
    w.line(`slab${slabC}[index] = bitcast<u32>(${scaled(shape, "sum", `slab${slabC}[index]`)});`);
  });
  return {
    code: shaderCode(args.declarations(numParams(shape)), w, 64, BUILTINS),
    workgroups: [Math.ceil(shape.n / 64), rows, batchCount(shape)],
  };
}

/** A sum times alpha, plus beta times what was there. */
function scaled({ alpha, beta }: GemmShape, sum: string, old: string): string {
  const value = alpha === 1 ? sum : `${sum} * bitcast<f32>(${hex(float32Bits(alpha))})`;
  if (beta === 0) return value;
  const before = `bitcast<f32>(${old})`;
  return `${value} + ${beta === 1 ? before : `${before} * bitcast<f32>(${hex(float32Bits(beta))})`}`;
}

const BUILTINS = ["workgroup_id", "local_invocation_index"];

class GemmWriter {
  private readonly w = new WgslWriter();
  private readonly threads: number;
  private readonly across: number;
  /** Width of the vectors that a thread reads from shared memory. */
  private readonly width: 1 | 4;

  constructor(
    private readonly shape: GemmShape,
    private readonly slabs: readonly number[],
    private readonly tile: GemmTile,
  ) {
    this.across = tile.n / tile.threadN;
    this.threads = (tile.m / tile.threadM) * this.across;
    this.width = tile.threadM % 4 === 0 && tile.threadN % 4 === 0 ? 4 : 1;
  }

  write(): GemmShader {
    const { w, tile, shape } = this;
    const args = new Arguments(["float32", "float32", "float32"], this.slabs, [2]);
    args.open(w);
    begin(w, shape);
    w.line(`let row = workgroup_id.y * ${tile.m}u;`);
    w.line(`let column = workgroup_id.x * ${tile.n}u;`);
    w.line(`let x = local_invocation_index % ${this.across}u;`);
    w.line(`let y = local_invocation_index / ${this.across}u;`);
    this.eachSum((name) => w.line(`var ${name} = ${this.vector("0.0")};`));
    w.block(`for (var first = 0u; first < k; first += ${tile.k}u)`, () => {
      this.fill("a", tile.m, shape.m, shape.transposeA);
      this.fill("b", tile.n, shape.n, !shape.transposeB);
      w.line("workgroupBarrier();");
      this.multiply();
      w.line("workgroupBarrier();");
    });
    this.finish();
    const element = this.width === 4 ? "vec4<f32>" : "f32";
    const shared = (["a", "b"] as const).map((name) => {
      const length = (tile.k * (name === "a" ? tile.m : tile.n)) / this.width;
      return `var<workgroup> tile_${name}: array<${element}, ${length}>;`;
    });
    const head = [args.declarations(numParams(shape)), ...shared].join("\n");
    return {
      code: shaderCode(head, w, this.threads, BUILTINS),
      workgroups: [Math.ceil(shape.n / tile.n), Math.ceil(shape.m / tile.m), batchCount(shape)],
    };
  }

  /**
   * Copies a strip of an operand to shared memory, where the elements of a row or column that threads need together lie
   * side by side.
   *
   * @param along whether elements of the result's dim, not those that are added, are neighbours in memory
   */
  private fill(name: "a" | "b", size: number, extent: number, along: boolean): void {
    const { w, tile } = this;
    const [slab, start, limit] =
      name === "a" ? [at(this.slabs, 0), "row", "m"] : [at(this.slabs, 1), "column", "n"];
    const isWhole = extent % size === 0 && this.shape.k % tile.k === 0;
    const width = along ? size : tile.k;
    const count = (size * tile.k) / this.threads;
    for (const i of range(Math.ceil(count))) {
      const number = w.let(`local_invocation_index + ${i * this.threads}u`);
      const [inner, outer] = [w.let(`${number} % ${width}u`), w.let(`${number} / ${width}u`)];
      const [place, depth] = along ? [inner, outer] : [outer, inner];
      const index = along
        ? `(first + ${depth}) * ld${name} + ${start} + ${place}`
        : `(${start} + ${place}) * ld${name} + first + ${depth}`;
      const read = `bitcast<f32>(slab${slab}[start_${name} + ${index}])`;
      const guarded = w.name();
      w.line(`var ${guarded} = 0.0;`);
      const bounds = [
        ...(isWhole ? [] : [`${start} + ${place} < ${limit}`, `first + ${depth} < k`]),
        ...(count % 1 === 0 ? [] : [`${number} < ${size * tile.k}u`]),
      ];
      if (bounds.length === 0) w.line(`${guarded} = ${read};`);
      else w.line(`if (${bounds.join(" && ")}) { ${guarded} = ${read}; }`);
      const target =
        this.width === 4
          ? `tile_${name}[${depth} * ${size / 4}u + ${place} / 4u][${place} % 4u]`
          : `tile_${name}[${depth} * ${size}u + ${place}]`;
      if (count % 1 === 0) w.line(`${target} = ${guarded};`);
      else w.line(`if (${number} < ${size * tile.k}u) { ${target} = ${guarded}; }`);
    }
  }

  private multiply(): void {
    const { w, tile, width } = this;
    const [rows, columns] = [tile.threadM / width, tile.threadN / width];
    w.block(`for (var d = 0u; d < ${tile.k}u; d++)`, () => {
      for (const i of range(rows))
        w.line(`let a_${i} = tile_a[d * ${tile.m / width}u + y * ${rows}u + ${i}u];`);
      for (const j of range(columns))
        w.line(`let b_${j} = tile_b[d * ${tile.n / width}u + x * ${columns}u + ${j}u];`);
      this.eachSum((name, i, j) => {
        const factor = width === 4 ? `a_${Math.floor(i / 4)}[${i % 4}]` : `a_${i}`;
        w.line(`${name} = fma(${this.vector(factor)}, b_${j}, ${name});`);
      });
    });
  }

  /** Calls with the name of every vector of sums, its row, and the number of its columns' vector. */
  private eachSum(visit: (name: string, row: number, column: number) => void): void {
    for (const i of range(this.tile.threadM)) {
      for (const j of range(this.tile.threadN / this.width)) visit(`sum_${i}_${j}`, i, j);
    }
  }

  private vector(value: string): string {
    return this.width === 4 ? `vec4<f32>(${value})` : value;
  }

  private finish(): void {
    const { w, tile, width, shape } = this;
    const slab = at(this.slabs, 2);
    const isWhole = shape.m % tile.m === 0 && shape.n % tile.n === 0;
    this.eachSum((name, i, j) => {
      w.block("", () => {
        w.line(`let r = row + y * ${tile.threadM}u + ${i}u;`);
        for (const c of range(width)) {
          const column = w.let(`column + x * ${tile.threadN}u + ${j * width + c}u`);
          const index = w.let(`start_c + r * ldc + ${column}`);
          const value = scaled(shape, width === 4 ? `${name}[${c}]` : name, `slab${slab}[${index}]`);
          const store = `slab${slab}[${index}] = bitcast<u32>(${value});`;
          w.line(isWhole ? store : `if (r < m && ${column} < n) { ${store} }`);
        }
      });
    });
  }
}
