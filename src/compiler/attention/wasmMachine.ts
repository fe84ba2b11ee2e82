/** Attention in WebAssembly: variables and vectors are locals. */
import { at as entry, range } from "../../ir/shape.js";
import { tileFor } from "../gemm/tile.js";
import type { WasmFeatures } from "../wasm/features.js";
import type { FunctionBody, Local } from "../wasm/functionBody.js";
import type { VectorOp } from "../wasm/opcodes.js";
import {
  type AttentionArgument,
  type AttentionCode,
  type AttentionKernel,
  attentionScratchBytes,
  nativeAttention,
} from "./attentionKernel.js";
import {
  type AttentionMachine,
  add,
  type Int,
  type IntVariable,
  type LaneOperand,
  type LaneOperation,
  type LaneVector,
  type Place,
  type SameLanes,
  type TileProduct,
} from "./attentionMachine.js";
import { writeUnit } from "./writeUnit.js";

/** Bytes of a vector. */
const VECTOR = 16;

/** Steps of a tile in one turn of its loop. */
const UNROLL = 4;

const NUM_POINTERS = 6;

const arithmetic: { readonly [O in LaneOperation]: VectorOp } = {
  add: "f32x4.add",
  sub: "f32x4.sub",
  mul: "f32x4.mul",
  div: "f32x4.div",
  max: "f32x4.pmax",
  and: "v128.and",
  or: "v128.or",
};

/** Attention in WebAssembly, or in machine code where that is written; see `emitKernel` for its parameters. */
export const wasmAttention: AttentionCode = {
  ...nativeAttention,
  emit: (code, kernel, features) => new WasmMachine(code, kernel, features).write(),
};

class WasmMachine implements AttentionMachine {
  readonly scratch: IntVariable;
  readonly unit: IntVariable;
  private readonly variables: Local[] = [];
  private readonly vectors: Local[] = [];
  private readonly arguments: ReadonlyMap<AttentionArgument, IntVariable>;
  /** Operands of the last minimum or maximum. */
  private readonly pair: readonly [Local, Local];
  /** Whether elements of a tile are loaded four at a time. */
  private readonly loadsFours: boolean;
  private readonly element: Local;
  private tileSize: readonly [height: number, vectors: number] | undefined;

  constructor(
    private readonly code: FunctionBody,
    private readonly kernel: AttentionKernel,
    private readonly features: WasmFeatures,
  ) {
    for (const _ of range(NUM_POINTERS)) this.word();
    this.unit = this.word();
    this.arguments = new Map(kernel.args.map((name) => [name, this.word()]));
    this.scratch = this.word();
    this.pair = [code.local("address"), code.local("address")];
    this.loadsFours = tileFor(features).broadcast === "lane";
    this.element = code.local("v128");
  }

  write(): void {
    const { code, kernel, unit } = this;
    const [table, args] = [code.param(0), code.param(1)];
    [...this.arguments.values(), this.scratch].forEach((variable, i) => {
      const pair = 2 * i * code.addressBytes;
      code.get(args).loadAddress(pair).get(table).op("address.add").loadAddress();
      code
        .get(args)
        .loadAddress(pair + code.addressBytes)
        .op("address.add")
        .set(this.local(variable));
    });
    code.get(code.param(4)).toAddress().address(attentionScratchBytes(kernel)).op("address.mul");
    code.get(this.local(this.scratch)).op("address.add").set(this.local(this.scratch));
    const end = this.word();
    code.get(code.param(2)).toAddress().set(this.local(unit));
    code.get(code.param(3)).toAddress().set(this.local(end));
    this.loop(unit, end, 1, () => writeUnit(this, kernel));
  }

  argument(name: AttentionArgument): IntVariable {
    return this.arguments.get(name) ?? this.scratch;
  }

  word(): IntVariable {
    return { kind: "word", id: this.variables.push(this.code.local("address")) - 1 };
  }

  pointer(id: number): IntVariable {
    return { kind: "pointer", id };
  }

  private local({ id }: IntVariable): Local {
    return entry(this.variables, id);
  }

  /** Pushes an integer. */
  private push(int: Int): FunctionBody {
    const { code } = this;
    if (typeof int === "number") return code.address(int);
    if (int.kind !== "sum") return code.get(this.local(int));
    this.push(int.a);
    this.push(int.b);
    if (int.op !== "min" && int.op !== "max") return code.op(`address.${int.op}`);
    const [a, b] = this.pair;
    code.set(b).set(a);
    const [first, second] = int.op === "min" ? [b, a] : [a, b];
    return code.get(a).get(b).get(first).get(second).op("address.ge_s").op("select");
  }

  /** Pushes whether a is less than b. */
  private isLess(a: Int, b: Int): FunctionBody {
    this.push(a);
    return this.push(b).op("address.ge_s").op("i32.eqz");
  }

  set(to: IntVariable, value: Int): void {
    this.push(value).set(this.local(to));
  }

  divide(value: Int, by: number, quotient: IntVariable, rest: IntVariable): void {
    const { code } = this;
    const [whole, left] = this.pair;
    this.push(value).tee(left).address(by).op("address.div_u").set(whole);
    code.get(left).get(whole).address(by).op("address.mul").op("address.sub").set(this.local(rest));
    code.get(whole).set(this.local(quotient));
  }

  loop(counter: IntVariable, end: Int, step: number, body: () => void): void {
    const { code } = this;
    this.when(counter, end, () => {
      code.loop((again) => {
        body();
        this.set(counter, add(counter, step));
        this.isLess(counter, end).brIf(again);
      });
    });
  }

  when(a: Int, b: Int, body: () => void): void {
    this.isLess(a, b).if(body);
  }

  private vector(id: number): Local {
    while (this.vectors.length <= id) this.vectors.push(this.code.local("v128"));
    return entry(this.vectors, id);
  }

  free(index: number): LaneVector {
    const [height, vectors] = this.tileSize ?? [0, 0];
    return (height * vectors + index) as LaneVector;
  }

  sum(row: number, vector: number): LaneVector {
    const [, vectors] = this.tileSize ?? [0, 0];
    return (row * vectors + vector) as LaneVector;
  }

  /** Pushes a vector. */
  private pushVector(operand: LaneOperand): FunctionBody {
    const { code } = this;
    if (typeof operand === "number") return code.get(this.vector(operand));
    if ("bits" in operand) return code.v128([operand.bits, operand.bits, operand.bits, operand.bits]);
    return code.get(this.local(operand.pointer)).memory("v128.load", operand.bytes);
  }

  copy(to: LaneVector, from: LaneOperand): void {
    this.pushVector(from).set(this.vector(to));
  }

  store({ pointer, bytes }: Place, from: LaneVector): void {
    this.code.get(this.local(pointer)).get(this.vector(from)).memory("v128.store", bytes);
  }

  loadPart(to: LaneVector, { pointer, bytes }: Place, count: number): void {
    const { code } = this;
    const [from, vector] = [this.local(pointer), this.vector(to)];
    code
      .get(from)
      .memory(count === 1 ? "v128.load32_zero" : "v128.load64_zero", bytes)
      .set(vector);
    if (count === 3)
      code
        .get(from)
        .get(vector)
        .laneMemory("v128.load32_lane", 2, bytes + 8)
        .set(vector);
  }

  storePart({ pointer, bytes }: Place, from: LaneVector, count: number): void {
    const { code } = this;
    const [to, vector] = [this.local(pointer), this.vector(from)];
    code
      .get(to)
      .get(vector)
      .laneMemory(count === 1 ? "v128.store32_lane" : "v128.store64_lane", 0, bytes);
    if (count === 3)
      code
        .get(to)
        .get(vector)
        .laneMemory("v128.store32_lane", 2, bytes + 8);
  }

  storeFirst({ pointer, bytes }: Place, from: LaneVector): void {
    this.code.get(this.local(pointer)).get(this.vector(from)).laneMemory("v128.store32_lane", 0, bytes);
  }

  broadcast(to: LaneVector, { pointer, bytes }: Place): void {
    this.code.get(this.local(pointer)).memory("v128.load32_splat", bytes).set(this.vector(to));
  }

  splat(to: LaneVector, value: Int): void {
    this.push(value).fromAddress().vector("i32x4.splat").vector("f32x4.convert_i32x4_s");
    this.code.set(this.vector(to));
  }

  iota(to: LaneVector): void {
    this.code.v128([0, 1, 2, 3]).vector("f32x4.convert_i32x4_s").set(this.vector(to));
  }

  op(op: LaneOperation, to: LaneVector, a: LaneVector, b: LaneOperand): void {
    this.pushVector(a);
    this.pushVector(b).vector(arithmetic[op]).set(this.vector(to));
  }

  multiplyAdd(to: LaneVector, a: LaneVector, b: LaneOperand): void {
    this.pushSum(
      b,
      () => this.pushVector(to),
      () => this.pushVector(a),
    ).set(this.vector(to));
  }

  addProduct(to: LaneVector, a: LaneVector, b: LaneOperand): void {
    this.pushSum(
      to,
      () => this.pushVector(a),
      () => this.pushVector(b),
    ).set(this.vector(to));
  }

  /** Pushes a sum and a product. */
  private pushSum(sum: LaneOperand, a: () => void, b: () => void): FunctionBody {
    const { code } = this;
    if (this.features.fma) {
      a();
      b();
      return this.pushVector(sum).vector("f32x4.relaxed_madd");
    }
    this.pushVector(sum);
    a();
    b();
    return code.vector("f32x4.mul").vector("f32x4.add");
  }

  shift(direction: "left" | "right", to: LaneVector, a: LaneVector, bits: number): void {
    const op = direction === "left" ? "i32x4.shl" : "i32x4.shr_u";
    this.pushVector(a).i32(bits).vector(op).set(this.vector(to));
  }

  replace(to: LaneVector, a: LaneVector, is: "<" | ">", b: LaneOperand, by: SameLanes): void {
    this.pushVector(by);
    this.pushVector(to);
    this.pushVector(a);
    this.pushVector(b)
      .vector(is === "<" ? "f32x4.lt" : "f32x4.gt")
      .vector("v128.bitselect");
    this.code.set(this.vector(to));
  }

  fold(op: "add" | "max", to: LaneVector): void {
    const { code } = this;
    const vector = this.vector(to);
    for (const order of [
      [2, 3, 0, 1],
      [1, 0, 3, 2],
    ] as const) {
      code.get(vector).get(vector).get(vector).shuffle(order).vector(arithmetic[op]).set(vector);
    }
  }

  tile(product: TileProduct, body: () => void): void {
    const { code } = this;
    const { height, vectors, a, b, steps } = product;
    this.tileSize = [height, vectors];
    const [left, aAt, bAt] = [code.local("address"), code.local("address"), code.local("address")];
    this.push(a.from).set(aAt);
    this.push(b.from).set(bAt);
    this.push(steps).set(left);
    for (const id of range(height * vectors)) code.v128([0, 0, 0, 0]).set(this.vector(id));
    for (const turn of [UNROLL, 1]) {
      code
        .get(left)
        .address(turn)
        .op("address.ge_s")
        .if(() => {
          code.loop((again) => {
            this.sumSteps(product, aAt, bAt, turn);
            code.advance(aAt, turn * a.step).advance(bAt, turn * b.step);
            code
              .get(left)
              .address(turn)
              .op("address.sub")
              .tee(left)
              .address(turn)
              .op("address.ge_s")
              .brIf(again);
          });
        });
    }
    body();
    this.tileSize = undefined;
  }

  /** Adds some steps to the sums of a tile. */
  private sumSteps({ height, vectors, a, b }: TileProduct, aAt: Local, bAt: Local, turn: number): void {
    const { code, element } = this;
    const columns = range(vectors).map((j) => this.vector(this.free(j)));
    const four = (i: number) => this.vector(this.free(vectors + i));
    // Four steps of a row, or four rows of a step, are adjacent.
    const alongRow = this.loadsFours && a.step === 4 && turn === 4;
    const alongStep = this.loadsFours && a.row === 4 && height % 4 === 0;
    const load = (i: number, bytes: number) => code.get(aAt).memory("v128.load", bytes).set(four(i));
    if (alongRow) for (const i of range(height)) load(i, i * a.row);
    for (const u of range(turn)) {
      columns.forEach((column, j) => {
        code
          .get(bAt)
          .memory("v128.load", u * b.step + j * VECTOR)
          .set(column);
      });
      if (alongStep) for (const i of range(height / 4)) load(i, u * a.step + i * VECTOR);
      for (const i of range(height)) {
        const lane = alongRow ? u : i % 4;
        const from = four(alongRow ? i : Math.floor(i / 4));
        if (alongRow || alongStep) code.get(from).get(from).shuffle([lane, lane, lane, lane]);
        else code.get(aAt).memory("v128.load32_splat", u * a.step + i * a.row);
        code.set(element);
        columns.forEach((column, j) => {
          const sum = this.sum(i, j);
          const push = (local: Local) => () => void code.get(local);
          this.pushSum(sum, push(element), push(column)).set(this.vector(sum));
        });
      }
    }
  }

  packColumns(from: Int, rowBytes: number, to: Int, features: number): void {
    const { code } = this;
    const { columns } = this.kernel.tile;
    const [source, target, done] = [this.pointer(0), this.pointer(1), this.pointer(2)];
    this.set(source, from);
    this.set(target, to);
    this.set(done, 0);
    this.loop(done, features - (features % 4), 4, () => {
      for (const row of range(columns / 4)) this.transpose(4 * row * rowBytes, rowBytes, row * VECTOR);
      this.set(source, add(source, VECTOR));
      this.set(target, add(target, 4 * 4 * columns));
    });
    const [read, write] = [this.local(source), this.local(target)];
    for (const feature of range(features % 4)) {
      for (const row of range(columns)) {
        code.get(write);
        code.get(read).memory("f32.load", row * rowBytes + 4 * feature);
        code.memory("f32.store", 4 * (columns * feature + row));
      }
    }
  }

  /** Stores four features of four rows, some bytes behind the first two pointers, as columns. */
  private transpose(from: number, rowBytes: number, to: number): void {
    const { code } = this;
    const [source, target] = [this.local(this.pointer(0)), this.local(this.pointer(1))];
    const rows = range(4).map((i) => this.vector(i));
    const pairs = range(4).map((i) => this.vector(4 + i));
    rows.forEach((row, i) => {
      code
        .get(source)
        .memory("v128.load", from + i * rowBytes)
        .set(row);
    });
    const join = (
      a: Local | undefined,
      b: Local | undefined,
      lanes: readonly [number, number, number, number],
    ) =>
      code
        .get(a ?? this.element)
        .get(b ?? this.element)
        .shuffle(lanes);
    pairs.forEach((pair, i) => {
      const first = 2 * (i >> 1);
      join(rows[first], rows[first + 1], i % 2 === 0 ? [0, 4, 1, 5] : [2, 6, 3, 7]).set(pair);
    });
    for (const i of range(4)) {
      code.get(target);
      join(pairs[i >> 1], pairs[2 + (i >> 1)], i % 2 === 0 ? [0, 1, 4, 5] : [2, 3, 6, 7]);
      code.memory("v128.store", to + i * 4 * this.kernel.tile.columns);
    }
  }
}
