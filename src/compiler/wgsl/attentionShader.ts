import { at, range } from "../../ir/shape.js";
import {
  type AttentionArgument,
  type AttentionKernel,
  type HeadsName,
  isBackward,
} from "../attention/attentionKernel.js";
import { GPU_FEATURES } from "../wasm/features.js";
import { exp, log } from "../wasm/math/exponential.js";
import { float32Bits, type Vec, VecBuilder } from "../wasm/vectorProgram.js";
import { hex, WgslWriter, writeProgram } from "./registers.js";
import { type GridShader, gridShader, ShaderArguments } from "./shaderMemory.js";
import type { ShaderSlabs } from "./shaderSlabs.js";

/**
 * Attention without scores in memory. Four neighbouring threads share a row, of a query or of a key, each with a quarter
 * of its features in registers; the rows of the other side pass through shared memory, tile by tile. Scores are sums
 * over the four, of which each gets one of four scores, so that none is computed twice.
 */

/** Threads of a row, rows of a workgroup, and rows of a tile in shared memory. */
const PARTS = 4;
const ROWS = 32;
const TILE = 16;

/** A shader whose workgroups have three dims: blocks of rows, heads, batches. */
export interface AttentionShader extends GridShader {}

/** The shaders of an attention, which run in this order; the last argument is scratch memory. */
export function attentionShaders(
  kernel: AttentionKernel,
): readonly ((slabs: ShaderSlabs) => AttentionShader)[] {
  if (!isBackward(kernel)) return [(slabs) => new AttentionWriter(kernel, slabs).forward()];
  return [
    (slabs) => new AttentionWriter(kernel, slabs).queryCotangent(),
    (slabs) => new AttentionWriter(kernel, slabs).keyCotangents(),
  ];
}

class AttentionWriter {
  private readonly w = new WgslWriter();
  private readonly args: ShaderArguments;
  /** Vectors of four features that a thread has of a row. */
  private readonly vectors: number;

  constructor(
    private readonly kernel: AttentionKernel,
    private readonly slabs: ShaderSlabs,
  ) {
    const all = [...kernel.args, "scratch"];
    this.args = new ShaderArguments(
      all.map(() => "float32"),
      slabs,
      range(all.length),
    );
    this.vectors = Math.ceil(kernel.headSize / (4 * PARTS));
  }

  /** Mixed values and log-sums, by rows of queries. */
  forward(): AttentionShader {
    const { w, kernel } = this;
    this.open("query");
    this.loadRow("q", "query");
    for (const j of range(this.vectors)) w.line(`var mixed_${j} = vec4<f32>(0.0);`);
    w.line(`var peak = bitcast<f32>(${hex(float32Bits(Number.NEGATIVE_INFINITY))} | zero);`);
    w.used.add("zero");
    w.line("var sum = 0.0;");
    this.overTiles(["key", "value"], this.keysSeen(), () => {
      const seen = range(TILE / 4).map((g) => w.let(this.isSeen("row", `other + ${4 * g}u + part`)));
      const scores = seen.map((isSeen, g) => {
        const score = w.let(`${this.scattered(g, "q", "tile_a")} * ${float(kernel.scale)}`);
        return w.let(`select(-3.4e38, ${score}, ${isSeen})`);
      });
      let own = scores.reduce((a, b) => w.let(`max(${a}, ${b})`));
      for (const mask of [1, 2]) own = w.let(`max(${own}, subgroupShuffleXor(${own}, ${mask}u))`);
      w.line(`let highest = max(peak, ${own});`);
      const factor = this.apply(exp, "peak - highest");
      w.line("peak = highest;");
      w.line(`sum *= ${factor};`);
      for (const j of range(this.vectors)) w.line(`mixed_${j} *= ${factor};`);
      scores.forEach((score, g) => {
        const weight = w.let(`select(0.0, ${this.apply(exp, `${score} - highest`)}, ${at(seen, g)})`);
        w.line(`sum += ${weight};`);
        this.add(g, weight, "mixed", "tile_b");
      });
    });
    w.line("sum += subgroupShuffleXor(sum, 1u);");
    w.line("sum += subgroupShuffleXor(sum, 2u);");
    const divisor = w.let("select(sum, 1.0, sum == 0.0)");
    w.line(`let inverse = ${w.call("f_div", "1.0", divisor)};`);
    w.block(`if (isRow)`, () => {
      this.storeRow("mixed", "mixed", (value) => `${value} * inverse`);
      const logSum = w.let(`select(peak, 0.0, sum == 0.0) + ${this.apply(log, "sum")}`);
      w.line(`if (part == 0u) { ${this.setRowValue("logSums", logSum)} }`);
    });
    return this.finish("length", "heads");
  }

  /** The cotangent of queries, by their rows, and what each row subtracts from the cotangents of its weights. */
  queryCotangent(): AttentionShader {
    const { w, kernel } = this;
    this.open("query");
    for (const [name, arg] of [
      ["q", "query"],
      ["ct", "mixedCotangent"],
      ["mixed", "mixed"],
    ] as const)
      this.loadRow(name, arg);
    for (const j of range(this.vectors)) w.line(`var sum_${j} = vec4<f32>(0.0);`);
    const products = range(this.vectors).map((j) => `dot(ct_${j}, mixed_${j})`);
    w.line(`var subtracted = ${products.join(" + ")};`);
    w.line("subtracted += subgroupShuffleXor(subtracted, 1u);");
    w.line("subtracted += subgroupShuffleXor(subtracted, 2u);");
    if (kernel.args.includes("logSumsCotangent"))
      w.line(`subtracted -= bitcast<f32>(${this.rowValue("logSumsCotangent", "row")});`);
    w.line(`if (isRow && part == 0u) { ${this.setRowValue("scratch", "subtracted")} }`);
    w.line(`let log_sum = bitcast<f32>(${this.rowValue("logSums", "row")});`);
    this.overTiles(["key", "value"], this.keysSeen(), () => {
      for (const g of range(TILE / 4)) {
        const score = w.let(`${this.scattered(g, "q", "tile_a")} * ${float(kernel.scale)}`);
        const weightCt = this.scattered(g, "ct", "tile_b");
        const weight = this.apply(exp, `${score} - log_sum`);
        const pulled = `${weight} * (${weightCt} - subtracted)`;
        const seen = this.isSeen("row", `other + ${4 * g}u + part`);
        this.add(g, w.let(`select(0.0, ${pulled}, ${seen})`), "sum", "tile_a");
      }
    });
    w.block("if (isRow)", () =>
      this.storeRow("queryCotangent", "sum", (value) => `${value} * ${float(kernel.scale)}`),
    );
    return this.finish("length", "heads");
  }

  /** The cotangents of keys and values, by their rows, over the queries of all heads that they serve. */
  keyCotangents(): AttentionShader {
    const { w, kernel } = this;
    this.open("key");
    this.loadRow("k", "key");
    this.loadRow("v", "value");
    for (const name of ["key_sum", "value_sum"])
      for (const j of range(this.vectors)) w.line(`var ${name}_${j} = vec4<f32>(0.0);`);
    const served = kernel.heads / kernel.keyHeads;
    w.block(`for (var member = 0u; member < ${served}u; member++)`, () => {
      w.line(`let query_head = head * ${served}u + member;`);
      this.overTiles(["query", "mixedCotangent"], this.queriesSeeing(), () => {
        for (const g of range(TILE / 4)) {
          const query = w.let(`min(other + ${4 * g}u + part, ${kernel.length - 1}u)`);
          const seen = w.let(this.isSeen(`other + ${4 * g}u + part`, "row"));
          const [logSum, shared] = (["logSums", "scratch"] as const).map((name) =>
            w.let(`bitcast<f32>(${this.rowValue(name, query, "query_head")})`),
          );
          const score = w.let(`${this.scattered(g, "k", "tile_a")} * ${float(kernel.scale)}`);
          const weightCt = this.scattered(g, "v", "tile_b");
          const weight = w.let(`select(0.0, ${this.apply(exp, `${score} - ${logSum}`)}, ${seen})`);
          const pulled = w.let(`select(0.0, ${weight} * (${weightCt} - ${shared}), ${seen})`);
          this.add(g, weight, "value_sum", "tile_b");
          this.add(g, pulled, "key_sum", "tile_a");
        }
      });
    });
    w.block("if (isRow)", () => {
      this.storeRow("keyCotangent", "key_sum", (value) => `${value} * ${float(kernel.scale)}`);
      this.storeRow("valueCotangent", "value_sum", (value) => value);
    });
    return this.finish("keyLength", "keyHeads");
  }

  /** Which row a thread computes, and which part of it. */
  private open(side: "query" | "key"): void {
    const { w, kernel } = this;
    this.args.open(w);
    const count = side === "query" ? kernel.length : kernel.keyLength;
    w.line(`let part = local_invocation_index % ${PARTS}u;`);
    w.line(`let first_row = workgroup_id.x * ${ROWS}u;`);
    w.line(`let isRow = first_row + local_invocation_index / ${PARTS}u < ${count}u;`);
    w.line(`let row = min(first_row + local_invocation_index / ${PARTS}u, ${count - 1}u);`);
    w.line("let head = workgroup_id.y;");
    w.line("let batch = workgroup_id.z;");
    w.line(`let quad = subgroup_invocation_id & ${~(PARTS - 1) >>> 0}u;`);
  }

  /** The word of an argument for a position of a query head. */
  private rowValue(name: AttentionArgument | "scratch", row: string, head = "head"): string {
    return this.word(name, this.rowElement(row, head));
  }

  private setRowValue(name: AttentionArgument | "scratch", value: string): string {
    return this.setWord(name, this.rowElement("row", "head"), value);
  }

  private rowElement(row: string, head: string): string {
    const { heads, length } = this.kernel;
    return `((batch * ${heads}u + ${head}) * ${length}u + ${row})`;
  }

  private word(name: AttentionArgument | "scratch", element: string): string {
    const index = this.argument(name);
    return this.slabs.read(index, `a${index} + ${element}`);
  }

  private setWord(name: AttentionArgument | "scratch", element: string, value: string): string {
    const index = this.argument(name);
    return this.slabs.write(index, `a${index} + ${element}`, `bitcast<u32>(${value})`);
  }

  private argument(name: AttentionArgument | "scratch"): number {
    return name === "scratch" ? this.kernel.args.length : this.kernel.args.indexOf(name);
  }

  /** The number of the first feature of a row. */
  private start(name: HeadsName, row: string, head: string): string {
    const { batch = 0, row: rows = 0, head: heads = 0 } = this.kernel.strides[name] ?? {};
    return this.w.let(`batch * ${batch / 4}u + ${row} * ${rows / 4}u + ${head} * ${heads / 4}u`);
  }

  /** Four features of a row from one on; those that do not exist are 0. */
  private features(name: HeadsName, start: string, feature: string): string {
    const { headSize } = this.kernel;
    const load = (element: string) => `bitcast<f32>(${this.word(name, `${start} + ${element}`)})`;
    const words = range(4).map((i) => {
      const element = `${feature} + ${i}u`;
      if (headSize % (4 * PARTS) === 0) return load(element);
      return `select(0.0, ${load(`min(${element}, ${headSize - 1}u)`)}, ${element} < ${headSize}u)`;
    });
    return `vec4<f32>(${words.join(", ")})`;
  }

  private feature(j: number): string {
    return `(${4 * PARTS * j}u + 4u * part)`;
  }

  private loadRow(name: string, arg: HeadsName): void {
    const start = this.start(arg, "row", "head");
    for (const j of range(this.vectors))
      this.w.line(`let ${name}_${j} = ${this.features(arg, start, this.feature(j))};`);
  }

  private storeRow(arg: HeadsName, name: string, value: (sum: string) => string): void {
    const { w, kernel } = this;
    const start = this.start(arg, "row", "head");
    for (const j of range(this.vectors)) {
      for (const i of range(4)) {
        const feature = `${this.feature(j)} + ${i}u`;
        const store = this.setWord(arg, `${start} + ${feature}`, value(`${name}_${j}[${i}]`));
        w.line(
          kernel.headSize % (4 * PARTS) === 0 ? store : `if (${feature} < ${kernel.headSize}u) { ${store} }`,
        );
      }
    }
  }

  /** The first key that a query of the block sees, and the one after the last. */
  private keysSeen(): readonly [string, string] {
    const { before, ahead, keyLength } = this.kernel;
    const first = before < 0 ? "0u" : `max(first_row, ${before}u) - ${before}u`;
    return [first, ahead < 0 ? `${keyLength}u` : `min(first_row + ${ROWS + ahead}u, ${keyLength}u)`];
  }

  /** The first query that sees a key of the block, and the one after the last. */
  private queriesSeeing(): readonly [string, string] {
    const { before, ahead, length } = this.kernel;
    const first = ahead < 0 ? "0u" : `max(first_row, ${ahead}u) - ${ahead}u`;
    return [first, before < 0 ? `${length}u` : `min(first_row + ${ROWS + before}u, ${length}u)`];
  }

  private isSeen(query: string, key: string): string {
    const { before, ahead, length, keyLength } = this.kernel;
    return [
      `${query} < ${length}u`,
      `${key} < ${keyLength}u`,
      ...(before < 0 ? [] : [`${query} <= ${key} + ${before}u`]),
      ...(ahead < 0 ? [] : [`${key} <= ${query} + ${ahead}u`]),
    ].join(" && ");
  }

  /** Loads tiles of two arguments one after the other; `other` is the first row of the tile. */
  private overTiles(
    names: readonly [HeadsName, HeadsName],
    [first, end]: readonly [string, string],
    body: () => void,
  ): void {
    const { w, kernel, vectors } = this;
    const isOfKeys = names[0] === "key";
    const [count, head] = isOfKeys
      ? [
          kernel.keyLength,
          kernel.heads === kernel.keyHeads ? "head" : `(head / ${kernel.heads / kernel.keyHeads}u)`,
        ]
      : [kernel.length, "query_head"];
    const perRow = PARTS * vectors;
    const threads = PARTS * ROWS;
    w.line(`let end = ${end};`);
    w.block(`for (var other = ${first}; other < end; other += ${TILE}u)`, () => {
      w.line("workgroupBarrier();");
      w.block(`for (var i = local_invocation_index; i < ${TILE * perRow}u; i += ${threads}u)`, () => {
        const row = w.let(`min(other + i / ${perRow}u, ${count - 1}u)`);
        const feature = w.let(`(i % ${perRow}u) * 4u`);
        names.forEach((name, t) => {
          const start = this.start(name, row, head);
          w.line(`tile_${"ab"[t]}[i] = ${this.features(name, start, feature)};`);
        });
      });
      w.line("workgroupBarrier();");
      body();
    });
  }

  /** A vector of a row of a tile. */
  private tile(name: string, row: number, j: number): string {
    return `${name}[${row * PARTS * this.vectors + PARTS * j}u + part]`;
  }

  /** Products of the thread's row and four rows of a tile, of which each thread of the row gets one. */
  private scattered(g: number, own: string, tile: string): string {
    const { w } = this;
    const [a = "", b = "", c = "", d = ""] = range(4).map((i) => {
      const products = range(this.vectors).map(
        (j) => [`${own}_${j}`, this.tile(tile, 4 * g + i, j)] as const,
      );
      const sum = products.reduce<string | undefined>(
        (before, [x, y]) => w.let(before === undefined ? `${x} * ${y}` : `fma(${x}, ${y}, ${before})`),
        undefined,
      );
      return w.let(`(${sum}.x + ${sum}.y) + (${sum}.z + ${sum}.w)`);
    });
    const [isHigh, isOdd] = ["(part & 2u) != 0u", "(part & 1u) != 0u"];
    const half = (x: string, y: string) =>
      w.let(`select(${x}, ${y}, ${isHigh}) + subgroupShuffleXor(select(${y}, ${x}, ${isHigh}), 2u)`);
    const [even, odd] = [half(a, c), half(b, d)];
    return w.let(
      `select(${even}, ${odd}, ${isOdd}) + subgroupShuffleXor(select(${odd}, ${even}, ${isOdd}), 1u)`,
    );
  }

  /** Adds four rows of a tile, each times the value that its thread has. */
  private add(g: number, value: string, sums: string, tile: string): void {
    const { w } = this;
    for (const i of range(4)) {
      const factor = w.let(`subgroupShuffle(${value}, quad + ${i}u)`);
      for (const j of range(this.vectors))
        w.line(`${sums}_${j} = fma(vec4<f32>(${factor}), ${this.tile(tile, 4 * g + i, j)}, ${sums}_${j});`);
    }
  }

  /** A function of a float, as kernels compute it. */
  private apply(fn: (b: VecBuilder, x: Vec) => Vec, argument: string): string {
    const { w } = this;
    const b = new VecBuilder(GPU_FEATURES);
    const program = b.finish([fn(b, b.input(0))]);
    const [result = {}] = writeProgram(w, program, {
      input: () => ({ float: w.let(argument) }),
      uniform: () => ({}),
    });
    return w.float(result);
  }

  private finish(rows: "length" | "keyLength", heads: "heads" | "keyHeads"): AttentionShader {
    const { kernel, vectors } = this;
    const size = TILE * PARTS * vectors;
    const shared = ["a", "b"].map((name) => `var<workgroup> tile_${name}: array<vec4<f32>, ${size}>;`);
    const head = ["enable subgroups;", this.args.declarations(), ...shared].join("\n");
    const builtins = ["local_invocation_index", "subgroup_invocation_id"];
    const blocks = Math.ceil(kernel[rows] / ROWS);
    return gridShader(head, this.w, PARTS * ROWS, builtins, [blocks, kernel[heads], kernel.batch]);
  }
}

function float(value: number): string {
  return `bitcast<f32>(${hex(float32Bits(value))})`;
}
