import { joinPads } from "../../../compiler/normalise/joinPads.js";
import type { DType } from "../../../ir/dtype.js";
import { InternalError } from "../../../ir/errors.js";
import type { MeshShape } from "../../../ir/mesh.js";
import type { OpName, Precision } from "../../../ir/ops.js";
import type { Atom, Eqn, EqnParts, Program } from "../../../ir/program.js";
import { at, type Shape, sameNumbers, type TensorType, tensorType } from "../../../ir/shape.js";
import { splatText, typeText } from "./text.js";
import { isWrittenOut, type WriteOut } from "./writeOut.js";

/** A value of the text: its name there, such as `%12`, and its type. */
export interface Value {
  readonly name: string;
  readonly type: TensorType;
}

/** What some devices have a kernel of their own for. */
export type FusedKernel = "attention";

/** Writes the lines of one op and gives the values that are its results. */
export type Rule<K extends OpName> = (eqn: EqnParts<K>, write: Writer) => readonly Value[];

/** A per-device program as a module of StableHLO. */
export interface StableHloModule {
  readonly text: string;
  /** For every line of the text, counted from 0, the equation that it writes. */
  readonly origins: readonly (Eqn | undefined)[];
  /** Whether a loop of the program was written out. */
  readonly isWrittenOut: boolean;
}

/** A line of the text, and the equation that it writes. */
interface Line {
  readonly text: string;
  readonly origin: Eqn | undefined;
}

/** A function of the module besides its main one. */
interface ModuleFunction {
  readonly lines: readonly Line[];
  readonly results: readonly TensorType[];
}

/** A function of two scalars of the text, such as the body of a reduction. */
export type Combiner = (x: Value, y: Value) => Value;

/**
 * Collects the lines of a module. Every line belongs to the equation that was being written, so that a place in
 * the text leads back to the program.
 */
export class Writer {
  private lines: Line[] = [];
  private readonly values = new Map<number, Value>();
  private readonly functions = new Map<string, ModuleFunction>();
  private numValues = 0;
  private numNames = 0;
  private indent = 0;
  private current: Eqn | undefined;
  private readonly stacks = new Map<string, readonly Value[]>();
  private readonly barred = new Set<string>();

  /**
   * @param mesh the mesh whose axes collectives name
   * @param rule writes one equation
   * @param kernels what the devices do in one piece
   * @param precision that of products of float32 which do not say it themselves
   * @param writeOut which loops are written out; none by default
   */
  constructor(
    readonly mesh: MeshShape,
    private readonly rule: (eqn: Eqn, write: Writer) => readonly Value[],
    private readonly kernels: readonly FusedKernel[] = [],
    readonly precision: Precision = "highest",
    private readonly writeOut?: WriteOut,
  ) {}

  /** Whether the devices do something in one piece. */
  fuses(kernel: FusedKernel): boolean {
    return this.kernels.includes(kernel);
  }

  /** Whether a loop is to be written step by step. @param xs the stacks that its steps read */
  writesOut({ outs, params }: EqnParts<"scan">, xs: readonly Value[]): boolean {
    if (this.writeOut === undefined) return false;
    const stacks = [...xs.filter(({ name }) => this.stacks.has(name)), ...outs.slice(params.numCarry)];
    const types = stacks.map(({ type }) => type);
    return isWrittenOut(params, types, this.writeOut);
  }

  /** Remembers what the steps of a loop that was written out gave to a stack. */
  stacked(stack: Value, slices: readonly Value[]): Value {
    this.stacks.set(stack.name, slices);
    return stack;
  }

  /** What the steps of a loop that was written out gave to a stack, if it is one of theirs. */
  slicesOf({ name }: Value): readonly Value[] | undefined {
    return this.stacks.get(name);
  }

  /**
   * Values that XLA can neither merge with what is the same, nor move before others. Of what stands behind such a
   * barrier already there is no second one, which would copy it.
   */
  barrier(values: readonly Value[]): Value[] {
    const open = values.filter(({ name }) => !this.barred.has(name));
    if (open.length === 0) return [...values];
    const barred = this.several(open.map(({ type }) => type));
    this.line(`${barred.target}stablehlo.optimization_barrier ${names(open)} : ${types(open)}`);
    const next = barred.values.values();
    return values.map((value) => (this.barred.has(value.name) ? value : (next.next().value ?? value)));
  }

  /** Remembers a part of a value that stands behind a barrier. */
  behindBarrier(value: Value): Value {
    this.barred.add(value.name);
    return value;
  }

  /** The equation that is being written. */
  get equation(): Eqn | undefined {
    return this.current;
  }

  /** A value with a name of its own. */
  fresh(type: TensorType): Value {
    return { name: `%${this.numValues++}`, type };
  }

  /** The results of one line: what stands before its op, such as `%3:2 = `, and what they are in the text. */
  several(types: readonly TensorType[]): { readonly target: string; readonly values: Value[] } {
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

  /** Adds lines one step further in. */
  nested(body: () => void): void {
    this.indent++;
    body();
    this.indent--;
  }

  /** Adds a line that defines a value: `%3 = text`. */
  define(text: string, type: TensorType): Value {
    const value = this.fresh(type);
    this.line(`${value.name} = ${text}`);
    return value;
  }

  /** An op whose operands and result have one type. */
  same(op: string, operands: readonly Value[], type: TensorType): Value {
    return this.define(`${op} ${names(operands)} : ${typeText(type)}`, type);
  }

  /** An op that says the types of its operands and of its result; `attributes` begin with a comma. */
  mapped(op: string, operands: readonly Value[], attributes: string, type: TensorType): Value {
    const list = operands.length === 0 ? "" : ` ${names(operands)}`;
    return this.define(`${op}${list}${attributes} : ${signature(operands, [type])}`, type);
  }

  /** A number repeated. */
  splat(value: number, dtype: DType, shape: Shape = []): Value {
    const type = tensorType(dtype, shape);
    return this.define(splatText(value, type), type);
  }

  /** What an atom is in the text; literals become constants. */
  read(atom: Atom): Value {
    if (atom.kind === "literal") return this.splat(atom.value, atom.type.dtype);
    const value = this.values.get(atom.id);
    if (!value) throw new InternalError("[stablehlo] a value is read before it is defined");
    return value;
  }

  /** What an atom is in the text, literals repeated to a shape. */
  spread(atom: Atom, shape: Shape): Value {
    return atom.kind === "literal" ? this.splat(atom.value, atom.type.dtype, shape) : this.read(atom);
  }

  /** The same elements as another data type. */
  convert(x: Value, dtype: DType): Value {
    if (x.type.dtype === dtype) return x;
    return this.mapped("stablehlo.convert", [x], "", tensorType(dtype, x.type.shape));
  }

  /** The same elements in another shape. */
  reshape(x: Value, shape: Shape): Value {
    if (sameNumbers(x.type.shape, shape)) return x;
    return this.mapped("stablehlo.reshape", [x], "", tensorType(x.type.dtype, shape));
  }

  /** Compares element by element, numbers as the types of numbers do. */
  compare(direction: string, x: Value, y: Value): Value {
    const kind = compareKinds[x.type.dtype];
    const type = tensorType("bool", x.type.shape);
    return this.mapped(`stablehlo.compare ${direction},`, [x, y], `, ${kind}`, type);
  }

  /** A block of lines with arguments, `({ ^bb0(%1: …): … stablehlo.return … })`, as one of an op's regions. */
  region(parameters: readonly TensorType[], body: (...values: Value[]) => readonly Value[]): void {
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
   * Writes a program whose inputs are given values; returns its outputs.
   *
   * @param origin the equation that all lines belong to, instead of one of the program each
   */
  inline(program: Program, inputs: readonly Value[], origin?: Eqn): Value[] {
    program.inputs.forEach((input, i) => {
      this.values.set(input.id, at(inputs, i));
    });
    const outer = this.current;
    // Gradients of slices come as sums of padded blocks, which XLA computes as they are written.
    for (const eqn of joinPads(program).eqns) {
      this.current = origin ?? eqn;
      const results = this.rule(eqn, this);
      eqn.outs.forEach((out, i) => {
        this.values.set(out.id, at(results, i));
      });
    }
    this.current = outer;
    return program.outputs.map((atom) => this.read(atom));
  }

  /** A name for a function that is called only by who asks for it. */
  newFunctionName(word: string): string {
    return `${word}_${this.numNames++}`;
  }

  /**
   * Calls a function of the module, which is written when it is called for the first time.
   *
   * @param name its name, which stands for what it computes
   * @param body writes what it computes of its inputs, which have the types of the operands
   */
  called(
    name: string,
    operands: readonly Value[],
    body: (inputs: readonly Value[]) => readonly Value[],
  ): Value[] {
    const { results } = this.functions.get(name) ?? this.addFunction(name, operands, body);
    const { target, values } = this.several(results);
    this.line(`${target}func.call @${name}(${names(operands)}) : ${signature(operands, results)}`);
    return values;
  }

  private addFunction(
    name: string,
    operands: readonly Value[],
    body: (inputs: readonly Value[]) => readonly Value[],
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
      isWrittenOut: this.stacks.size > 0,
    };
  }
}

const compareKinds: { readonly [D in DType]: string } = {
  float32: "FLOAT",
  bfloat16: "FLOAT",
  float16: "FLOAT",
  float64: "FLOAT",
  int8: "SIGNED",
  int16: "SIGNED",
  int32: "SIGNED",
  uint8: "UNSIGNED",
  uint16: "UNSIGNED",
  uint32: "UNSIGNED",
  bool: "UNSIGNED",
  complex64: "FLOAT",
  complex128: "FLOAT",
};

/** The names of values, with commas between. */
export function names(values: readonly Value[]): string {
  return values.map(({ name }) => name).join(", ");
}

/** The types of values, with commas between. */
export function types(values: readonly { readonly type: TensorType }[]): string {
  return values.map(({ type }) => typeText(type)).join(", ");
}

/** Values with their types, as functions and blocks name what they are given: `%0: tensor<f32>, %1: tensor<i32>`. */
function parametersText(values: readonly Value[]): string {
  return values.map(({ name, type }) => `${name}: ${typeText(type)}`).join(", ");
}

/** The types of an op's operands and results: `(tensor<f32>) -> tensor<f32>`. */
export function signature(operands: readonly Value[], results: readonly TensorType[]): string {
  const outs = results.map(typeText);
  return `(${types(operands)}) -> ${outs.length === 1 ? outs[0] : `(${outs.join(", ")})`}`;
}

/** What follows a return: ` %1, %2 : tensor<f32>, tensor<i32>`, or nothing. */
export function resultText(results: readonly Value[]): string {
  return results.length === 0 ? "" : ` ${names(results)} : ${types(results)}`;
}
