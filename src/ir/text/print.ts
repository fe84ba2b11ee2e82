import { needProgram } from "../checkProgram.js";
import { getOrInsert } from "../collections.js";
import { isInteger } from "../dtype.js";
import { formatMesh } from "../mesh.js";
import {
  type Atom,
  type Eqn,
  innerPrograms,
  type Literal,
  type Program,
  type SourceLocation,
  type Var,
} from "../program.js";
import { type OptionsOf, schema } from "../schema.js";
import { formatType } from "../shape.js";
import { opForm } from "./opForms.js";

const printOptions = schema({
  /** Whether equations are followed by their places in the user's program; such a text cannot be read back. */
  sources: false,
});

/**
 * The program as text, one equation a line, values numbered in order of appearance:
 *
 * ```
 * (%0:f32[4,8], %1:f32[8]) {
 *   %2:f32[4] = dotGeneral %0 %1 {contract: [1]x[0]}
 *   return %2
 * }
 * ```
 *
 * A type such as `f32[4]~{data: 2}` is that of a value that may differ along axes of a shard map.
 *
 * The text holds everything except the source lines of the equations; `parseProgram` reads it back. With `sources` each
 * equation is followed by the line of the user's program that it comes from, for people to read:
 * `%2:f32[4] = tanh %1  // model.ts:10:3`.
 *
 * @example
 * ```ts
 * const program = makeProgram((x: Tensor) => x.mul(2))(np.array([1, 2]));
 * printProgram(program).includes("mul"); // true
 * ```
 */
export function printProgram(program: Program, options?: PrintOptions): string {
  needProgram(program, "printProgram");
  const { sources } = printOptions.read(options, "printProgram");
  const numbered = lines(program, { next: 0 }, "");
  if (!sources) return numbered.map(({ text }) => text).join("\n");
  return numbered.map(({ text, source }) => (source ? `${text}  // ${source.text}` : text)).join("\n");
}

/** Options of {@link printProgram}. */
export interface PrintOptions extends OptionsOf<typeof printOptions> {}

/** A line of a printed program, and where the equation that begins on it comes from. */
interface Line {
  text: string;
  readonly source?: SourceLocation | undefined;
}

/** One equation as a line of {@link printProgram}, for messages. */
export function printEqn(eqn: Eqn): string {
  return eqnLines(eqn, new Names({ next: 0 }), "")
    .map(({ text }) => text)
    .join("\n");
}

/** The names of one program's values; numbering continues through the programs inside it. */
class Names {
  private readonly numbers = new Map<number, number>();

  constructor(readonly counter: { next: number }) {}

  of(variable: Var): string {
    return `%${getOrInsert(this.numbers, variable.id, () => this.counter.next++)}`;
  }

  typed(variable: Var): string {
    const { type } = variable;
    const varying = type.varying ? `~${formatMesh({ axes: type.varying })}` : "";
    return `${this.of(variable)}:${formatType(type)}${varying}`;
  }

  atom(atom: Atom): string {
    return atom.kind === "var" ? this.of(atom) : formatLiteral(atom);
  }
}

/**
 * A constant with a suffix for its type: `2` is an int32, `2u` a uint32, `2:int8` another integer, `2.0` a float32,
 * `2.0:bfloat16` another float.
 */
function formatLiteral({ value, type: { dtype } }: Literal): string {
  if (dtype === "bool") return value ? "true" : "false";
  const text = Object.is(value, -0) ? "-0" : String(value);
  if (dtype === "int32") return text;
  if (dtype === "uint32") return `${text}u`;
  if (isInteger(dtype)) return `${text}:${dtype}`;
  const float = Number.isInteger(value) && Math.abs(value) < 1e21 ? `${text}.0` : text;
  return dtype === "float32" ? float : `${float}:${dtype}`;
}

function lines(program: Program, counter: { next: number }, indent: string): Line[] {
  const names = new Names(counter);
  const inner = `${indent}  `;
  const inputs = program.inputs.map((v) => names.typed(v)).join(", ");
  const body = program.eqns.flatMap((eqn) => eqnLines(eqn, names, inner));
  const outputs = program.outputs.map((a) => names.atom(a)).join(", ");
  const plain = (text: string): Line => ({ text });
  return [plain(`(${inputs}) {`), ...body, plain(`${inner}return ${outputs}`.trimEnd()), plain(`${indent}}`)];
}

function eqnLines(eqn: Eqn, names: Names, indent: string): Line[] {
  const ins = eqn.ins.map((a) => ` ${names.atom(a)}`).join("");
  const params = opForm<Eqn["op"]>(eqn.op).print(eqn.params, eqn.ins).join(", ");
  const bodies = innerPrograms(eqn);
  const outs = eqn.outs.map((v) => names.typed(v)).join(", ");
  const head = `${indent}${outs}${outs ? " = " : ""}${eqn.op}${ins}${params ? ` {${params}}` : ""}`;
  let last: Line = { text: head, source: eqn.source };
  const text = [last];
  for (const [name, program] of bodies) {
    const [first, ...rest] = lines(program, names.counter, indent);
    last.text += bodies.length === 1 ? ` ${first?.text}` : ` ${name} ${first?.text}`;
    text.push(...rest);
    last = text.at(-1) ?? last;
  }
  return text;
}
