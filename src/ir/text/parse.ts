import { need } from "../arguments.js";
import { type DType, isDType, isFloat, isInteger } from "../dtype.js";
import { ShardwiseError } from "../errors.js";
import { inferTypes } from "../infer/infer.js";
import { varyingAlong } from "../infer/varying.js";
import { isOpName } from "../opFacts.js";
import type { OpName, OpParams } from "../ops.js";
import { type Atom, type Eqn, makeEqn, newLiteral, newVar, type Program, type Var } from "../program.js";
import { at, formatType, sameType, type TensorType } from "../shape.js";
import { axes, plainType } from "./forms.js";
import { type OpForm, opForm } from "./opForms.js";
import { Scanner } from "./scanner.js";

/** Maximum nesting of programs, so that parsing cannot exhaust the stack. */
const MAX_DEPTH = 200;

/**
 * The program printed by `printProgram`, with new values and without source lines. It is checked as it is read: every
 * value defined before its use and once, every equation's results of the types that its op's rule gives.
 *
 * @throws ParseError with the line and column of what is wrong and what was expected there
 *
 * @example
 * ```ts
 * const program = makeProgram((x: Tensor) => x.mul(2))(np.array([1, 2]));
 * const text = printProgram(program);
 * printProgram(parseProgram(text)) === text; // true
 * ```
 */
export function parseProgram(text: string): Program {
  need("string", text, "the text", "parseProgram");
  const parser = new Parser(new Scanner(text, "parseProgram"));
  return parser.whole();
}

/** How operands begin; the programs after them begin with a bracket or their name. */
const atomStarts = "%-0123456789";
const atomWords = ["true", "false", "NaN", "Infinity"];

class Parser {
  private depth = 0;

  constructor(private readonly scanner: Scanner) {}

  whole(): Program {
    this.scanner.skipBlank();
    const program = this.program();
    this.scanner.endOfText();
    return program;
  }

  private program(): Program {
    const { scanner } = this;
    if (++this.depth > MAX_DEPTH) scanner.fail(`at most ${MAX_DEPTH} nested programs`);
    const values = new Values(scanner);
    const inputs = scanner.list("(", ")", () => values.define(...this.declaration()));
    scanner.expect("{");
    scanner.endOfLine();
    const eqns: Eqn[] = [];
    while (!scanner.eat("return")) {
      eqns.push(this.eqn(values));
    }
    const outputs = scanner.sees("\n") || scanner.sees("\r\n") ? [] : this.outputs(values);
    scanner.endOfLine();
    scanner.expect("}");
    this.depth--;
    return { inputs, eqns, outputs };
  }

  private outputs(values: Values): Atom[] {
    const outputs = [this.atom(values)];
    while (this.scanner.eat(",")) outputs.push(this.atom(values));
    return outputs;
  }

  private eqn(values: Values): Eqn {
    const { scanner } = this;
    const start = scanner.here;
    const declared: [number, number, TensorType][] = [];
    if (scanner.sees("%")) {
      do declared.push(this.declaration());
      while (scanner.eat(","));
      scanner.expect("=");
    }
    const opStart = scanner.here;
    const op = scanner.word('an equation such as "%2:f32[4] = tanh %1", or "return"');
    if (!isOpName(op)) return scanner.failAt(opStart, "the name of an op");
    const ins: Atom[] = [];
    while (this.seesAtom()) ins.push(this.atom(values));
    const params = this.params(opForm<OpName>(op), ins);
    scanner.endOfLine();
    const types = declared.map(([, , type]) => type);
    this.checkTypes(op, ins, params, types, start);
    const outs = declared.map((declaration) => values.define(...declaration));
    return makeEqn<OpName>(op, ins, outs, params);
  }

  /** A value with its type, as it is defined: `%2:f32[4,8]`. */
  private declaration(): [position: number, number: number, type: TensorType] {
    const { scanner } = this;
    const position = scanner.here;
    const number = this.valueNumber();
    scanner.expect(":");
    const type = plainType.parse(scanner);
    return [position, number, varyingAlong(type, scanner.eat("~") ? axes.parse(scanner) : [])];
  }

  private valueNumber(): number {
    if (!this.scanner.eat("%")) this.scanner.fail("a value such as %0");
    return this.scanner.integer("the number of a value");
  }

  private seesAtom(): boolean {
    const { scanner } = this;
    return scanner.seesOneOf(atomStarts) || atomWords.some((word) => scanner.sees(word));
  }

  private atom(values: Values): Atom {
    const { scanner } = this;
    if (scanner.sees("%")) {
      const start = scanner.here;
      return values.read(this.valueNumber(), start);
    }
    if (scanner.eat("true")) return newLiteral(true, "bool");
    if (scanner.eat("false")) return newLiteral(false, "bool");
    const start = scanner.here;
    const digits = scanner.number();
    if (digits === undefined) return scanner.fail("a value such as %0 or a constant such as 1.0");
    const dtype = this.literalType(digits, start);
    const value = Number(digits);
    const literal = newLiteral(value, dtype);
    if (isFloat(dtype) || Object.is(literal.value, value)) return literal;
    throw scanner.error(start, `${digits} is not a valid ${dtype}`);
  }

  /** The type of a constant, which follows from its form: `2`, `2u`, `2:int8`, `2.0`, `2.0:bfloat16`. */
  private literalType(digits: string, start: number): DType {
    const { scanner } = this;
    const isWhole = /^-?\d+$/.test(digits);
    if (isWhole && scanner.eat("u")) return "uint32";
    if (!scanner.eat(":")) return isWhole ? "int32" : "float32";
    const kind = isWhole ? "an integer type" : "a float type";
    const dtype = scanner.word(kind);
    if (isDType(dtype) && (isWhole ? isInteger(dtype) : isFloat(dtype))) return dtype;
    return scanner.failAt(start, `a constant of ${kind}`);
  }

  private params<K extends OpName>(form: OpForm<K>, ins: readonly Atom[]): OpParams[K] {
    const { scanner } = this;
    const isBraced = scanner.eat("{");
    const values = form.parse(scanner, ins);
    if (isBraced) scanner.expect("}");
    // The values and the programs of a form together are the parameters.
    return { ...values, ...this.blocks(form.programs) } as OpParams[K];
  }

  private blocks(programs: Readonly<Record<string, "one" | "list">>): Record<string, Program | Program[]> {
    const { scanner } = this;
    const entries = Object.entries(programs);
    const blocks: Record<string, Program | Program[]> = {};
    for (const [name, kind] of entries) {
      if (kind === "list") {
        blocks[name] = this.branches();
        continue;
      }
      if (entries.length > 1) scanner.expect(`${name} `);
      blocks[name] = this.program();
    }
    return blocks;
  }

  private branches(): Program[] {
    const { scanner } = this;
    if (scanner.sees("(")) return [this.program()];
    const branches: Program[] = [];
    while (scanner.eat(`branch ${branches.length} `)) branches.push(this.program());
    return branches;
  }

  private checkTypes<K extends OpName>(
    op: K,
    ins: readonly Atom[],
    params: OpParams[K],
    declared: readonly TensorType[],
    start: number,
  ): void {
    const inferred = this.infer(op, ins, params, start);
    if (inferred.length !== declared.length) {
      throw this.scanner.error(start, `${op} has ${inferred.length} results, here are ${declared.length}`);
    }
    declared.forEach((type, i) => {
      if (sameType(type, at(inferred, i))) return;
      const is = formatType(at(inferred, i));
      throw this.scanner.error(start, `result ${i} of ${op} is ${is}, here it is ${formatType(type)}`);
    });
  }

  private infer<K extends OpName>(
    op: K,
    ins: readonly Atom[],
    params: OpParams[K],
    start: number,
  ): TensorType[] {
    try {
      return inferTypes(op, ins, params);
    } catch (error) {
      if (error instanceof ShardwiseError) throw this.scanner.error(start, error.message);
      throw error;
    }
  }
}

/** The values of one program by their numbers; programs inside it have their own. */
class Values {
  private readonly values = new Map<number, Var>();

  constructor(private readonly scanner: Scanner) {}

  define(position: number, number: number, type: TensorType): Var {
    if (this.values.has(number)) throw this.scanner.error(position, `%${number} is defined a second time`);
    const variable = newVar(type);
    this.values.set(number, variable);
    return variable;
  }

  read(number: number, position: number): Var {
    const variable = this.values.get(number);
    if (!variable) throw this.scanner.error(position, `%${number} is used before it is defined`);
    return variable;
  }
}
