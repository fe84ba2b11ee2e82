import {
  axesSize,
  type DimConstraint,
  formatMesh,
  formatSpec,
  type MeshAxis,
  type MeshShape,
  type Spec,
} from "./mesh.js";
import type { RematPolicy } from "./ops.js";
import { type Atom, type Eqn, innerPrograms, type Program, type Var } from "./program.js";
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
 */
export function printProgram(program: Program): string {
  return lines(program, new Names(), "").join("\n");
}

/** One equation as a line of {@link printProgram}, for messages. */
export function printEqn(eqn: Eqn): string {
  return eqnLines(eqn, new Names(), "").join("\n");
}

class Names {
  private readonly numbers = new Map<number, number>();

  of(variable: Var): string {
    let n = this.numbers.get(variable.id);
    if (n === undefined) {
      n = this.numbers.size;
      this.numbers.set(variable.id, n);
    }
    return `%${n}`;
  }

  typed(variable: Var): string {
    return `${this.of(variable)}:${formatType(variable.type)}`;
  }

  atom(atom: Atom): string {
    return atom.kind === "var" ? this.of(atom) : formatLiteral(atom.value, atom.type.dtype);
  }
}

function formatLiteral(value: number, dtype: string): string {
  if (dtype === "bool") return value ? "true" : "false";
  const text = Object.is(value, -0) ? "-0" : String(value);
  if (dtype === "int32") return text;
  if (dtype === "uint32") return `${text}u`;
  const float = Number.isInteger(value) && Math.abs(value) < 1e21 ? `${text}.0` : text;
  return dtype === "float32" ? float : `${float}:${dtype}`;
}

function lines(program: Program, names: Names, indent: string): string[] {
  const inner = `${indent}  `;
  const inputs = program.inputs.map((v) => names.typed(v)).join(", ");
  const body = program.eqns.flatMap((eqn) => eqnLines(eqn, names, inner));
  const outputs = program.outputs.map((a) => names.atom(a)).join(", ");
  return [`(${inputs}) {`, ...body, `${inner}return ${outputs}`, `${indent}}`];
}

function eqnLines(eqn: Eqn, names: Names, indent: string): string[] {
  const ins = eqn.ins.map((a) => ` ${names.atom(a)}`).join("");
  const params = formatParams(eqn);
  const bodies = innerPrograms(eqn);
  const outs = eqn.outs.map((v) => names.typed(v)).join(", ");
  const head = `${indent}${outs}${outs ? " = " : ""}${eqn.op}${ins}${params ? ` {${params}}` : ""}`;
  if (bodies.length === 0) return [head];
  const blocks = bodies.map(([name, program]) => {
    const [first, ...rest] = lines(program, names, indent);
    return [bodies.length === 1 ? `${first}` : `${name} ${first}`, ...rest];
  });
  const text = [`${head} ${blocks[0]?.[0]}`, ...(blocks[0]?.slice(1) ?? [])];
  for (const [first, ...rest] of blocks.slice(1)) {
    text[text.length - 1] += ` ${first}`;
    text.push(...rest);
  }
  return text;
}

function formatParams(eqn: Eqn): string {
  switch (eqn.op) {
    case "dotGeneral": {
      const { lhsContract, rhsContract, lhsBatch, rhsBatch, dtype } = eqn.params;
      const parts = [`contract: [${lhsContract}]x[${rhsContract}]`];
      if (lhsBatch.length > 0) parts.push(`batch: [${lhsBatch}]x[${rhsBatch}]`);
      if (eqn.ins.some((a) => a.type.dtype !== dtype)) parts.push(`dtype: ${dtype}`);
      return parts.join(", ");
    }
    case "shardMap": {
      const { mesh, manual, inSpecs, outSpecs } = eqn.params;
      const partial = manual.length < mesh.axes.length ? `, manual: [${manual}]` : "";
      return `mesh: ${formatMesh(mesh)}${partial}, in: ${formatSpecs(inSpecs)}, out: ${formatSpecs(outSpecs)}`;
    }
    default:
      return Object.entries(eqn.params)
        .filter(([name]) => !isBody(eqn, name))
        .map(([name, value]) => `${name}: ${formatValue(name, value)}`)
        .join(", ");
  }
}

function isBody(eqn: Eqn, name: string): boolean {
  return name === "branches" || innerPrograms(eqn).some(([body]) => body === name);
}

function formatSpecs(specs: readonly Spec[]): string {
  return `[${specs.map(formatSpec).join(", ")}]`;
}

type ParamValue = OpValue | readonly OpValue[];
type OpValue =
  | string
  | number
  | boolean
  | MeshShape
  | RematPolicy
  | MeshAxis
  | DimConstraint
  | readonly [number, number]
  | object;

function formatValue(name: string, value: ParamValue): string {
  if (name === "axes") {
    const axes = value as readonly MeshAxis[];
    return `[${axes.map((axis) => axis.name)}]x${axesSize(axes)}`;
  }
  if (name === "mesh") return formatMesh(value as MeshShape);
  if (name === "spec") return formatSpec(value as readonly DimConstraint[]);
  if (name === "policy") return formatPolicy(value as RematPolicy);
  if (name === "name") return JSON.stringify(value);
  if (name === "permutation" && Array.isArray(value) && Array.isArray(value[0])) {
    return `[${(value as [number, number][]).map(([s, t]) => `${s}→${t}`).join(" ")}]`;
  }
  return Array.isArray(value) ? `[${value}]` : String(value);
}

/** The printed form of a remat policy. */
export function formatPolicy(policy: RematPolicy): string {
  switch (policy.kind) {
    case "names":
    case "exceptNames":
      return `${policy.kind}(${policy.names.join(", ")})`;
    case "either":
      return policy.policies.map(formatPolicy).join(" | ");
    default:
      return policy.kind;
  }
}
