import { joinPads } from "../../../compiler/normalise/joinPads.js";
import { zip } from "../../../ir/collections.js";
import { type DType, isFloat, kindOfNumbers, limits } from "../../../ir/dtype.js";
import { InternalError } from "../../../ir/errors.js";
import type { MeshShape } from "../../../ir/mesh.js";
import type { Float8, OpName, Precision } from "../../../ir/ops.js";
import type { Atom, Eqn, EqnParts, Program, Var } from "../../../ir/program.js";
import { type Shape, sameNumbers, sizeOf, type TensorType, tensorType } from "../../../ir/shape.js";
import { float8Text, splatText, typeText } from "./text.js";
import { isUnrolled, summedVars, type Unrolling } from "./unroll.js";

/** A value of the text: its name there, such as `%12`, and its type. */
export interface HloValue {
  readonly name: string;
  readonly type: TensorType;
}

/** Operations for which some devices have a dedicated kernel. */
export type FusedKernel = "attention" | "raggedDot" | "raggedAllToAll";

/** Writes the lines of one op and returns its results. */
export type Rule<K extends OpName> = (eqn: EqnParts<K>, write: Writer) => readonly HloValue[];

/** A per-device program as a module of StableHLO. */
export interface StableHloModule {
  readonly text: string;
  /** The equation that each line of the text implements, counted from 0. */
  readonly origins: readonly (Eqn | undefined)[];
  /** Whether a loop of the program was unrolled. */
  readonly isUnrolled: boolean;
  /** Whether something is rounded to float8. */
  readonly hasFloat8: boolean;
}

/** A line of the text, and the equation that it implements. */
interface Line {
  readonly text: string;
  readonly origin: Eqn | undefined;
}

/** A function of the module besides its main one. */
interface ModuleFunction {
  readonly lines: readonly Line[];
  readonly results: readonly TensorType[];
}

/**
 * Collects the lines of a module. Every line belongs to the equation being lowered, so that a location in the text
 * leads back to the program.
 */
export class Writer {
  private lines: Line[] = [];
  private readonly values = new Map<number, HloValue>();
  private readonly functions = new Map<string, ModuleFunction>();
  private numValues = 0;
  private numNames = 0;
  private indent = 0;
  private current: Eqn | undefined;
  private readonly stacks = new Map<string, readonly HloValue[]>();
  /** The variables that loops read a slice of in every iteration. */
  private readonly slicedVars = new Set<number>();
  private readonly summedVars = new Set<number>();
  private readonly barred = new Set<string>();
  private readonly overwritables = new Set<string>();
  /** The shapes that products of two matrices have in XLA, by the names of results with more dims. */
  private readonly matrixShapes = new Map<string, Shape>();
  private hasFloat8 = false;
  private hasUnrolled = false;
  /** The number of branches, and loops of unknown length, around the current line. */
  private numConditions = 0;

  /**
   * @param mesh the mesh whose axes collectives name
   * @param rule writes one equation
   * @param kernels operations for which to use the devices' kernels
   * @param precision of float32 products that do not specify one
   * @param unrolling which loops to unroll; none by default
   */
  constructor(
    readonly mesh: MeshShape,
    private readonly rule: (eqn: Eqn, write: Writer) => readonly HloValue[],
    private readonly kernels: readonly FusedKernel[] = [],
    readonly precision: Precision = "highest",
    private readonly unrolling?: Unrolling,
  ) {}

  /** Whether to use the devices' kernel for an operation. */
  fuses(kernel: FusedKernel): boolean {
    return this.kernels.includes(kernel);
  }

  /** Whether the devices are such that loops are unrolled, as GPUs are. */
  get mayUnroll(): boolean {
    return this.unrolling !== undefined;
  }

  /** Whether to unroll a loop. @param xs the stacks that its iterations read */
  unrolls({ outs, params }: EqnParts<"scan">, xs: readonly HloValue[]): boolean {
    if (this.unrolling === undefined) return false;
    const read = xs.filter(({ name }) => this.stacks.has(name));
    const written = outs.slice(params.numCarry).filter((stack) => this.isSliced(stack));
    const unrolls = isUnrolled(params, [...read, ...written], this.unrolling);
    this.hasUnrolled ||= unrolls;
    return unrolls;
  }

  /** Whether a loop reads a slice of a variable in every iteration. */
  isSliced({ id }: Var): boolean {
    return this.slicedVars.has(id);
  }

  /** Whether the elements of a variable are summed up. */
  isSummed({ id }: Var): boolean {
    return this.summedVars.has(id);
  }

  /** Remembers the values that the iterations of an unrolled loop contributed to a stack. */
  stacked(stack: HloValue, slices: readonly HloValue[]): HloValue {
    this.stacks.set(stack.name, slices);
    return stack;
  }

  /** The values that the iterations of an unrolled loop contributed to a stack, if it comes from one. */
  slicesOf({ name }: HloValue): readonly HloValue[] | undefined {
    return this.stacks.get(name);
  }

  /**
   * Values that XLA can neither merge with equal ones nor move across the barrier. A value that is already behind such
   * a barrier gets no second one, which would copy it.
   */
  barrier(values: readonly HloValue[]): HloValue[] {
    const open = values.filter(({ name }) => !this.barred.has(name));
    if (open.length === 0) return [...values];
    const barred = this.several(open.map(({ type }) => type));
    this.line(`${barred.target}stablehlo.optimization_barrier ${names(open)} : ${types(open)}`);
    const next = barred.values.values();
    return values.map((value) => (this.barred.has(value.name) ? value : (next.next().value ?? value)));
  }

  /** Remembers a part of a value that is behind a barrier. */
  behindBarrier(value: HloValue): HloValue {
    this.barred.add(value.name);
    return value;
  }

  /** Remembers that a value is a product. @param numRowDims how many of its dims, the first ones, the left factor has */
  madeByProduct({ name, type }: HloValue, numRowDims: number): void {
    const { shape } = type;
    if (shape.length <= 2) return;
    this.matrixShapes.set(name, [sizeOf(shape.slice(0, numRowDims)), sizeOf(shape.slice(numRowDims))]);
  }

  /** The shape of a product as a matrix, if it has more dims. */
  matrixShape({ name }: HloValue): Shape | undefined {
    return this.matrixShapes.get(name);
  }

  /** Marks values that nothing reads after the equation that does. */
  overwritable(values: readonly HloValue[]): void {
    for (const { name } of values) this.overwritables.add(name);
  }

  /** Whether the equation that reads a value may write its results over it. */
  isOverwritable({ name }: HloValue): boolean {
    return this.overwritables.has(name);
  }

  /** Writes what not all devices may run. */
  conditional<T>(body: () => T): T {
    this.numConditions++;
    const result = body();
    this.numConditions--;
    return result;
  }

  /** Whether some devices may not run the current line. */
  get isConditional(): boolean {
    return this.numConditions > 0;
  }

  /** The equation being lowered. */
  get equation(): Eqn | undefined {
    return this.current;
  }

  /** A value with a new name. */
  fresh(type: TensorType): HloValue {
    return { name: `%${this.numValues++}`, type };
  }

  /** The results of one line: the text before its op, such as `%3:2 = `, and the values. */
  several(types: readonly TensorType[]): { readonly target: string; readonly values: HloValue[] } {
    const name = `%${this.numValues++}`;
    if (types.length === 0) return { target: "", values: [] };
    if (types.length === 1) return { target: `${name} = `, values: types.map((type) => ({ name, type })) };
    return {
      target: `${name}:${types.length} = `,
      values: types.map((type, i) => ({ name: `${name}#${i}`, type })),
    };
  }

  /** Adds a line that defines no value. */
  line(text: string): void {
    this.lines.push({ text: `${"  ".repeat(this.indent)}${text}`, origin: this.current });
  }

  /** Adds lines with one more level of indentation. */
  nested(body: () => void): void {
    this.indent++;
    body();
    this.indent--;
  }

  /** Adds a line that defines a value: `%3 = text`. */
  define(text: string, type: TensorType): HloValue {
    const value = this.fresh(type);
    this.line(`${value.name} = ${text}`);
    return value;
  }

  /** An op whose operands and result have one type. */
  same(op: string, operands: readonly HloValue[], type: TensorType): HloValue {
    return this.define(`${op} ${names(operands)} : ${typeText(type)}`, type);
  }

  /** An op with explicit types of its operands and its result; `attributes` begin with a comma. */
  mapped(op: string, operands: readonly HloValue[], attributes: string, type: TensorType): HloValue {
    const list = operands.length === 0 ? "" : ` ${names(operands)}`;
    return this.define(`${op}${list}${attributes} : ${signature(operands, [type])}`, type);
  }

  /** An op in the form that lists its attributes. */
  listed(
    op: string,
    operands: readonly HloValue[],
    attributes: readonly string[],
    type: TensorType,
  ): HloValue {
    const list = attributes.join(", ");
    return this.define(
      `"stablehlo.${op}"(${names(operands)}) <{${list}}> : ${signature(operands, [type])}`,
      type,
    );
  }

  /** An op that combines elements two at a time. */
  combined(
    op: string,
    operands: readonly HloValue[],
    attributes: readonly string[],
    combine: string,
    type: TensorType,
  ): HloValue {
    const result = this.fresh(type);
    const scalar = tensorType(type.dtype, []);
    this.line(`${result.name} = "stablehlo.${op}"(${names(operands)}) <{${attributes.join(", ")}}> ({`);
    this.region([scalar, scalar], (...pair) => [this.same(combine, pair, scalar)]);
    this.line(`}) : ${signature(operands, [type])}`);
    return result;
  }

  /** The position along a dim. */
  iota(dim: number, type: TensorType): HloValue {
    return this.define(`stablehlo.iota dim = ${dim} : ${typeText(type)}`, type);
  }

  select(predicate: HloValue, x: HloValue, y: HloValue): HloValue {
    return this.define(`stablehlo.select ${names([predicate, x, y])} : ${types([predicate, x])}`, x.type);
  }

  /** A tensor filled with one number. */
  splat(value: number, dtype: DType, shape: Shape = []): HloValue {
    const type = tensorType(dtype, shape);
    return this.define(splatText(value, type), type);
  }

  /** A sum of one term: XLA leaves out the 0 that sums begin with, which would make a −0 a 0. */
  sumOfOne(x: HloValue): HloValue {
    const { dtype, shape } = x.type;
    if (!isFloat(dtype)) return x;
    const zero = this.splat(0, dtype, shape);
    return this.select(this.compare("EQ", x, zero), zero, x);
  }

  /** Integers within 0 and `high`. */
  clamped(x: HloValue, high: number): HloValue {
    const { dtype, shape } = x.type;
    const [first, last] = [0, Math.min(high, limits(dtype).max)].map((end) => this.splat(end, dtype, shape));
    return first && last ? this.same("stablehlo.clamp", [first, x, last], x.type) : x;
  }

  /** The value of an atom; literals become constants. */
  read(atom: Atom): HloValue {
    if (atom.kind === "literal") return this.splat(atom.value, atom.type.dtype);
    const value = this.values.get(atom.id);
    if (!value) throw new InternalError("[stablehlo] a value is read before it is defined");
    return value;
  }

  /** The value of an atom, with literals broadcast to a shape. */
  spread(atom: Atom, shape: Shape): HloValue {
    return atom.kind === "literal" ? this.splat(atom.value, atom.type.dtype, shape) : this.read(atom);
  }

  /** The same elements as another data type. */
  convert(x: HloValue, dtype: DType): HloValue {
    if (x.type.dtype === dtype) return x;
    return this.mapped("stablehlo.convert", [x], "", tensorType(dtype, x.type.shape));
  }

  /** The elements rounded to a float8 type, in the type that they have. */
  roundFloat8(x: HloValue, format: Float8): HloValue {
    const [type, narrow] = [typeText(x.type), float8Text(x.type, format)];
    const rounded = this.define(`stablehlo.convert ${x.name} : (${type}) -> ${narrow}`, x.type);
    this.hasFloat8 = true;
    return this.define(`stablehlo.convert ${rounded.name} : (${narrow}) -> ${type}`, x.type);
  }

  /** The same elements in another shape. */
  reshape(x: HloValue, shape: Shape): HloValue {
    if (sameNumbers(x.type.shape, shape)) return x;
    return this.mapped("stablehlo.reshape", [x], "", tensorType(x.type.dtype, shape));
  }

  /** Compares element by element, according to the data type. */
  compare(direction: string, x: HloValue, y: HloValue): HloValue {
    const kind = compareKinds[kindOfNumbers(x.type.dtype)];
    const type = tensorType("bool", x.type.shape);
    return this.mapped(`stablehlo.compare ${direction},`, [x, y], `, ${kind}`, type);
  }

  /** A block of lines with arguments, `({ ^bb0(%1: …): … stablehlo.return … })`, as one of an op's regions. */
  region(parameters: readonly TensorType[], body: (...values: HloValue[]) => readonly HloValue[]): void {
    const values = parameters.map((type) => this.fresh(type));
    this.nested(() => {
      if (values.length > 0) {
        this.line(`^bb0(${parametersText(values)}):`);
      }
      const results = body(...values);
      this.line(`stablehlo.return${resultText(results)}`);
    });
  }

  /**
   * Lowers a program whose inputs are the given values; returns its outputs.
   *
   * @param origin the equation that all lines belong to, instead of the program's own equations
   */
  inline(program: Program, inputs: readonly HloValue[], origin?: Eqn): HloValue[] {
    for (const [input, value] of zip(program.inputs, inputs)) this.values.set(input.id, value);
    const outer = this.current;
    // Gradients of slices are sums of padded blocks, which XLA would compute as written.
    const joined = joinPads(program);
    for (const id of summedVars(joined)) this.summedVars.add(id);
    for (const { op, ins, params } of joined.eqns) {
      if (op !== "scan") continue;
      for (const x of ins.slice(params.numConsts + params.numCarry)) {
        if (x.kind === "var") this.slicedVars.add(x.id);
      }
    }
    for (const eqn of joined.eqns) {
      this.current = origin ?? eqn;
      for (const [out, value] of zip(eqn.outs, this.rule(eqn, this))) this.values.set(out.id, value);
    }
    this.current = outer;
    return program.outputs.map((atom) => this.read(atom));
  }

  /** A unique name for a function. */
  newFunctionName(word: string): string {
    return `${word}_${this.numNames++}`;
  }

  /**
   * Calls a function of the module, which is written when it is first called.
   *
   * @param name its name, which identifies what it computes
   * @param body writes the body, given inputs of the operands' types
   */
  called(
    name: string,
    operands: readonly HloValue[],
    body: (inputs: readonly HloValue[]) => readonly HloValue[],
  ): HloValue[] {
    const { results } = this.functions.get(name) ?? this.addFunction(name, operands, body);
    const { target, values } = this.several(results);
    this.line(`${target}func.call @${name}(${names(operands)}) : ${signature(operands, results)}`);
    return values;
  }

  private addFunction(
    name: string,
    operands: readonly HloValue[],
    body: (inputs: readonly HloValue[]) => readonly HloValue[],
  ): ModuleFunction {
    const { lines: outerLines, indent: outerIndent } = this;
    const inputs = operands.map(({ name, type }) => {
      const input = this.fresh(type);
      return this.barred.has(name) ? this.behindBarrier(input) : input;
    });
    this.lines = [];
    this.indent = 2;
    const results = body(inputs);
    this.line(`return${resultText(results)}`);
    const inside = this.lines;
    this.lines = [];
    this.indent = 1;
    this.line(`func.func private @${name}(${parametersText(inputs)}) -> (${types(results)}) {`);
    this.lines.push(...inside);
    this.line("}");
    const added = { lines: this.lines, results: results.map(({ type }) => type) };
    this.lines = outerLines;
    this.indent = outerIndent;
    this.functions.set(name, added);
    return added;
  }

  /** The whole module. */
  finish(): StableHloModule {
    this.current = undefined;
    for (const { lines } of this.functions.values()) this.lines.push(...lines);
    this.line("}");
    return {
      text: this.lines.map(({ text }) => `${text}\n`).join(""),
      origins: this.lines.map(({ origin }) => origin),
      isUnrolled: this.hasUnrolled,
      hasFloat8: this.hasFloat8,
    };
  }
}

const compareKinds: { readonly [K in ReturnType<typeof kindOfNumbers>]: string } = {
  float: "FLOAT",
  complex: "FLOAT",
  signed: "SIGNED",
  unsigned: "UNSIGNED",
  bool: "UNSIGNED",
};

/** The names of values, separated by commas. */
export function names(values: readonly HloValue[]): string {
  return values.map(({ name }) => name).join(", ");
}

/** The types of values, separated by commas. */
export function types(values: readonly { readonly type: TensorType }[]): string {
  return values.map(({ type }) => typeText(type)).join(", ");
}

/** Values with their types, in the form of parameters: `%0: tensor<f32>, %1: tensor<i32>`. */
function parametersText(values: readonly HloValue[]): string {
  return values.map(({ name, type }) => `${name}: ${typeText(type)}`).join(", ");
}

/** The types of an op's operands and results: `(tensor<f32>) -> tensor<f32>`. */
export function signature(operands: readonly HloValue[], results: readonly TensorType[]): string {
  const outs = results.map(typeText);
  return `(${types(operands)}) -> ${outs.length === 1 ? outs[0] : `(${outs.join(", ")})`}`;
}

/** The operands of a return: ` %1, %2 : tensor<f32>, tensor<i32>`, or nothing. */
export function resultText(results: readonly HloValue[]): string {
  return results.length === 0 ? "" : ` ${names(results)} : ${types(results)}`;
}
