import { range } from "../../ir/shape.js";
import { EpilogueWriter } from "./epilogueWriter.js";
import { begin, type Epilogue, type GemmShader, numParams, scaled } from "./gemmShader.js";
import { batchCount, type GemmShape } from "./gemmTile.js";
import {
  MATRIX_PADDING,
  type MatrixSetting,
  type MatrixTile,
  type MatrixUnit,
  subgroupsOf,
} from "./matrixTile.js";
import { WgslWriter } from "./registers.js";
import { gridShader, ShaderArguments } from "./shaderMemory.js";
import type { ShaderSlabs } from "./shaderSlabs.js";

const BUILTINS = ["local_invocation_index", "subgroup_id", "subgroup_invocation_id"];

/** Elements of float16 in 16 bytes. */
const WIDTH = 8;

/** A row of a strip, or a part of one, that a thread copies from memory to a register, and from there to shared memory. */
interface Transfer {
  readonly name: string;
  /** The condition under which it exists, if it may not. */
  readonly guard: string | undefined;
  readonly read: string;
  readonly write: string;
}

/**
 * Writes a product of float16 as a shader whose subgroups multiply matrices as a whole, as tensor cores do: strips of both
 * operands pass through shared memory as they lie, and sums are float32.
 *
 * @param slabs the slabs of A, B and C, then of the other arguments of an epilogue
 * @param inVectors whether memory is read and written 16 bytes at a time; see `isInVectors`
 */
export function matrixShader(
  shape: GemmShape,
  slabs: ShaderSlabs,
  tile: MatrixTile,
  setting: MatrixSetting,
  inVectors: boolean,
  epilogue?: Epilogue,
): GemmShader {
  return new MatrixWriter(shape, slabs, tile, setting, inVectors, epilogue).write();
}

class MatrixWriter {
  private readonly w = new WgslWriter();
  private readonly threads: number;
  /** Elements of a transfer, which are one element of shared memory. */
  private readonly step: 1 | 8;
  private readonly epilogue: EpilogueWriter | undefined;
  private readonly keepsProduct: boolean;
  private readonly unit: MatrixUnit;

  constructor(
    private readonly shape: GemmShape,
    private readonly slabs: ShaderSlabs,
    private readonly tile: MatrixTile,
    private readonly setting: MatrixSetting,
    inVectors: boolean,
    epilogue: Epilogue | undefined,
  ) {
    this.unit = setting.unit;
    this.threads = subgroupsOf(tile) * setting.subgroupSize;
    if (epilogue)
      this.epilogue = new EpilogueWriter(epilogue.plan, slabs, epilogue.setting, inVectors, this.w);
    this.keepsProduct = epilogue?.keepsProduct ?? true;
    this.step = inVectors && (this.epilogue?.usesVectors ?? true) ? WIDTH : 1;
  }

  write(): GemmShader {
    const { w, tile, shape } = this;
    const args =
      this.epilogue?.shaderArguments ??
      new ShaderArguments(["float16", "float16", "float32"], this.slabs, [2], this.step === WIDTH);
    args.open(w);
    begin(w, shape, this.slabs.numArguments);
    w.line(`let row = workgroup_id.y * ${tile.m}u;`);
    w.line(`let column = workgroup_id.x * ${tile.n}u;`);
    w.line("let thread = local_invocation_index;");
    const across = tile.n / tile.groupN;
    w.line(`let group_row = (subgroup_id / ${across}u) * ${tile.groupM}u;`);
    w.line(`let group_column = (subgroup_id % ${across}u) * ${tile.groupN}u;`);
    this.eachSum((name) => w.line(`var ${name} = ${this.matrix("result")}();`));
    w.line("var first = 0u;");
    if (tile.strips === 2) for (const name of ["a", "b"]) w.line(`var place_${name} = 0u;`);
    const isWide = this.step === WIDTH;
    const transfers = isWide
      ? [...this.transfers("a", tile.m, shape.m), ...this.transfers("b", tile.n, shape.n)]
      : [];
    for (const { name } of transfers) w.line(`var ${name} = vec4<u32>(0u);`);
    this.read(transfers);
    // The next strips are on their way to registers while these are multiplied.
    w.block("while (first < k)", () => {
      for (const { write } of transfers) w.line(write);
      if (!isWide) {
        this.copy("a", tile.m);
        this.copy("b", tile.n);
      }
      w.line("workgroupBarrier();");
      w.line(`first += ${tile.k}u;`);
      w.block("if (first < k)", () => this.read(transfers));
      this.multiply();
      if (tile.strips === 1) w.line("workgroupBarrier();");
      else {
        for (const name of ["a", "b"] as const)
          w.line(`place_${name} = ${this.stripLength(name)}u - place_${name};`);
      }
    });
    this.finish();
    const [columns, rows] = [Math.ceil(shape.n / tile.n), Math.ceil(shape.m / tile.m)];
    return gridShader(this.head(args), w, this.threads, BUILTINS, [columns, rows, batchCount(shape)]);
  }

  /** What stands before the main function. */
  private head(args: ShaderArguments): string {
    const { tile, shape } = this;
    const element = this.step === WIDTH ? "vec4<u32>" : "f16";
    const sums = subgroupsOf(tile) * this.unit.m * this.unit.n;
    return [
      "enable f16;",
      "enable subgroups;",
      "enable chromium_experimental_subgroup_matrix;",
      // Subgroups differ in the places that they read, which is all that differs.
      "diagnostic(off, chromium.subgroup_matrix_uniformity);",
      args.declarations(numParams(shape)),
      ...(["a", "b"] as const).map(
        (name) => `var<workgroup> tile_${name}: array<${element}, ${tile.strips * this.stripLength(name)}>;`,
      ),
      this.step === WIDTH
        ? `var<workgroup> sums: array<vec4<f32>, ${sums / 4}>;`
        : `var<workgroup> sums: array<f32, ${sums}>;`,
    ].join("\n");
  }

  /** The type of the matrices of a subgroup. */
  private matrix(side: "left" | "right" | "result"): string {
    const { m, n, k } = this.unit;
    if (side === "result") return `subgroup_matrix_result<f32, ${n}, ${m}>`;
    return side === "left"
      ? `subgroup_matrix_left<f16, ${k}, ${m}>`
      : `subgroup_matrix_right<f16, ${n}, ${k}>`;
  }

  /** Elements of shared memory of a strip's row, which lies as in memory. */
  private rowLength(name: "a" | "b"): number {
    const { tile } = this;
    const size = name === "a" ? tile.m : tile.n;
    return ((this.isAlong(name) ? size : tile.k) + MATRIX_PADDING) / this.step;
  }

  private stripLength(name: "a" | "b"): number {
    const { tile } = this;
    return (this.isAlong(name) ? tile.k : name === "a" ? tile.m : tile.n) * this.rowLength(name);
  }

  /** Whether elements of the result's dim, not those that are added, are neighbours in memory. */
  private isAlong(name: "a" | "b"): boolean {
    return name === "a" ? this.shape.transposeA : !this.shape.transposeB;
  }

  /** What each thread copies of a strip of an operand to shared memory. */
  private transfers(name: "a" | "b", size: number, extent: number): Transfer[] {
    const { w, tile } = this;
    const isWhole = extent % size === 0 && this.shape.k % tile.k === 0;
    const total = (size * tile.k) / WIDTH;
    return range(Math.ceil(total / this.threads)).map((i) => {
      const number = w.let(`thread + ${i * this.threads}u`);
      const { arg, index, bound, place } = this.element(name, size, number);
      const isSurplus = (i + 1) * this.threads > total;
      const bounds = [...(isWhole ? [] : [bound]), ...(isSurplus ? [`${number} < ${total}u`] : [])];
      const written = `${place} = next_${name}_${i};`;
      return {
        name: `next_${name}_${i}`,
        guard: bounds.length > 0 ? bounds.join(" && ") : undefined,
        read: this.slabs.read(arg, `(${index}) >> 3u`),
        write: isSurplus ? `if (${number} < ${total}u) { ${written} }` : written,
      };
    });
  }

  /** Copies a strip of an operand to shared memory, element by element. */
  private copy(name: "a" | "b", size: number): void {
    const { w, tile } = this;
    w.block(`for (var i = thread; i < ${size * tile.k}u; i += ${this.threads}u)`, () => {
      const { arg, index, bound, place } = this.element(name, size, "i");
      const at = w.fresh(index);
      const value = `bitcast<vec2<f16>>(${this.slabs.read(arg, `${at} >> 1u`)})[${at} & 1u]`;
      w.line(`if (${bound}) { ${place} = ${value}; } else { ${place} = f16(0.0); }`);
    });
  }

  /** Where an element of a strip, which has `step` of memory, is there and in shared memory. */
  private element(name: "a" | "b", size: number, number: string) {
    const { w, tile, step } = this;
    const along = this.isAlong(name);
    const perRow = (along ? size : tile.k) / step;
    const item = w.let(`${number} % ${perRow}u`);
    const inner = w.let(`${item} * ${step}u`);
    const outer = w.let(`${number} / ${perRow}u`);
    const [place, depth] = along ? [inner, outer] : [outer, inner];
    const [start, limit] = name === "a" ? ["row", "m"] : ["column", "n"];
    const strip = tile.strips === 2 ? `place_${name} + ` : "";
    return {
      arg: name === "a" ? 0 : 1,
      index: along
        ? `start_${name} + (first + ${depth}) * ld${name} + ${start} + ${place}`
        : `start_${name} + (${start} + ${place}) * ld${name} + first + ${depth}`,
      bound: `${start} + ${place} < ${limit} && first + ${depth} < k`,
      place: `tile_${name}[${strip}${outer} * ${this.rowLength(name)}u + ${item}]`,
    };
  }

  private read(transfers: readonly Transfer[]): void {
    for (const { name, guard, read } of transfers) {
      if (guard === undefined) this.w.line(`${name} = ${read};`);
      else this.w.line(`if (${guard}) { ${name} = ${read}; } else { ${name} = vec4<u32>(0u); }`);
    }
  }

  private multiply(): void {
    const { w, tile, unit } = this;
    for (const d of range(tile.k / unit.k)) {
      w.block("", () => {
        for (const i of range(tile.groupM / unit.m))
          w.line(`let a_${i} = ${this.part("a", "group_row", i * unit.m, d * unit.k)};`);
        for (const j of range(tile.groupN / unit.n))
          w.line(`let b_${j} = ${this.part("b", "group_column", j * unit.n, d * unit.k)};`);
        this.eachSum((name, i, j) =>
          w.line(`${name} = subgroupMatrixMultiplyAccumulate(a_${i}, b_${j}, ${name});`),
        );
      });
    }
  }

  /** A matrix of a strip. @param place of its first row or column of the result, `depth` of its first factor */
  private part(name: "a" | "b", group: string, place: number, depth: number): string {
    const along = this.isAlong(name);
    const row = this.rowLength(name);
    // Places are in elements of shared memory, and multiples of those.
    const elements = (count: number) => count / this.step;
    const start = along
      ? `${group}${this.step === WIDTH ? " / 8u" : ""} + ${depth * row + elements(place)}u`
      : `${group} * ${row}u + ${place * row + elements(depth)}u`;
    const strip = this.tile.strips === 2 ? `place_${name} + ` : "";
    const order = (name === "a") === along ? "col_major" : "row_major";
    const type = this.matrix(name === "a" ? "left" : "right");
    return `subgroupMatrixLoad<${type}, ${order}>(&tile_${name}, ${strip}${start}, ${row}u)`;
  }

  /** Calls with the name of every matrix of sums, and its row and column of matrices. */
  private eachSum(visit: (name: string, row: number, column: number) => void): void {
    const { tile, unit } = this;
    for (const i of range(tile.groupM / unit.m)) {
      for (const j of range(tile.groupN / unit.n)) visit(`sum_${i}_${j}`, i, j);
    }
  }

  /** Passes one matrix of sums after the other through shared memory, where threads find its elements. */
  private finish(): void {
    const { w, unit, tile, epilogue } = this;
    const width = this.step === WIDTH ? 4 : 1;
    const own = (unit.m * unit.n) / width;
    const store = (name: string) =>
      w.line(`subgroupMatrixStore<row_major>(&sums, subgroup_id * ${own}u, ${name}, ${unit.n / width}u);`);
    const results = (row: string, column: string) => {
      w.line("workgroupBarrier();");
      w.block(
        `for (var part = subgroup_invocation_id; part < ${own}u; part += ${this.setting.subgroupSize}u)`,
        () => {
          w.line(`let r = row + group_row + ${row} + part / ${unit.n / width}u;`);
          w.line(`let c = column + group_column + ${column} + part % ${unit.n / width}u * ${width}u;`);
          this.result(`sums[subgroup_id * ${own}u + part]`, width);
        },
      );
      w.line("workgroupBarrier();");
    };
    const elements = (tile.groupM * tile.groupN) / this.setting.subgroupSize;
    if (epilogue === undefined || epilogue.isShort(elements)) {
      this.eachSum((name, i, j) =>
        w.block("", () => {
          store(name);
          results(`${i * unit.m}u`, `${j * unit.n}u`);
        }),
      );
      return;
    }
    const columns = tile.groupN / unit.n;
    const count = (tile.groupM / unit.m) * columns;
    w.block(`for (var matrix = 0u; matrix < ${count}u; matrix++)`, () => {
      w.block("switch matrix", () => {
        this.eachSum((name, i, j) => w.block(`case ${i * columns + j}u:`, () => store(name)));
        w.line("default: {}");
      });
      results(`matrix / ${columns}u * ${unit.m}u`, `matrix % ${columns}u * ${unit.n}u`);
    });
  }

  /** Writes the sums at row `r` from column `c` on, or what the epilogue makes of them. */
  private result(sum: string, width: 1 | 4): void {
    const { w, tile, shape, epilogue } = this;
    const isWhole = shape.m % tile.m === 0 && shape.n % tile.n === 0;
    const write = () => {
      const index = w.fresh("start_c + r * ldc + c");
      const place = width === 4 ? `(${index}) >> 2u` : index;
      const old = `bitcast<${width === 4 ? "vec4<f32>" : "f32"}>(${this.slabs.read(2, place)})`;
      const value = w.fresh(scaled(shape, sum, old));
      if (this.keepsProduct)
        w.line(this.slabs.write(2, place, `bitcast<${width === 4 ? "vec4<u32>" : "u32"}>(${value})`));
      if (epilogue === undefined) return;
      const elements = width === 4 ? range(4).map((c) => w.fresh(`${value}[${c}]`)) : [value];
      epilogue.points(w.fresh(`${index} - a2`), elements);
    };
    if (isWhole) write();
    else w.block("if (r < m && c < n)", write);
  }
}
