import { needProgram } from "./checkProgram.js";
import { isInteger } from "./dtype.js";
import { opForm } from "./forms.js";
import { formatMesh } from "./mesh.js";
import { type Atom, type Eqn, innerPrograms, type Literal, type Program, type Var } from "./program.js";
import { formatType } from "./shape.js";

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
 * The text holds everything except the source lines of the equations; `parseProgram` reads it back.
 */
export function printProgram(program: Program): string {
  needProgram(program, "printProgram");
  return lines(program, { next: 0 }, "").join("\n");
}

/** One equation as a line of {@link printProgram}, for messages. */
export function printEqn(eqn: Eqn): string {
  return eqnLines(eqn, new Names({ next: 0 }), "").join("\n");
}

/** The names of one program's values; numbering continues through the programs inside it. */
class Names {
  private readonly numbers = new Map<number, number>();

  constructor(readonly counter: { next: number }) {}

  of(variable: Var): string {
    const number = this.numbers.get(variable.id) ?? this.counter.next++;
    this.numbers.set(variable.id, number);
    return `%${number}`;
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

function lines(program: Program, counter: { next: number }, indent: string): string[] {
  const names = new Names(counter);
  const inner = `${indent}  `;
  const inputs = program.inputs.map((v) => names.typed(v)).join(", ");
  const body = program.eqns.flatMap((eqn) => eqnLines(eqn, names, inner));
  const outputs = program.outputs.map((a) => names.atom(a)).join(", ");
  return [`(${inputs}) {`, ...body, `${inner}return ${outputs}`.trimEnd(), `${indent}}`];
}

function eqnLines(eqn: Eqn, names: Names, indent: string): string[] {
  const ins = eqn.ins.map((a) => ` ${names.atom(a)}`).join("");
  const params = opForm<Eqn["op"]>(eqn.op).print(eqn.params, eqn.ins).join(", ");
  const bodies = innerPrograms(eqn);
  const outs = eqn.outs.map((v) => names.typed(v)).join(", ");
  const head = `${indent}${outs}${outs ? " = " : ""}${eqn.op}${ins}${params ? ` {${params}}` : ""}`;
  const text = [head];
  for (const [name, program] of bodies) {
    const [first, ...rest] = lines(program, names.counter, indent);
    text[text.length - 1] += bodies.length === 1 ? ` ${first}` : ` ${name} ${first}`;
    text.push(...rest);
  }
  return text;
}
