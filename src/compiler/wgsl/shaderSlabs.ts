import { at, range } from "../../ir/shape.js";

/** Bindings of a shader: its parameters, the address table, then the buffers of its slabs. */
export const BINDING = { params: 0, table: 1, slabs: 2 } as const;

/** How a shader sees a slab. */
export type SlabElement = "u32" | "atomic<u32>" | "vec4<f32>" | "vec4<u32>";

/** Slabs of several buffers. */
export interface DividedSlabs {
  /** Bytes of every buffer but the last of a slab, a multiple of 16. */
  readonly bytes: number;
  /** How many buffers each slab has. */
  readonly counts: readonly number[];
}

/**
 * The slabs in which the arguments of a shader lie. A shader reaches at most as many bytes of a buffer as the GPU allows,
 * so a slab of a larger tensor consists of several; functions choose among them by the index.
 */
export class ShaderSlabs {
  /** How many slabs there are. */
  readonly count: number;

  /**
   * @param ofArguments the slab of each argument, numbered from 0
   * @param divided how slabs are divided, unless each is one buffer
   */
  constructor(
    private readonly ofArguments: readonly number[],
    private readonly divided?: DividedSlabs,
  ) {
    this.count = Math.max(0, ...ofArguments.map((slab) => slab + 1));
  }

  get numArguments(): number {
    return this.ofArguments.length;
  }

  /** The slab of an argument. */
  of(arg: number): number {
    return at(this.ofArguments, arg);
  }

  /** The word or vector of an argument's slab with an index. */
  read(arg: number, index: string): string {
    const slab = this.of(arg);
    return this.isDivided(slab) ? `read_slab${slab}(${index})` : `slab${slab}[${index}]`;
  }

  /** Writes a word or a vector of an argument's slab. */
  write(arg: number, index: string, value: string): string {
    const slab = this.of(arg);
    return this.isDivided(slab)
      ? `write_slab${slab}(${index}, ${value});`
      : `slab${slab}[${index}] = ${value};`;
  }

  /** Writes one of the words of a vector. */
  writeComponent(arg: number, index: string, component: string, value: string): string {
    const slab = this.of(arg);
    return this.isDivided(slab)
      ? `write_component_slab${slab}(${index}, ${component}, ${value});`
      : `slab${slab}[${index}][${component}] = ${value};`;
  }

  /** Calls an atomic function with a word of an argument's slab. */
  atomic(name: AtomicFunction, arg: number, index: string, value?: string): string {
    const slab = this.of(arg);
    const rest = value === undefined ? "" : `, ${value}`;
    return this.isDivided(slab)
      ? `${name}_slab${slab}(${index}${rest})`
      : `${name}(&slab${slab}[${index}]${rest})`;
  }

  /** The buffers of all slabs, and the functions that choose among those of one. */
  declarations(element: (slab: number) => SlabElement): string[] {
    let binding: number = BINDING.slabs;
    return range(this.count).flatMap((slab) => {
      const names = this.isDivided(slab)
        ? range(this.numBuffers(slab)).map((part) => `slab${slab}_${part}`)
        : [`slab${slab}`];
      const type = element(slab);
      return [
        ...names.map(
          (name) => `@group(0) @binding(${binding++}) var<storage, read_write> ${name}: array<${type}>;`,
        ),
        ...(this.isDivided(slab) ? this.functions(slab, names, type) : []),
      ];
    });
  }

  private functions(slab: number, names: readonly string[], type: SlabElement): string[] {
    const length = (this.divided?.bytes ?? 0) / (type.startsWith("vec4") ? 16 : 4);
    /** The statement for the buffer of index i. */
    const choose = (statement: (place: string) => string) =>
      names.map((name, part) => {
        const own = statement(`${name}[${part === 0 ? "i" : `i - ${part * length}u`}]`);
        if (part === 0) return `if (i < ${length}u) { ${own} }`;
        return part === names.length - 1
          ? `else { ${own} }`
          : `else if (i < ${(part + 1) * length}u) { ${own} }`;
      });
    const chosen = (value: (place: string) => string) => [
      `var value: ${type === "atomic<u32>" ? "u32" : type};`,
      ...choose((place) => `value = ${value(place)};`),
      "return value;",
    ];
    if (type === "atomic<u32>") {
      return [
        `fn atomicLoad_slab${slab}(i: u32) -> u32 {`,
        ...chosen((place) => `atomicLoad(&${place})`),
        "}",
        ...(["atomicStore", "atomicAnd", "atomicOr"] as const).flatMap((name) => [
          `fn ${name}_slab${slab}(i: u32, value: u32) {`,
          ...choose((place) => `${name}(&${place}, value);`),
          "}",
        ]),
      ];
    }
    return [
      `fn read_slab${slab}(i: u32) -> ${type} {`,
      ...chosen((place) => place),
      "}",
      `fn write_slab${slab}(i: u32, value: ${type}) {`,
      ...choose((place) => `${place} = value;`),
      "}",
      ...(type === "vec4<u32>"
        ? [
            `fn write_component_slab${slab}(i: u32, component: u32, value: u32) {`,
            ...choose((place) => `${place}[component] = value;`),
            "}",
          ]
        : []),
    ];
  }

  private numBuffers(slab: number): number {
    return this.divided ? at(this.divided.counts, slab) : 1;
  }

  private isDivided(slab: number): boolean {
    return this.numBuffers(slab) > 1;
  }
}

/** The atomic functions that shaders call on words of memory. */
type AtomicFunction = "atomicLoad" | "atomicStore" | "atomicAnd" | "atomicOr";
