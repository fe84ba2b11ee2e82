import { byteSize, type DType, isUnsigned } from "../../ir/dtype.js";
import { at } from "../../ir/shape.js";
import type { ShaderRegister, WgslWriter } from "./registers.js";
import { BINDING, type ShaderSlabs, type SlabElement } from "./shaderSlabs.js";
import { functionsCode } from "./wgslFunctions.js";

/**
 * How shaders reach memory. All tensors of a GPU lie in a few large buffers, the *slabs*, as 32-bit words. An argument
 * of a shader is the number of a slot and an offset in bytes; the address table says where the slot is in its slab. Which
 * slab that is, the host knows when it records a step, and it chooses the shader accordingly (`shaderSlabs.ts`).
 */

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

/** The lines before the main function. @param slabs those that declare the slabs */
export function declarations(numParams: number, slabs: readonly string[], writesTable = false): string {
  const lines = [
    `@group(0) @binding(${BINDING.params}) var<uniform> params: array<vec4<u32>, ${Math.max(1, Math.ceil(numParams / 4))}>;`,
    `@group(0) @binding(${BINDING.table}) var<storage, ${writesTable ? "read_write" : "read"}> table: array<u32>;`,
    ...slabs,
  ];
  return lines.join("\n");
}

/** The builtin values that are no vectors. */
const SCALARS: ReadonlySet<string> = new Set([
  "local_invocation_index",
  "subgroup_invocation_id",
  "subgroup_id",
]);

/**
 * The whole text of a shader: declarations, the library's functions, and the main function.
 *
 * @param numbered lines that compute `workgroup_id` from the workgroup's place in the grid, if it is not that
 */
export function shaderCode(
  head: string,
  w: WgslWriter,
  size: number,
  builtins: readonly string[] = ["global_invocation_id", "num_workgroups"],
  numbered: readonly string[] = [],
): string {
  const parameters = builtins.map((name) => {
    const variable = name === "workgroup_id" && numbered.length > 0 ? "place" : name;
    return `@builtin(${name}) ${variable}: ${SCALARS.has(name) ? "u32" : "vec3<u32>"}`;
  });
  return [
    head,
    functionsCode(w.used),
    `@compute @workgroup_size(${size})`,
    `fn main(${parameters.join(", ")}) {`,
    ...numbered,
    ...w.lines,
    "}",
  ].join("\n");
}

/** Workgroups that a grid of every GPU may have along each of its dims. */
const MAX_WORKGROUPS = 65_535;

/** A shader whose workgroups lie in a grid of three dims. */
export interface GridShader {
  readonly code: string;
  readonly workgroups: Grid;
}

type Grid = readonly [number, number, number];

/**
 * The text of a shader whose workgroups lie in a grid; if that is too long along a dim, they are numbered in two.
 *
 * @param builtins others than `workgroup_id`
 */
export function gridShader(
  head: string,
  w: WgslWriter,
  size: number,
  builtins: readonly string[],
  workgroups: Grid,
): GridShader {
  if (Math.max(...workgroups) <= MAX_WORKGROUPS)
    return { code: shaderCode(head, w, size, ["workgroup_id", ...builtins]), workgroups };
  const [x, y] = workgroups;
  const total = workgroups.reduce((product, count) => product * count, 1);
  const rows = Math.ceil(total / MAX_WORKGROUPS);
  const numbered = [
    "let number = place.x + place.y * num_workgroups.x;",
    `if (number >= ${total}u) { return; }`,
    `let workgroup_id = vec3<u32>(number % ${x}u, number / ${x}u % ${y}u, number / ${x * y}u);`,
  ];
  return {
    code: shaderCode(head, w, size, ["workgroup_id", "num_workgroups", ...builtins], numbered),
    workgroups: [Math.ceil(total / rows), rows, 1],
  };
}

/** The arguments of a shader and how their elements are read and written. */
export class ShaderArguments {
  private readonly atomic = new Set<number>();

  /**
   * @param dtypes the type of each argument's elements
   * @param stored the arguments that are written
   * @param inVectors whether slabs are vectors of four words; arguments of narrow types must not be stored then
   */
  constructor(
    private readonly dtypes: readonly DType[],
    private readonly slabs: ShaderSlabs,
    stored: Iterable<number>,
    private readonly inVectors = false,
  ) {
    // Threads write neighbouring elements of narrow types in one word.
    for (const arg of stored) if (byteSize(at(dtypes, arg)) < 4) this.atomic.add(slabs.of(arg));
  }

  /** The declarations of the shader, for this many parameter words after those of the arguments. */
  declarations(extra = 0, element: SlabElement = this.inVectors ? "vec4<u32>" : "u32"): string {
    const slabs = this.slabs.declarations((slab) => (this.atomic.has(slab) ? "atomic<u32>" : element));
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
    if (byteSize(dtype) === 4) {
      w.line(this.setWord(arg, `a${arg} + ${element}`, w.bits(value)));
      return;
    }
    if (byteSize(dtype) === 8) {
      const index = w.let(`a${arg} + 2u * (${element})`);
      const pair = w.let(w.pair(value));
      w.line(this.setWord(arg, index, `bitcast<u32>(${pair}.x)`));
      w.line(this.setWord(arg, `${index} + 1u`, `bitcast<u32>(${pair}.y)`));
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
    w.line(`${this.slabs.atomic("atomicAnd", arg, word, `~(${mask} << ${shift})`)};`);
    w.line(`${this.slabs.atomic("atomicOr", arg, word, stored)};`);
  }

  private word(arg: number, index: string): string {
    if (this.atomic.has(this.slabs.of(arg))) return this.slabs.atomic("atomicLoad", arg, index);
    if (!this.inVectors) return this.slabs.read(arg, index);
    return `${this.slabs.read(arg, `(${index}) >> 2u`)}[(${index}) & 3u]`;
  }

  private setWord(arg: number, index: string, bits: string): string {
    if (this.atomic.has(this.slabs.of(arg))) return `${this.slabs.atomic("atomicStore", arg, index, bits)};`;
    if (!this.inVectors) return this.slabs.write(arg, index, bits);
    return this.slabs.writeComponent(arg, `(${index}) >> 2u`, `(${index}) & 3u`, bits);
  }

  /** The four words from an element on, which begins a vector. */
  vector(arg: number, element: string): string {
    return this.slabs.read(arg, `(a${arg} + ${element}) >> 2u`);
  }

  /** Writes the four words from an element on, which begins a vector. */
  storeVector(arg: number, element: string, value: string): string {
    return this.slabs.write(arg, `(a${arg} + ${element}) >> 2u`, value);
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
