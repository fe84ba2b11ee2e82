import { byteSize } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { range } from "../../ir/shape.js";
import type { LoopPlan } from "../kernel/loopPlan.js";
import { float32Bits } from "../wasm/vectorProgram.js";
import { EpilogueWriter } from "./epilogueWriter.js";
import {
  batchCount,
  type GemmShape,
  padding,
  type ShaderTile,
  vectorWidth,
  workgroupsOf,
} from "./gemmTile.js";
import type { KernelSetting } from "./kernelWriter.js";
import { hex, WgslWriter } from "./registers.js";
import { type GridShader, gridShader, param, ShaderArguments, WORDS_PER_ARG } from "./shaderMemory.js";
import type { ShaderSlabs } from "./shaderSlabs.js";

/** A matrix product as a shader; its workgroups have three dims: columns, rows, batches. */
export interface GemmShader extends GridShader {}

/**
 * Whether a product can be read and written in vectors of 16 bytes, if its operands begin at multiples of these.
 */
export function isInVectors(shape: GemmShape): boolean {
  const { dtype, m, n, k, lda, ldb, ldc, transposeA, transposeB, batch } = shape;
  const factors = [transposeA ? m : k, transposeB ? k : n, lda, ldb].map((count) => count * byteSize(dtype));
  const results = [4 * n, 4 * ldc];
  const strides = batch.flatMap(({ strideA, strideB, strideC }) => [strideA, strideB, strideC]);
  return [...factors, ...results, ...strides].every((bytes) => bytes % 16 === 0);
}

/** The words of a product's parameters after those of its places: products of other sizes share a shader. */
export function gemmParams({ dtype, m, n, k, lda, ldb, ldc, batch }: GemmShape): number[] {
  const size = byteSize(dtype);
  const dims = batch.flatMap(({ count, strideA, strideB, strideC }) => [
    ...[count, strideA / size, strideB / size, strideC / 4],
  ]);
  return [m, n, k, lda, ldb, ldc, ...dims];
}

const SIZES = ["m", "n", "k", "lda", "ldb", "ldc"] as const;

/** What a product is followed by. */
export interface Epilogue {
  readonly plan: LoopPlan;
  readonly setting: KernelSetting;
  /** Whether the product itself is written as well. */
  readonly keepsProduct: boolean;
}

/**
 * Writes a product as a shader: a workgroup holds a strip of both operands in shared memory, and each of its threads a
 * block of results in registers.
 *
 * @param slabs the slabs of A, B and C, then of the other arguments of an epilogue
 * @param inVectors whether memory is read and written four elements at a time; see {@link isInVectors}
 */
export function gemmShader(
  shape: GemmShape,
  slabs: ShaderSlabs,
  tile: ShaderTile | undefined,
  inVectors: boolean,
  epilogue?: Epilogue,
): GemmShader {
  if (tile) return new GemmWriter(shape, slabs, tile, inVectors, epilogue).write();
  if (epilogue) throw new InternalError("[wgsl] products of software adapters have no epilogues");
  return plainShader(shape, slabs);
}

/** Reads sizes and, for each operand, at which element this batch begins. */
export function begin(w: WgslWriter, { dtype, batch }: GemmShape, numArgs = 3): void {
  const firstParam = numArgs * WORDS_PER_ARG;
  SIZES.forEach((name, i) => {
    w.line(`let ${name} = ${param(firstParam + i)};`);
  });
  // Addresses of narrow types are in bytes.
  const isNarrow = (i: number) => i < 2 && byteSize(dtype) === 2;
  for (const [i, name] of ["a", "b", "c"].entries())
    w.line(`var start_${name} = a${i}${isNarrow(i) ? " >> 1u" : ""};`);
  w.line("var rest = workgroup_id.z;");
  for (const i of range(batch.length).reverse()) {
    const first = firstParam + SIZES.length + 4 * i;
    const index = w.let(`rest % ${param(first)}`);
    for (const [o, name] of ["a", "b", "c"].entries())
      w.line(`start_${name} += ${index} * ${param(first + 1 + o)};`);
    w.line(`rest = rest / ${param(first)};`);
  }
}

export function numParams({ batch }: GemmShape): number {
  return SIZES.length + 4 * batch.length;
}

/** Rows and columns of a thread that shares nothing with others: each element that it reads is used as many times. */
const BLOCK = 4;

/** A product in which every thread computes a block of results by itself. */
function plainShader(shape: GemmShape, slabs: ShaderSlabs): GemmShader {
  const w = new WgslWriter();
  const args = new ShaderArguments(["float32", "float32", "float32"], slabs, [2]);
  args.open(w);
  begin(w, shape);
  const [a, b, c] = [0, 1, 2];
  const element = (arg: number, index: string) => `bitcast<f32>(${slabs.read(arg, index)})`;
  w.line("let block = workgroup_id.x * 64u + local_invocation_index;");
  w.line(`let across = (n + ${BLOCK - 1}u) / ${BLOCK}u;`);
  w.line(`let row = (block / across) * ${BLOCK}u;`);
  w.line(`let column = (block % across) * ${BLOCK}u;`);
  w.line("if (row >= m) { return; }");
  // Blocks at the edges read their last row or column several times.
  const rows = range(BLOCK).map((i) => w.let(`min(row + ${i}u, m - 1u)`));
  const columns = range(BLOCK).map((j) => w.let(`min(column + ${j}u, n - 1u)`));
  const firstA = rows.map((r) => w.let(`start_a + ${shape.transposeA ? r : `${r} * lda`}`));
  const firstB = columns.map((c) => w.let(`start_b + ${shape.transposeB ? `${c} * ldb` : c}`));
  const sums = rows.map((_, i) => columns.map((_, j) => `sum_${i}_${j}`));
  for (const sum of sums.flat()) w.line(`var ${sum} = 0.0;`);
  w.block("for (var d = 0u; d < k; d++)", () => {
    const left = firstA.map((first) => w.let(element(a, `${first} + ${shape.transposeA ? "d * lda" : "d"}`)));
    const right = firstB.map((first) =>
      w.let(element(b, `${first} + ${shape.transposeB ? "d" : "d * ldb"}`)),
    );
    sums.forEach((row, i) => {
      row.forEach((sum, j) => {
        w.line(`${sum} += ${left[i]} * ${right[j]};`);
      });
    });
  });
  sums.forEach((row, i) => {
    row.forEach((sum, j) => {
      w.block(`if (row + ${i}u < m && column + ${j}u < n)`, () => {
        const index = w.let(`start_c + (row + ${i}u) * ldc + column + ${j}u`);
        w.line(slabs.write(c, index, `bitcast<u32>(${scaled(shape, sum, element(c, index))})`));
      });
    });
  });
  const groups = Math.ceil((Math.ceil(shape.m / BLOCK) * Math.ceil(shape.n / BLOCK)) / 64);
  const head = args.declarations(numParams(shape));
  return gridShader(head, w, 64, BUILTINS, [groups, 1, batchCount(shape)]);
}

/** A sum times alpha, plus beta times what was there. */
export function scaled({ alpha, beta }: GemmShape, sum: string, old: string): string {
  const value = alpha === 1 ? sum : `${sum} * bitcast<f32>(${hex(float32Bits(alpha))})`;
  if (beta === 0) return value;
  return `${value} + ${beta === 1 ? old : `${old} * bitcast<f32>(${hex(float32Bits(beta))})`}`;
}

const BUILTINS = ["local_invocation_index"];

/** An element or a vector that a thread copies from memory to a register, and from there to shared memory. */
interface Transfer {
  /** Its register. */
  readonly name: string;
  /** The condition under which it exists, if it may not. */
  readonly guard: string | undefined;
  readonly read: string;
  readonly writes: readonly string[];
}

class GemmWriter {
  private readonly w = new WgslWriter();
  /** Threads of a slice. */
  private readonly threads: number;
  private readonly slices: number;
  private readonly strips: 1 | 2;
  private readonly across: number;
  private readonly down: number;
  private readonly width: 1 | 4;
  /** Elements of a transfer between memory and registers. */
  private readonly step: 1 | 4;
  private readonly epilogue: EpilogueWriter | undefined;
  private readonly keepsProduct: boolean;

  constructor(
    private readonly shape: GemmShape,
    private readonly slabs: ShaderSlabs,
    private readonly tile: ShaderTile,
    inVectors: boolean,
    epilogue: Epilogue | undefined,
  ) {
    this.across = tile.n / tile.threadN;
    this.down = tile.m / tile.threadM;
    this.threads = this.across * this.down;
    this.slices = tile.slices ?? 1;
    this.strips = tile.strips ?? 1;
    this.width = vectorWidth(tile);
    const canStep = inVectors && this.width === 4;
    if (epilogue) this.epilogue = new EpilogueWriter(epilogue.plan, slabs, epilogue.setting, canStep, this.w);
    this.keepsProduct = epilogue?.keepsProduct ?? true;
    this.step = canStep && (this.epilogue?.usesVectors ?? true) ? 4 : 1;
  }

  write(): GemmShader {
    const { w, tile, shape } = this;
    const args =
      this.epilogue?.shaderArguments ??
      new ShaderArguments(["float32", "float32", "float32"], this.slabs, [2], this.step === 4);
    args.open(w);
    begin(w, shape, this.slabs.numArguments);
    w.line(`let row = workgroup_id.y * ${tile.m}u;`);
    w.line(`let column = workgroup_id.x * ${tile.n}u;`);
    this.placeThread();
    this.eachSum((name) => w.line(`var ${name} = ${this.vector("0.0")};`));
    w.line(`var first = ${this.slices === 1 ? "0u" : `slice * ${tile.k}u`};`);
    w.line("var start = 0u;");
    if (this.strips === 2) for (const name of ["a", "b"]) w.line(`var place_${name} = 0u;`);
    const transfers = [
      ...this.transfers("a", tile.m, shape.m, shape.transposeA),
      ...this.transfers("b", tile.n, shape.n, !shape.transposeB),
    ];
    for (const { name } of transfers) w.line(`var ${name} = ${this.step === 4 ? "vec4<f32>(0.0)" : "0.0"};`);
    this.read(transfers);
    // The next strips are on their way to registers while these are multiplied.
    w.block("while (start < k)", () => {
      for (const { writes } of transfers) for (const line of writes) w.line(line);
      w.line("workgroupBarrier();");
      w.line(`start += ${this.slices * tile.k}u;`);
      w.line(`first += ${this.slices * tile.k}u;`);
      w.block("if (start < k)", () => this.read(transfers));
      this.multiply();
      if (this.strips === 1) w.line("workgroupBarrier();");
      else {
        w.line(`place_a = ${this.slices * this.stripLength(tile.m)}u - place_a;`);
        w.line(`place_b = ${this.slices * this.stripLength(tile.n)}u - place_b;`);
      }
    });
    if (this.slices === 1) this.finish();
    else {
      this.addSlices();
      w.block("if (slice == 0u)", () => this.finish());
    }
    const shared = [tile.m, tile.n].map((size, i) => {
      const length = this.strips * this.slices * this.stripLength(size);
      return `var<workgroup> tile_${"ab"[i]}: array<${this.width === 4 ? "vec4<f32>" : "f32"}, ${length}>;`;
    });
    const head = [args.declarations(numParams(shape)), ...shared].join("\n");
    return gridShader(head, w, this.slices * this.threads, BUILTINS, workgroupsOf(shape, tile));
  }

  /** Which block of the tile a thread computes: threads that run together read few different vectors. */
  private placeThread(): void {
    const { w } = this;
    const [wide, high] = [Math.min(8, this.across), Math.min(4, this.down)];
    const group = wide * high;
    const columns = this.across / wide;
    const isSliced = this.slices > 1;
    w.line(`let thread = local_invocation_index${isSliced ? ` % ${this.threads}u` : ""};`);
    if (isSliced) w.line(`let slice = local_invocation_index / ${this.threads}u;`);
    w.line(`let lane = thread % ${group}u;`);
    w.line(`let group = thread / ${group}u;`);
    w.line(`let x = (group % ${columns}u) * ${wide}u + lane % ${wide}u;`);
    w.line(`let y = (group / ${columns}u) * ${high}u + lane / ${wide}u;`);
  }

  /**
   * What each thread copies of a strip of an operand to shared memory, where the elements that threads need together lie
   * side by side.
   *
   * @param along whether elements of the result's dim, not those that are added, are neighbours in memory
   */
  private transfers(name: "a" | "b", size: number, extent: number, along: boolean): Transfer[] {
    const { w, tile, step } = this;
    const [arg, start, limit] = name === "a" ? [0, "row", "m"] : [1, "column", "n"];
    const isWhole = extent % size === 0 && this.shape.k % (this.slices * tile.k) === 0;
    const perRow = (along ? size : tile.k) / step;
    const total = (size * tile.k) / step;
    return range(Math.ceil(total / this.threads)).map((i) => {
      const number = w.let(`thread + ${i * this.threads}u`);
      const inner = w.let(`(${number} % ${perRow}u) * ${step}u`);
      const outer = w.let(`${number} / ${perRow}u`);
      const [place, depth] = along ? [inner, outer] : [outer, inner];
      const index = along
        ? `(first + ${depth}) * ld${name} + ${start} + ${place}`
        : `(${start} + ${place}) * ld${name} + first + ${depth}`;
      const isSurplus = (i + 1) * this.threads > total;
      const bounds = [
        ...(isWhole ? [] : [`${start} + ${place} < ${limit}`, `first + ${depth} < k`]),
        ...(isSurplus ? [`${number} < ${total}u`] : []),
      ];
      const register = `next_${name}_${i}`;
      const writes = this.sharedWrites(name, size, register, place, depth, along);
      return {
        name: register,
        guard: bounds.length > 0 ? bounds.join(" && ") : undefined,
        read: this.load(arg, `start_${name} + ${index}`),
        writes: isSurplus ? writes.map((line) => `if (${number} < ${total}u) { ${line} }`) : writes,
      };
    });
  }

  private read(transfers: readonly Transfer[]): void {
    for (const { name, guard, read } of transfers) {
      if (guard === undefined) this.w.line(`${name} = ${read};`);
      else {
        const zero = this.step === 4 ? "vec4<f32>(0.0)" : "0.0";
        this.w.line(`if (${guard}) { ${name} = ${read}; } else { ${name} = ${zero}; }`);
      }
    }
  }

  /** Assigns a register to elements of a strip. */
  private sharedWrites(
    name: "a" | "b",
    size: number,
    register: string,
    place: string,
    depth: string,
    along: boolean,
  ): string[] {
    const { step, width } = this;
    const row = (size + padding(this.tile)) / width;
    const vector = (at: string) => `tile_${name}[${this.own(name)}(${at}) * ${row}u + ${place} / ${width}u]`;
    if (step === 4 && along) return [`${vector(depth)} = ${register};`];
    const element = (at: string) => (width === 4 ? `${vector(at)}[${place} % 4u]` : vector(at));
    if (step === 1) return [`${element(depth)} = ${register};`];
    return range(4).map((i) => `${element(`${depth} + ${i}u`)} = ${register}[${i}];`);
  }

  private load(arg: number, index: string): string {
    return this.step === 4
      ? `bitcast<vec4<f32>>(${this.slabs.read(arg, `(${index}) >> 2u`)})`
      : `bitcast<f32>(${this.slabs.read(arg, index)})`;
  }

  /** Elements, or vectors, of a strip of an operand. */
  private stripLength(size: number): number {
    return (this.tile.k * (size + padding(this.tile))) / this.width;
  }

  /** Where the strip that a thread reads or writes begins in shared memory. */
  private own(name: "a" | "b"): string {
    const size = name === "a" ? this.tile.m : this.tile.n;
    const place = this.strips === 2 ? `place_${name} + ` : "";
    return place + (this.slices === 1 ? "" : `slice * ${this.stripLength(size)}u + `);
  }

  /** Adds the sums of the other slices to those of the first, through the memory of the strips. */
  private addSlices(): void {
    const { w, tile } = this;
    const own = (tile.threadM * tile.threadN) / this.width;
    const names: string[] = [];
    this.eachSum((name) => names.push(name));
    const room = Math.floor((this.strips * this.slices * this.stripLength(tile.m)) / this.threads);
    w.line("workgroupBarrier();");
    for (const slice of range(this.slices).slice(1)) {
      for (let from = 0; from < own; from += room) {
        const part = names.slice(from, from + room);
        w.block(`if (slice == ${slice}u)`, () => {
          part.forEach((name, i) => {
            w.line(`tile_a[${i * this.threads}u + thread] = ${name};`);
          });
        });
        w.line("workgroupBarrier();");
        w.block("if (slice == 0u)", () => {
          part.forEach((name, i) => {
            w.line(`${name} += tile_a[${i * this.threads}u + thread];`);
          });
        });
        w.line("workgroupBarrier();");
      }
    }
  }

  private multiply(): void {
    const { w, tile, width } = this;
    const [rowA, rowB] = [tile.m, tile.n].map((size) => (size + padding(tile)) / width);
    for (const d of range(tile.k)) {
      w.block("", () => {
        for (const i of range(tile.threadM / width))
          w.line(`let a_${i} = tile_a[${this.own("a")}${d * (rowA ?? 0) + i * this.down}u + y];`);
        for (const j of range(tile.threadN / width))
          w.line(`let b_${j} = tile_b[${this.own("b")}${d * (rowB ?? 0) + j * this.across}u + x];`);
        this.eachSum((name, i, j) => {
          const factor = width === 4 ? `a_${Math.floor(i / 4)}[${i % 4}]` : `a_${i}`;
          w.line(`${name} = fma(${this.vector(factor)}, b_${j}, ${name});`);
        });
      });
    }
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
    const { w, tile, epilogue } = this;
    const sums: string[] = [];
    this.eachSum((name) => sums.push(name));
    if (epilogue === undefined || epilogue.isShort(tile.threadM * tile.threadN)) {
      this.eachSum((name, i, j) => {
        const row = `(y + ${Math.floor(i / this.width) * this.down}u) * ${this.width}u + ${i % this.width}u`;
        w.block("", () => this.result(name, row, `x + ${j * this.across}u`));
      });
      return;
    }
    const type = this.width === 4 ? "vec4<f32>" : "f32";
    w.line(`var sums = array<${type}, ${sums.length}>(${sums.join(", ")});`);
    w.block(`for (var part = 0u; part < ${sums.length}u; part++)`, () => {
      const perRow = tile.threadN / this.width;
      w.line(`let i = part / ${perRow}u;`);
      const row = `(y + i / ${this.width}u * ${this.down}u) * ${this.width}u + i % ${this.width}u`;
      this.result(w.fresh("sums[part]"), row, `x + part % ${perRow}u * ${this.across}u`);
    });
  }

  /** Writes a vector of sums, or what the epilogue makes of it. @param vector which one of the row */
  private result(sum: string, row: string, vector: string): void {
    const { w, tile, width, shape, epilogue } = this;
    const isWhole = shape.m % tile.m === 0 && shape.n % tile.n === 0;
    w.line(`let r = row + ${row};`);
    const first = w.fresh(`column + (${vector}) * ${width}u`);
    const each = (column: string, body: () => void) =>
      isWhole ? body() : w.block(`if (r < m && ${column} < n)`, body);
    const finished = (index: string, part: string, count: number) => {
      const value = w.fresh(scaled(shape, part, this.load(2, index)));
      if (this.keepsProduct) {
        const place = count === 4 ? `(${index}) >> 2u` : index;
        w.line(this.slabs.write(2, place, `bitcast<${count === 4 ? "vec4<u32>" : "u32"}>(${value})`));
      }
      const elements = count === 4 ? range(4).map((c) => w.fresh(`${value}[${c}]`)) : [value];
      epilogue?.points(w.fresh(`${index} - a2`), elements);
    };
    if (this.step === 4) {
      each(first, () => finished(w.fresh(`start_c + r * ldc + ${first}`), sum, 4));
      return;
    }
    for (const c of range(width)) {
      const column = w.fresh(`${first} + ${c}u`);
      each(column, () => {
        w.block("", () =>
          finished(w.fresh(`start_c + r * ldc + ${column}`), width === 4 ? `${sum}[${c}]` : sum, 1),
        );
      });
    }
  }
}
