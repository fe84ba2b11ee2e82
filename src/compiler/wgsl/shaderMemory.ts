import { byteSize, type DType, isUnsigned } from "../../ir/dtype.js";
import { at, range } from "../../ir/shape.js";
import type { ShaderRegister, WgslWriter } from "./registers.js";
import { functionsCode } from "./wgslFunctions.js";

/**
 * How shaders reach memory. All tensors of a GPU lie in a few large buffers, the *slabs*, as 32-bit words. An argument
 * of a shader is the number of a slot and an offset in bytes; the address table says where the slot is in its slab. Which
 * slab that is, the host knows when it records a step, and it chooses the shader accordingly.
 */

/** Bindings of a shader: its parameters, the address table, then the slabs. */
export const BINDING = { params: 0, table: 1, slabs: 2 } as const;

/** Words of parameters for each argument: slot and offset. */
export const WORDS_PER_ARG = 2;

/** A shader, ready to be compiled. */
export interface WgslShader {
  readonly code: string;
  /** The number of workgroups that it takes; they may be arranged in two dims. */
  readonly workgroups: number;
}

/** The code of a parameter word. */
export function param(index: number): string {
  return `params[${Math.floor(index / 4)}][${index % 4}]`;
}

/** Maximum number of parameter words of a shader, which decides how far apart the parameters of steps lie. */
export const MAX_PARAMS = 256;

/** How a shader sees a slab. */
export type SlabElement = "u32" | "atomic<u32>" | "vec4<f32>" | "vec4<u32>";

/** The lines before the main function. */
export function declarations(numParams: number, slabs: readonly SlabElement[], writesTable = false): string {
  const lines = [
    `@group(0) @binding(${BINDING.params}) var<uniform> params: array<vec4<u32>, ${Math.max(1, Math.ceil(numParams / 4))}>;`,
    `@group(0) @binding(${BINDING.table}) var<storage, ${writesTable ? "read_write" : "read"}> table: array<u32>;`,
    ...slabs.map(
      (element, i) =>
        `@group(0) @binding(${BINDING.slabs + i}) var<storage, read_write> slab${i}: array<${element}>;`,
    ),
  ];
  return lines.join("\n");
}

/** The builtin values that are no vectors. */
const SCALARS: ReadonlySet<string> = new Set([
  "local_invocation_index",
  "subgroup_invocation_id",
  "subgroup_id",
]);

/** The whole text of a shader: declarations, the library's functions, and the main function. */
export function shaderCode(
  head: string,
  w: WgslWriter,
  size: number,
  builtins: readonly string[] = ["global_invocation_id", "num_workgroups"],
): string {
  const parameters = builtins.map(
    (name) => `@builtin(${name}) ${name}: ${SCALARS.has(name) ? "u32" : "vec3<u32>"}`,
  );
  return [
    head,
    functionsCode(w.used),
    `@compute @workgroup_size(${size})`,
    `fn main(${parameters.join(", ")}) {`,
    ...w.lines,
    "}",
  ].join("\n");
}

/** The arguments of a shader and how their elements are read and written. */
export class ShaderArguments {
  private readonly atomic = new Set<number>();
  private readonly numSlabs: number;

  /**
   * @param dtypes the type of each argument's elements
   * @param slabs the slab of each argument, numbered from 0
   * @param stored the arguments that are written
   * @param inVectors whether slabs are vectors of four words; arguments of narrow types must not be stored then
   */
  constructor(
    private readonly dtypes: readonly DType[],
    private readonly slabs: readonly number[],
    stored: Iterable<number>,
    private readonly inVectors = false,
  ) {
    this.numSlabs = Math.max(0, ...slabs.map((slab) => slab + 1));
    // Threads write neighbouring elements of narrow types in one word.
    for (const arg of stored) if (byteSize(at(dtypes, arg)) < 4) this.atomic.add(at(slabs, arg));
  }

  /** The declarations of the shader, for this many parameter words after those of the arguments. */
  declarations(extra = 0, element: SlabElement = this.inVectors ? "vec4<u32>" : "u32"): string {
    const slabs = range(this.numSlabs).map((slab) => (this.atomic.has(slab) ? "atomic<u32>" : element));
    return declarations(WORDS_PER_ARG * this.dtypes.length + extra, slabs);
  }

  /** Finds the addresses of all arguments, in bytes, and in words for types of 32 bits. */
  open(w: WgslWriter): void {
    this.dtypes.forEach((dtype, arg) => {
      const [slot, offset] = [param(WORDS_PER_ARG * arg), param(WORDS_PER_ARG * arg + 1)];
      const address = `table[${slot}] + ${offset}`;
      w.line(`let a${arg} = ${byteSize(dtype) >= 4 ? `(${address}) >> 2u` : address};`);
    });
  }

  /** The element with an index. */
  load(w: WgslWriter, arg: number, element: string): ShaderRegister {
    const dtype = at(this.dtypes, arg);
    if (byteSize(dtype) === 4) return { bits: w.let(this.word(arg, `a${arg} + ${element}`)) };
    if (byteSize(dtype) === 8) {
      const index = w.let(`a${arg} + 2u * (${element})`);
      const [first, second] = [index, `${index} + 1u`].map((at) => `bitcast<f32>(${this.word(arg, at)})`);
      return { pair: w.let(`vec2<f32>(${first}, ${second})`) };
    }
    const { address, shift, bits } = this.place(w, arg, element);
    const raw = `(${this.word(arg, `${address} >> 2u`)} >> ${shift})`;
    if (dtype === "bool") return { flag: w.let(`(${raw} & 0xffu) != 0u`) };
    const isSigned = dtype.startsWith("int") && !isUnsigned(dtype);
    if (!isSigned) return { bits: w.let(`${raw} & ${bits === 8 ? "0xffu" : "0xffffu"}`) };
    return { bits: w.let(`bitcast<u32>(bitcast<i32>(${raw} << ${32 - bits}u) >> ${32 - bits}u)`) };
  }

  /** Writes an element. */
  store(w: WgslWriter, arg: number, element: string, value: ShaderRegister): void {
    const dtype = at(this.dtypes, arg);
    const slab = at(this.slabs, arg);
    if (byteSize(dtype) === 4) {
      const index = `a${arg} + ${element}`;
      if (this.atomic.has(slab)) w.line(`atomicStore(&slab${slab}[${index}], ${w.bits(value)});`);
      else w.line(`${this.word(arg, index)} = ${w.bits(value)};`);
      return;
    }
    if (byteSize(dtype) === 8) {
      const index = w.let(`a${arg} + 2u * (${element})`);
      const pair = w.let(w.pair(value));
      const word = (at: string, bits: string) =>
        this.atomic.has(slab)
          ? `atomicStore(&slab${slab}[${at}], ${bits});`
          : `${this.word(arg, at)} = ${bits};`;
      w.line(word(index, `bitcast<u32>(${pair}.x)`));
      w.line(word(`${index} + 1u`, `bitcast<u32>(${pair}.y)`));
      return;
    }
    const { address, shift, bits } = this.place(w, arg, element);
    const mask = bits === 8 ? "0xffu" : "0xffffu";
    const plain =
      dtype === "bool"
        ? `select(0u, 1u, ${value.flag ?? `${w.bits(value)} != 0u`})`
        : `(${w.bits(value)} & ${mask})`;
    const word = w.let(`${address} >> 2u`);
    const stored = w.let(`${plain} << ${shift}`);
    w.line(`atomicAnd(&slab${slab}[${word}], ~(${mask} << ${shift}));`);
    w.line(`atomicOr(&slab${slab}[${word}], ${stored});`);
  }

  private word(arg: number, index: string): string {
    const slab = at(this.slabs, arg);
    if (this.atomic.has(slab)) return `atomicLoad(&slab${slab}[${index}])`;
    return this.inVectors ? `slab${slab}[(${index}) >> 2u][(${index}) & 3u]` : `slab${slab}[${index}]`;
  }

  /** The four words from an element on, which begins a vector. */
  vector(arg: number, element: string): string {
    return `slab${at(this.slabs, arg)}[(a${arg} + ${element}) >> 2u]`;
  }

  private place(w: WgslWriter, arg: number, element: string) {
    const size = byteSize(at(this.dtypes, arg));
    const address = w.let(`a${arg} + ${size === 1 ? element : `${size}u * (${element})`}`);
    return { address, shift: w.let(`(${address} & 3u) * 8u`), bits: 8 * size };
  }
}

/** The number of the thread, in a grid that may have two dims, for workgroups of this size. */
export function threadNumber(size: number): string {
  return `global_invocation_id.x + global_invocation_id.y * (num_workgroups.x * ${size}u)`;
}
