import { getOrInsert } from "../../ir/collections.js";
import { InternalError } from "../../ir/errors.js";
import { Recent } from "../../ir/recent.js";
import { scalarFunctions } from "../../ir/scalarFunctions.js";
import { at } from "../../ir/shape.js";
import type { AttentionCode, AttentionKernel } from "../attention/attentionKernel.js";
import type { KernelModule } from "../steps.js";
import type { AddressType } from "../wasm/addresses.js";
import { ModuleBuilder, sharedMemory } from "../wasm/assembler.js";
import { importHostFunctions } from "../wasm/emitInterleaved.js";
import type { WasmFeatures } from "../wasm/features.js";
import type { FunctionBody } from "../wasm/functionBody.js";
import { canonical } from "./canonical.js";
import { cut, divide } from "./divide.js";
import { exactKey } from "./exactKey.js";
import { markBelowZero } from "./markBelowZero.js";
import { type KernelPlan, planKernel, spillBytes } from "./phases.js";
import type { KernelSpec } from "./spec.js";
import { sumRows } from "./sumRows.js";
import { emitKernel } from "./wasmRenderer.js";

/** What a kernel computes: loops, or an attention. */
export type LibraryPlan = KernelPlan | AttentionKernel;

/** A kernel of the library. */
export interface LibraryKernel<Plan extends LibraryPlan = KernelPlan> {
  readonly index: number;
  readonly plan: Plan;
  /** Scratch that the kernel takes as further arguments, for all threads that may run parts of it. */
  readonly spillBytes: readonly number[];
  /** Number of iterations of the outermost loop that threads can share; undefined if they cannot. */
  readonly rows: number | undefined;
}

/** Writes the machine code of a kernel; undefined if it has to be WebAssembly. */
export type WriteKernel = (plan: LibraryPlan, isDivided: boolean) => Uint8Array<ArrayBuffer> | undefined;

/** Collects the kernels of a program; equal ones are compiled once. */
export class KernelLibrary {
  private readonly kernels: LibraryKernel<LibraryPlan>[] = [];
  private readonly known = new Map<string, LibraryKernel>();
  private readonly attentions = new Map<string, LibraryKernel<AttentionKernel>>();
  private readonly bySpec = new WeakMap<KernelSpec, LibraryKernel>();

  /**
   * @param parts how many threads may run parts of a kernel at the same time
   * @param attention how attention is one kernel, if it is
   */
  constructor(
    private readonly features: WasmFeatures,
    private readonly parts = 1,
    private readonly attention?: AttentionCode,
  ) {}

  /** The kernel of a spec. */
  add(spec: KernelSpec): LibraryKernel {
    return getOrInsert(this.bySpec, spec, () => this.find(spec));
  }

  private find(spec: KernelSpec): LibraryKernel {
    const simple = canonical(spec);
    const key = exactKey(simple);
    return getOrInsert(this.known, key, () => {
      const planned = plans.get(`${this.setting} ${key}`, () => planFor(simple, this.features, this.parts));
      const kernel = { index: this.kernels.length, ...planned };
      this.kernels.push(kernel);
      return kernel;
    });
  }

  /** The kernel of a canonical spec with a single loop, which becomes `count` iterations of an outer one. */
  addCut(spec: KernelSpec, count: number): LibraryKernel {
    const cutSpec = cut(spec, 0, count);
    return getOrInsert(this.known, `${count} ${exactKey(cutSpec)}`, () => {
      const plan = planKernel(markBelowZero(cutSpec), this.features);
      const kernel = { index: this.kernels.length, plan, spillBytes: [], rows: count };
      this.kernels.push(kernel);
      return kernel;
    });
  }

  /** The kernel of an attention. */
  addAttention(plan: AttentionKernel): LibraryKernel<AttentionKernel> {
    const { attention } = this;
    if (attention === undefined) throw new InternalError("[KernelLibrary] attention is not one kernel here");
    const key = exactKey(plan);
    return getOrInsert(this.attentions, key, () => {
      const kernel = {
        index: this.kernels.length,
        plan: attentions.get(key, () => plan),
        spillBytes: [attention.scratchBytes(plan) * this.parts],
        rows: attention.units(plan),
      };
      this.kernels.push(kernel);
      return kernel;
    });
  }

  private attentionIn(code: FunctionBody, plan: AttentionKernel): void {
    const { emit } = this.attention ?? {};
    if (emit === undefined)
      throw new InternalError("[KernelLibrary] attention in one kernel is not WebAssembly here");
    emit(code, plan, this.features);
  }

  /** What plans depend on besides the spec. */
  private get setting(): string {
    return `${exactKey(this.features)} ${this.parts}`;
  }

  /** The number of kernels. */
  get size(): number {
    return this.kernels.length;
  }

  /** What a kernel computes. */
  plan(index: number): LibraryPlan {
    return at(this.kernels, index).plan;
  }

  /**
   * All kernels, for a memory with addresses of this type: machine code where `write` returns some, else WebAssembly.
   */
  module(addressType: AddressType = "i32", write: WriteKernel = () => undefined): KernelModule {
    const builder = new ModuleBuilder();
    builder.importMemory(sharedMemory(addressType));
    const host = importHostFunctions(builder);
    const native = this.kernels.map(({ plan, rows }) => write(plan, rows !== undefined));
    const names = this.kernels.map(({ plan, index, rows }) => {
      const name = `k${index}`;
      const isDivided = rows !== undefined;
      if (native[index] !== undefined) return name;
      const params = [...KERNEL_PARAMS, ...(isDivided ? PART_PARAMS : [])];
      builder.function(
        { params, results: [] },
        (code) => {
          if (!("kind" in plan)) emitKernel(code, plan, host, isDivided);
          else this.attentionIn(code, plan);
        },
        name,
      );
      return name;
    });
    return { bytes: builder.toBytes(), exports: names, native };
  }
}

/** Recently used attentions, whose code is written once for equal ones. */
const attentions = new Recent<AttentionKernel>(64);

/** Recently used plans: a program that is compiled again, perhaps for other shapes, needs most of them. */
const plans = new Recent<Omit<LibraryKernel, "index">>(256);

function planFor(spec: KernelSpec, features: WasmFeatures, parts: number): Omit<LibraryKernel, "index"> {
  const divided = divide(spec, parts);
  const marked = markBelowZero(divided ?? spec);
  const plan = planKernel(features.gpu ? marked : sumRows(marked), features);
  return {
    plan,
    spillBytes: spillBytes(plan).map((bytes) => bytes * (divided ? parts : 1)),
    rows: divided?.dims[0],
  };
}

/** The addresses of the address table and of the argument list. */
const KERNEL_PARAMS = ["address", "address"] as const;
/** The first row of a part, the row after its last, and the part's number, which selects its scratch memory. */
const PART_PARAMS = ["i32", "i32", "i32"] as const;

/** What a kernel module is instantiated with. */
export function kernelImports(memory: WebAssembly.Memory): WebAssembly.Imports {
  return { env: { memory }, math: scalarFunctions };
}
