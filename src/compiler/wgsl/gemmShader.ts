import { at, range } from "../../ir/shape.js";
import type { GemmStep } from "../steps.js";
import { Arguments, shaderCode } from "./memory.js";
import { WgslWriter } from "./registers.js";

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

/** The tile that suits a product. */
export function chooseTile({ m, n }: GemmShape): GemmTile {
  if (m < 32 || n < 32) return { m: 16, n: 16, k: 16, threadM: 1, threadN: 1 };
  return { m: 64, n: 64, k: 16, threadM: 4, threadN: 4 };
}

/** The number of batches of a product. */
export function batchCount({ batch }: GemmShape): number {
  return batch.reduce((count, dim) => count * dim.count, 1);
}

/**
 * Writes a product as a shader: a workgroup holds a strip of both operands in shared memory, and each of its threads a
 * block of results in registers.
 *
 * @param slabs the slabs of A, B and C
 */
export function gemmShader(shape: GemmShape, slabs: readonly number[], tile = chooseTile(shape)): GemmShader {
  return new GemmWriter(shape, slabs, tile).write();
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
    this.batches();
    w.line(`let row = workgroup_id.y * ${tile.m}u;`);
    w.line(`let column = workgroup_id.x * ${tile.n}u;`);
    w.line(`let x = local_invocation_index % ${this.across}u;`);
    w.line(`let y = local_invocation_index / ${this.across}u;`);
    this.eachSum((name) => w.line(`var ${name} = ${this.vector("0.0")};`));
    w.block(`for (var k = 0u; k < ${shape.k}u; k += ${tile.k}u)`, () => {
      this.fill("a", tile.m, shape.m, shape.transposeA, shape.lda);
      this.fill("b", tile.n, shape.n, !shape.transposeB, shape.ldb);
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
    const head = [args.declarations(), ...shared].join("\n");
    return {
      code: shaderCode(head, w, this.threads, BUILTINS),
      workgroups: [Math.ceil(shape.n / tile.n), Math.ceil(shape.m / tile.m), batchCount(shape)],
    };
  }

  /** Where the operands and the result of this batch begin, in words. */
  private batches(): void {
    const { w } = this;
    const terms: Record<"A" | "B" | "C", string[]> = { A: [], B: [], C: [] };
    let after = batchCount(this.shape);
    this.shape.batch.forEach((dim, i) => {
      after /= dim.count;
      w.line(`let batch${i} = (workgroup_id.z / ${after}u) % ${dim.count}u;`);
      for (const operand of ["A", "B", "C"] as const) {
        const stride = dim[`stride${operand}`];
        if (stride !== 0) terms[operand].push(` + batch${i} * ${(stride / 4) >>> 0}u`);
      }
    });
    w.line(`let start_a = a0${terms.A.join("")};`);
    w.line(`let start_b = a1${terms.B.join("")};`);
    w.line(`let start_c = a2${terms.C.join("")};`);
  }

  /**
   * Copies a strip of an operand to shared memory, where the elements of a row or column that threads need together lie
   * side by side.
   *
   * @param along whether elements of the result's dim, not those that are added, are neighbours in memory
   */
  private fill(name: "a" | "b", size: number, limit: number, along: boolean, leading: number): void {
    const { w, tile } = this;
    const [slab, start] = name === "a" ? [at(this.slabs, 0), "row"] : [at(this.slabs, 1), "column"];
    const isWhole = limit % size === 0 && this.shape.k % tile.k === 0;
    const count = (size * tile.k) / this.threads;
    for (const i of range(Math.ceil(count))) {
      const number = w.let(`local_invocation_index + ${i * this.threads}u`);
      const [inner, outer] = [
        w.let(`${number} % ${along ? size : tile.k}u`),
        w.let(`${number} / ${along ? size : tile.k}u`),
      ];
      const [place, depth] = along ? [inner, outer] : [outer, inner];
      const index = along
        ? `(k + ${depth}) * ${leading}u + ${start} + ${place}`
        : `(${start} + ${place}) * ${leading}u + k + ${depth}`;
      const read = `bitcast<f32>(slab${slab}[start_${name} + ${index}])`;
      const guarded = w.name();
      w.line(`var ${guarded} = 0.0;`);
      const bounds = [
        ...(isWhole ? [] : [`${start} + ${place} < ${limit}u`, `k + ${depth} < ${this.shape.k}u`]),
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
    const { w, tile, width } = this;
    const { m, n, ldc, alpha, beta } = this.shape;
    const slab = at(this.slabs, 2);
    this.eachSum((name, i, j) => {
      w.block("", () => {
        w.line(`let r = row + y * ${tile.threadM}u + ${i}u;`);
        for (const c of range(width)) {
          const column = w.let(`column + x * ${tile.threadN}u + ${j * width + c}u`);
          const value = `${width === 4 ? `${name}[${c}]` : name}${alpha === 1 ? "" : ` * bitcast<f32>(${bitsOf(alpha)})`}`;
          w.block(`if (r < ${m}u && ${column} < ${n}u)`, () => {
            const index = w.let(`start_c + r * ${ldc}u + ${column}`);
            const old =
              beta === 0
                ? ""
                : ` + bitcast<f32>(slab${slab}[${index}])${beta === 1 ? "" : ` * bitcast<f32>(${bitsOf(beta)})`}`;
            w.line(`slab${slab}[${index}] = bitcast<u32>(${value}${old});`);
          });
        }
      });
    });
  }
}

function bitsOf(value: number): string {
  return `0x${(new Uint32Array(Float32Array.of(value).buffer)[0] ?? 0).toString(16)}u`;
}
