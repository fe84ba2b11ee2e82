import { innerNodes } from "../../src/compiler/kernel/phases.js";
import type { Access, KernelNode, KernelSpec, KernelStore } from "../../src/compiler/kernel/spec.js";
import { emitVectorOp, type KernelOp } from "../../src/compiler/kernel/vectorOps.js";
import { BASELINE_FEATURES } from "../../src/compiler/wasm/features.js";
import { VecBuilder } from "../../src/compiler/wasm/vectorProgram.js";
import { byteSize, type DType } from "../../src/ir/dtype.js";
import { isInDomain } from "../../src/ir/infer/inferChecks.js";
import { opFacts, opsOf, type UnaryOp } from "../../src/ir/opFacts.js";
import { at, range, rowMajorStrides, sizeOf } from "../../src/ir/shape.js";

/** A kernel, and how many bytes each of its arguments takes. */
export interface RandomKernel {
  readonly spec: KernelSpec;
  readonly bytes: readonly number[];
}

const LENGTHS = [1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 47, 64, 67, 100, 131, 160];
const TYPES: readonly DType[] = [
  "float32",
  "float32",
  "float32",
  "int32",
  "uint32",
  "bool",
  "bfloat16",
  "float16",
];

/** Whether kernels compute an op of float32 without calling the host, which machine code does not. */
function isOwnCode(op: UnaryOp): boolean {
  const b = new VecBuilder(BASELINE_FEATURES);
  const { instructions } = b.finish(emitVectorOp(b, { op, from: "float32", to: "float32" }, [b.input(0)]));
  return instructions.every(({ kind }) => kind !== "host" && kind !== "patch");
}

const unaryOn = (dtype: DType) => opsOf("unary").filter((op) => isInDomain(dtype, opFacts[op].on));
const FLOAT_UNARY: readonly KernelOp[] = unaryOn("float32").filter(isOwnCode);
const INTEGER_UNARY: readonly KernelOp[] = unaryOn("int32");
const FLOAT_BINARY: readonly KernelOp[] = ["add", "sub", "mul", "mul", "div", "max", "min"];
const INTEGER_BINARY: readonly KernelOp[] = ["add", "sub", "mul", "max", "min", "and", "or", "xor"];
const DIRECTIONS = ["eq", "ne", "lt", "le", "gt", "ge"] as const;

/** Random numbers below 1, the same for every seed. */
export function randomSource(start: number): () => number {
  let state = start;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) | 0;
    const mixed = Math.imul(state ^ (state >>> 12), 0x297a2d39);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  };
}

/** A kernel of random loops, loads, ops, reductions and stores on lanes of 32 bits. */
export function randomKernel(random: () => number): RandomKernel {
  return new Generator(random).make();
}

class Generator {
  private readonly dims: readonly number[];
  private readonly numRows: number;
  private readonly args: DType[] = [];
  private readonly bytes: number[] = [];
  private readonly nodes: KernelNode[] = [];
  private readonly stores: KernelStore[] = [];

  constructor(private readonly random: () => number) {
    const rank = 1 + this.upTo(3);
    this.dims = range(rank).map((d) => (d === rank - 1 ? this.pick(LENGTHS) : 1 + this.upTo(4)));
    this.numRows = this.upTo(rank);
  }

  make(): RandomKernel {
    for (const _ of range(1 + this.upTo(4))) this.load();
    if (this.random() < 0.3) this.iota();
    for (const _ of range(1 + this.upTo(12))) this.op();
    if (this.random() < 0.5) {
      for (const _ of range(1 + this.upTo(2))) this.reduce();
      for (const _ of range(this.upTo(8))) this.op();
    }
    this.storeSome();
    const hasReduce = this.nodes.some(({ kind }) => kind === "reduce");
    const numRows = hasReduce ? this.numRows : this.dims.length - 1;
    const spec = {
      dims: this.dims,
      numRows,
      args: this.args,
      nodes: this.nodes,
      stores: this.stores,
      fills: [],
    };
    return { spec, bytes: this.bytes };
  }

  private upTo(count: number): number {
    return Math.floor(this.random() * count);
  }

  private pick<T>(list: readonly T[]): T {
    return at(list, this.upTo(list.length));
  }

  private argument(dtype: DType, elements: number): number {
    this.args.push(dtype);
    this.bytes.push(elements * byteSize(dtype));
    return this.args.length - 1;
  }

  private load(): void {
    const dtype = this.pick(TYPES);
    const kept = this.dims.map(() => this.random() < 0.8);
    const shape = this.dims.map((size, d) => (at(kept, d) ? size : 1));
    const strides = rowMajorStrides(shape).map((stride, d) => (at(kept, d) ? stride : 0));
    this.nodes.push({
      kind: "load",
      dtype,
      access: { arg: this.argument(dtype, sizeOf(shape)), strides },
    });
  }

  private iota(): void {
    const coefficients = this.dims.map(() => this.upTo(4));
    this.nodes.push({ kind: "iota", dtype: this.pick(["int32", "float32", "uint32"]), coefficients });
  }

  private of(test: (dtype: DType) => boolean): number | undefined {
    const found = this.nodes.flatMap(({ dtype }, i) => (test(dtype) ? [i] : []));
    return found.length === 0 ? undefined : this.pick(found);
  }

  private push(op: KernelOp, from: DType, to: DType, args: readonly number[], more: object = {}): void {
    this.nodes.push({ kind: "op", dtype: to, call: { op, from, to, ...more }, args, result: 0 });
  }

  private op(): void {
    const first = this.upTo(this.nodes.length);
    const { dtype } = at(this.nodes, first);
    const same = this.random() < 0.2 ? this.literal(dtype) : (this.of((other) => other === dtype) ?? first);
    const choice = this.random();
    if (choice < 0.15) {
      this.push("convert", dtype, this.pick(TYPES.filter((to) => to !== "uint32" || !isFloat(dtype))), [
        first,
      ]);
    } else if (choice < 0.3) {
      this.push("compare", dtype, "bool", [first, same], { direction: this.pick(DIRECTIONS) });
    } else if (choice < 0.45) {
      const mask = this.of((other) => other === "bool");
      if (mask !== undefined) this.push("select", dtype, dtype, [mask, first, same]);
    } else if (dtype === "bool") {
      this.push(this.pick(["and", "or", "xor", "max", "min"]), dtype, dtype, [first, same]);
    } else {
      const [unary, binary] = isFloat(dtype) ? [FLOAT_UNARY, FLOAT_BINARY] : [INTEGER_UNARY, INTEGER_BINARY];
      if (choice < 0.65) this.push(this.pick(unary), dtype, dtype, [first]);
      else this.push(this.pick(binary), dtype, dtype, [first, same]);
    }
  }

  private literal(dtype: DType): number {
    const value = isFloat(dtype)
      ? this.pick([0, -0, 1, -2.5, 1e30, Number.NaN, Infinity])
      : this.pick(dtype === "bool" ? [0, 1] : [0, 1, 7, 255]);
    this.nodes.push({ kind: "literal", dtype, value });
    return this.nodes.length - 1;
  }

  private reduce(): void {
    const arg = this.of((dtype) => dtype === "float32" || dtype === "int32" || dtype === "uint32");
    const combine = this.pick(["sum", "max", "min"] as const);
    if (arg !== undefined) {
      this.nodes.push({ kind: "reduce", dtype: at(this.nodes, arg).dtype, combine, arg });
    }
  }

  private storeSome(): void {
    const hasReduce = this.nodes.some(({ kind }) => kind === "reduce");
    const numRows = hasReduce ? this.numRows : this.dims.length - 1;
    const whole = { dims: this.dims, numRows, args: this.args, nodes: this.nodes, stores: [], fills: [] };
    const inner = innerNodes(whole);
    const last = this.nodes.length - 1;
    for (const node of new Set([last, ...range(this.upTo(3)).map(() => this.upTo(last + 1))])) {
      const { dtype, kind } = at(this.nodes, node);
      if (kind === "literal") continue;
      const isInner = at(inner, node);
      const kept = this.dims.map((_, d) => isInner || d < numRows);
      const combines = byteSize(dtype) === 4 && this.random() < 0.2;
      // What is combined over rows has no place of its own in some of them.
      if (combines && numRows > 0) kept[0] = false;
      const shape = this.dims.map((size, d) => (at(kept, d) ? size : 1));
      const strides = rowMajorStrides(shape).map((stride, d) => (at(kept, d) ? stride : 0));
      const access: Access = { arg: this.argument(dtype, sizeOf(shape)), strides };
      const combine = combines ? this.pick(["sum", "max", "min"] as const) : undefined;
      this.stores.push({ node, access, combine });
    }
  }
}

const isFloat = (dtype: DType): boolean => dtype.startsWith("float") || dtype === "bfloat16";
