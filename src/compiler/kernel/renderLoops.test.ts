import { expect, test } from "vitest";
import { printKernel } from "../../../test/support/compilerText.js";
import { type ArgMemory, interpretKernel, randomMemory } from "../../../test/support/kernelReference.js";
import type { DType } from "../../ir/dtype.js";
import { at, range } from "../../ir/shape.js";
import type { Combine } from "../identities.js";
import { BASELINE_FEATURES } from "../wasm/features.js";
import type { Ports, Vec, VecInstruction } from "../wasm/vectorProgram.js";
import { canonical } from "./canonical.js";
import {
  type Iota,
  type Loop,
  type LoopStage,
  type LoopTerm,
  planLoops,
  type Reduce,
  type SectionPlan,
  type Store,
  type Stream,
} from "./loopPlan.js";
import { planKernel } from "./phases.js";
import { type LoopRenderer, type Position, renderLoops } from "./renderLoops.js";
import type { KernelNode, KernelSpec } from "./spec.js";

const OPS: { readonly [op: string]: string } = {
  "f32x4.add": "a + b",
  "f32x4.sub": "a - b",
  "f32x4.mul": "a * b",
  "f32x4.max": "Math.max(a, b)",
  "f32x4.min": "Math.min(a, b)",
  "f32x4.neg": "-a",
  "f32x4.convert_i32x4_s": "a",
};

function expression(op: string, a = "", b = ""): string {
  const form = OPS[op];
  if (form === undefined) throw new Error(`no JavaScript for ${op}`);
  return `Math.fround(${form.replace(/\b[ab]\b/g, (name) => (name === "a" ? a : b))})`;
}

/** Writes loops as JavaScript on float32 and int32: values are the names of variables, and vectors have one element. */
class JavaScriptRenderer implements LoopRenderer<string> {
  readonly lines: string[] = [];
  private readonly moved = new Map<Stream, string>();
  private readonly partials = new Map<Reduce, string>();
  private numNames = 0;

  private name(value: string): string {
    const name = `x${this.numNames++}`;
    this.lines.push(`let ${name} = ${value};`);
    return name;
  }

  private sum(terms: readonly LoopTerm[], step: number, first: number): string {
    return [...terms.map(({ dim, factor }) => `i${dim} * ${factor}`), `(i + ${first}) * ${step}`].join(" + ");
  }

  private element(stream: Stream, first: number): string {
    const { arg, offset, terms, step, index } = stream;
    const own = `${offset} + ${this.sum(terms, step, first)}`;
    if (!index) return `args[${arg}][origins[${arg}] + ${own}]`;
    const read = this.element(index.stream, first);
    const moved =
      this.moved.get(stream) ?? `Math.max(0, Math.min(${read}, ${index.limit - 1})) * ${index.factor}`;
    return `args[${arg}][origins[${arg}] + ${own} + ${moved}]`;
  }

  loop({ dim, count }: Loop, body: () => void): void {
    this.lines.push(`for (let i${dim} = 0; i${dim} < ${count}; i${dim}++) {`);
    body();
    this.lines.push("}");
  }

  open({ outputs, numPartials }: SectionPlan): void {
    for (const output of outputs) {
      if (output.kind !== "reduce") continue;
      const identity = new Float32Array(new Uint32Array(output.identity).buffer)[0];
      this.partials.set(output, this.name(`new Float32Array(${numPartials}).fill(${identity})`));
    }
  }

  start(): void {
    this.lines.push("i = 0;");
  }

  whereInRange(stream: Stream, body: () => void): void {
    this.guard(stream, 0, body);
  }

  private guard(stream: Stream, first: number, body: () => void): void {
    const { index } = stream;
    if (!index) throw new Error("a stream without an index");
    const place = this.name(this.element(index.stream, first));
    this.moved.set(stream, `${place} * ${index.factor}`);
    this.lines.push(`if (${place} >= 0 && ${place} < ${index.limit}) {`);
    body();
    this.lines.push("}");
  }

  stage(section: SectionPlan, stage: LoopStage, ports: Ports<string>): void {
    this.lines.push(`for (let turn = 0; turn < ${stage.count}; turn++) {`);
    for (const copy of range(stage.copies)) {
      const values = new Map<Vec, string>();
      const value = (vec: Vec | undefined) => values.get(vec ?? (0 as Vec)) ?? "";
      section.program.instructions.forEach((instruction, i) => {
        const name = this.name(this.compute(instruction, section, value));
        if (instruction.kind === "input") ports.input(instruction.slot, copy, name);
        values.set(i as Vec, name);
      });
      section.program.outputs.forEach((output, i) => {
        ports.output(i, copy, value(output));
      });
    }
    this.lines.push(`i += ${stage.elements}; }`);
  }

  private compute(instruction: VecInstruction, section: SectionPlan, value: (vec?: Vec) => string): string {
    switch (instruction.kind) {
      case "input":
        return "0";
      case "uniform":
        return `row[${at(section.uniforms, instruction.slot)}]`;
      case "constant":
        return String(new Float32Array(new Uint32Array(instruction.words).buffer)[0]);
      case "vector":
        return expression(instruction.op, ...instruction.args.map(value));
      default:
        throw new Error(`no JavaScript for ${instruction.kind}`);
    }
  }

  load(to: string, stream: Stream, { first }: Position): void {
    this.lines.push(`${to} = ${this.element(stream, first)};`);
  }

  iota(to: string, { terms, step }: Iota, { first }: Position): void {
    this.lines.push(`${to} = ${this.sum(terms, step, first)};`);
  }

  store(value: string, { stream, combine }: Store, { first }: Position): void {
    const write = () => {
      const place = this.element(stream, first);
      this.lines.push(`${place} = ${combine ? expression(combine, place, value) : value};`);
    };
    if (stream.index && stream.index.stream.step !== 0) this.guard(stream, first, write);
    else write();
  }

  accumulate(value: string, reduction: Reduce, { copy }: Position): void {
    const partial = `${this.partials.get(reduction)}[${copy}]`;
    this.lines.push(`${partial} = ${expression(reduction.combine, partial, value)};`);
  }

  join(reduction: Reduce, first: number, second: number): void {
    const name = this.partials.get(reduction);
    this.lines.push(
      `${name}[${first}] = ${expression(reduction.combine, `${name}[${first}]`, `${name}[${second}]`)};`,
    );
  }

  finish(reduction: Reduce): void {
    expect(reduction.folds).toEqual([]);
    this.keep(`${this.partials.get(reduction)}[0]`, reduction.node);
  }

  keep(value: string, node: number): void {
    this.lines.push(`row[${node}] = ${value};`);
  }
}

function run(spec: KernelSpec, memory: readonly ArgMemory[]): ArgMemory[] {
  const plan = planLoops(planKernel(canonical(spec), BASELINE_FEATURES), false, {
    widths: [1],
    copies: () => 2,
  });
  const renderer = new JavaScriptRenderer();
  renderLoops(plan, renderer);
  const values = memory.map((arg) => Float32Array.from(arg.values));
  new Function("args", "origins", `const row = []; let i = 0;\n${renderer.lines.join("\n")}`)(
    values,
    memory.map(({ origin }) => origin),
  );
  return memory.map((arg, i) => ({ ...arg, values: Array.from(at(values, i)) }));
}

const FLOAT = { from: "float32", to: "float32" } as const;

/** A kernel over rows with a value of the row, elements, integers, an index, and a reduction that elements read. */
function kernel(length: number, combine: Combine, more: Partial<KernelSpec> = {}): KernelSpec {
  const op = (name: "add" | "mul" | "sub", ...args: number[]): KernelNode => {
    return { kind: "op", dtype: "float32", call: { op: name, ...FLOAT }, args, result: 0 };
  };
  const load = (arg: number, strides: number[]): KernelNode => {
    return { kind: "load", dtype: "float32", access: { arg, strides } };
  };
  const indices: DType = "int32";
  return {
    dims: [3, 2, length],
    numRows: 1,
    args: ["float32", "float32", "float32", "float32", indices, "float32"],
    nodes: [
      load(0, [2 * length, length, 1]),
      load(1, [1, 0, 0]),
      { kind: "iota", dtype: "float32", coefficients: [5, 2, 1] },
      op("add", 0, 2),
      op("mul", 3, 1),
      { kind: "reduce", dtype: "float32", combine, arg: 4 },
      op("sub", 4, 5),
      {
        kind: "load",
        dtype: "float32",
        access: { arg: 5, strides: [0, 0, 0] },
        index: { access: { arg: 4, strides: [0, 0, 1] }, stride: 2, limit: 4 },
      },
      op("add", 6, 7),
    ],
    stores: [
      { node: 8, access: { arg: 2, strides: [2 * length, length, 1] }, combine: "sum" },
      { node: 5, access: { arg: 3, strides: [1, 0, 0] } },
    ],
    fills: [],
    ...more,
  };
}

const compare = (spec: KernelSpec, seed: number) => {
  const memory = randomMemory(spec, seed);
  expect(run(spec, memory), printKernel(spec)).toEqual(interpretKernel(spec, memory));
};

test("a renderer that knows neither vectors nor registers gives the values of the reference engine", () => {
  for (const length of [1, 2, 3, 7, 8, 9, 16, 31]) {
    for (const combine of ["sum", "max", "min"] as const) compare(kernel(length, combine), length);
  }
});

test("values that an index sends out of range are dropped, for every row and for every element", () => {
  for (const [perRow, perElement] of [
    [1, 0],
    [0, 1],
  ] as const) {
    const index = {
      access: { arg: 4, strides: [perRow, 0, perElement] },
      ...{ stride: 40, limit: 3 },
    };
    const access = { arg: 2, strides: [0, 0, 1] };
    compare(kernel(9, "max", { stores: [{ node: 8, access, index, combine: "sum" }] }), perElement);
  }
});
