import type { HostFunction } from "../ir/callbacks.js";
import type { DType } from "../ir/dtype.js";
import type { MeshAxis } from "../ir/mesh.js";
import type { ControlRole } from "../ir/ops.js";
import type { TensorType } from "../ir/shape.js";

/**
 * The step list: what a compiled program is, and all that a runtime has to execute.
 *
 * ## Addresses
 *
 * Every step names memory by {@link SlotAddress}: a *slot* plus a constant byte offset. A slot is an index into the
 * **address table**, `program.slots.length` unsigned byte addresses that lie *inside the WebAssembly memory*: uint32,
 * or float64 if the memory's addresses have 64 bits (`viewAddresses`). There is one address table per device and loaded
 * program. The engine that runs the program fills it:
 *
 * * when the program is loaded on a device: `arena` slots with `arenaBase + offset`, `constant` slots with
 *   `constantsBase + offset`;
 * * at the start of every run: `input` and `output` slots with the addresses of the buffers of this run;
 * * while running: `dynamic` slots, which loop, while and address steps write before anything reads them.
 *
 * The arena is scratch memory: nothing in it survives a run, so all programs of a device can share one arena as
 * large as the largest `arenaBytes`. Bases and buffers are aligned to {@link ALIGNMENT} bytes. Kernels may read
 * up to {@link READ_SLACK} bytes past the end of a buffer (never write), so the memory must not end there.
 *
 * ## Running
 *
 * Steps run in order. None allocates. A kernel step is one call of an exported function with two addresses.
 * Within a device everything is sequential; only collectives see other devices.
 */
export interface CompiledProgram {
  /** For messages and traces. */
  readonly name: string;
  /** The kernels; compile every module once, post it to the workers, instantiate with `kernelImports(memory)`. */
  readonly modules: readonly KernelModule[];
  readonly steps: readonly Step[];
  /** How each word of the address table is filled. */
  readonly slots: readonly SlotBase[];
  /** Scratch memory one device needs while it runs. */
  readonly arenaBytes: number;
  /** The same page by page, if it was planned in pages, each of which has a slot. */
  readonly arenaPages?: readonly number[];
  /** Read-only bytes, copied into the memory once when the program is loaded; devices that share a memory share them. */
  readonly constants: Uint8Array;
  readonly inputs: readonly ProgramInput[];
  readonly outputs: readonly ProgramOutput[];
  readonly collectives: readonly CollectiveSpec[];
  /** The functions that callback steps call; they stay on the thread that made them. */
  readonly callbacks: readonly CallbackSpec[];
  /** What the steps do, for errors, traces and `explain`; `step.info` is an index into it. */
  readonly infos: readonly StepInfo[];
  readonly cost: ProgramCost;
}

/** The alignment in bytes of the arena, of the constants and of every input and output buffer. */
export const ALIGNMENT = 64;

/** How far past the end of a buffer a kernel may read. */
export const READ_SLACK = 64;

/** One WebAssembly module with many kernels, and machine code for those that are not in it. */
export interface KernelModule {
  readonly bytes: Uint8Array;
  /** The names of all kernels; a kernel step names one by its index here. */
  readonly exports: readonly string[];
  /** The machine code of kernels, by the same index; see `writeKernel`. The module does not export these. */
  readonly native: readonly (Uint8Array | undefined)[];
}

/** Where the address in one slot of the address table comes from. */
export type SlotBase =
  | {
      readonly kind: "arena";
      readonly offset: number /** Which one, if not the first. */;
      readonly page?: number;
    }
  | { readonly kind: "constant"; readonly offset: number }
  | { readonly kind: "input"; readonly index: number }
  | { readonly kind: "output"; readonly index: number }
  | { readonly kind: "dynamic" };

/** An address: the content of a slot plus a constant number of bytes. */
export interface SlotAddress {
  readonly slot: number;
  readonly offset: number;
}

/** One input buffer: dense, row-major. Never written unless it is donated. */
export interface ProgramInput {
  readonly type: TensorType;
  readonly bytes: number;
  /** Whether the run may leave anything in this buffer. */
  readonly overwritten: boolean;
}

/** One output buffer: dense, row-major. */
export interface ProgramOutput {
  readonly type: TensorType;
  readonly bytes: number;
  /**
   * The donated input whose buffer holds this result after the run; nothing is to be allocated and no slot of
   * kind `output` exists for it. Each input is named at most once. Undefined: the caller of the run allocates
   * `bytes` and fills the slot.
   */
  readonly inputIndex?: number | undefined;
}

/** How steps name what they work on: by places of a compiled program, or by buffers before the memory plan. */
export interface Naming {
  readonly place: unknown;
  readonly slot: unknown;
  readonly step: unknown;
  readonly collective: unknown;
}

/** The names in a compiled program; slots are indices into its table, collectives into `program.collectives`. */
export interface Compiled extends Naming {
  readonly place: SlotAddress;
  readonly slot: number;
  readonly step: Step;
  readonly collective: number;
}

/** One action of a device. */
export type Step =
  | KernelStep
  | GemmStep
  | CopyStep
  | HostStep
  | CallbackStep
  | AddressStep
  | AxisIndexStep
  | LoopStep
  | WhileStep
  | CondStep
  | StartStep
  | DoneStep;

/**
 * A call of `exports[step.kernel](tableAddress, argsAddress)` of one module, both unsigned byte addresses passed
 * as numbers: the device's address table, and `constantsBase + step.args`, where the program's constants hold one
 * pair of addresses `(size of an address * slot, offset)` for each buffer of the kernel, which finds them itself.
 */
export interface KernelStep {
  readonly op: "kernel";
  readonly module: number;
  readonly kernel: number;
  /** A byte offset into the constants. */
  readonly args: number;
  /** How many buffers the kernel takes. */
  readonly numArgs: number;
  /**
   * When the program was compiled for devices of several threads and the kernel can be shared among them: how many
   * rows there are. It then takes three more arguments, the first row of a part, the row after its last, and the
   * number of the part; parts with other numbers can run at the same time.
   */
  readonly rows?: number | undefined;
  /** Set if only the first of all rows need be computed, as many as groups have together. */
  readonly filled?: FilledRows<SlotAddress>;
  readonly info: number;
}

/** How many rows of a tensor have values, which is known when a step runs: as many as its groups have together. */
export interface FilledRows<Place> {
  /** The int32 sizes of the groups, one after the other. */
  readonly sizes: Place;
  readonly groups: number;
  /** The number of all rows. */
  readonly rows: number;
}

/**
 * `C = alpha * op(A) * op(B) + beta * C` for every index of the batch dims; all row-major, op(A) is m × k,
 * op(B) is k × n. Leading dimensions are in elements. Batch dims nest, outermost first; their strides are in
 * bytes and may be 0 for A and B. With `beta` 0 the old C is not read.
 */
export interface GemmStep<N extends Naming = Compiled> {
  readonly op: "gemm";
  /** The type of A and B, and of C; for bfloat16, and for float16, which only GPUs have, C is float32. */
  readonly dtype: "float32" | "float64" | "bfloat16" | "float16";
  readonly a: N["place"];
  readonly b: N["place"];
  readonly c: N["place"];
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** Whether A lies as k × m. */
  readonly transposeA: boolean;
  /** Whether B lies as n × k. */
  readonly transposeB: boolean;
  readonly lda: number;
  readonly ldb: number;
  readonly ldc: number;
  readonly alpha: number;
  readonly beta: number;
  readonly batch: readonly GemmBatch[];
  /** Set if the product is one of groups of rows, whose sizes are known when it runs. */
  readonly ragged?: RaggedGemm<N["place"]>;
  /** What is computed from every element of the result, for GPUs. */
  readonly epilogue?: GemmEpilogue<N["place"]>;
  readonly info: number;
}

/** A kernel on the points of a product, of which its third argument is the result; A and B are the first two. */
export interface GemmEpilogue<Place> {
  readonly kernel: number;
  /** The arguments after the first three; the other fields are indices into these. */
  readonly args: readonly Place[];
  readonly reads: readonly number[];
  readonly writes: readonly number[];
  /** Pairs `[written, read]` that may be the same memory. */
  readonly aliases: readonly (readonly [number, number])[];
  /** Whether C is written as well; otherwise it has no memory. */
  readonly keepsProduct: boolean;
}

/**
 * Groups of consecutive rows of a product. For `m` they are rows of op(A) and C, and every group has its own B; rows
 * after the last group become 0. For `k` they are what is summed: columns of op(A) and rows of op(B), and every group
 * has its own C, to which they are added with `beta` 1 (0 and 1 are all there are). Then m or k is the number of all rows.
 */
export interface RaggedGemm<Place> {
  readonly dim: "m" | "k";
  readonly groups: number;
  /** The int32 sizes, `[batch…, groups]` and dense; negative ones count as 0, what exceeds all rows is cut off. */
  readonly sizes: Place;
  /** The bytes from the B (or C) of a group to that of the next. */
  readonly stride: number;
  /** Whether rows after the last group, which nothing reads, stay as they are. */
  readonly keepsRest?: boolean;
}

/** One batch dimension of a GEMM. */
export interface GemmBatch {
  readonly count: number;
  readonly strideA: number;
  readonly strideB: number;
  readonly strideC: number;
}

/** Moves `bytes` bytes; the two places do not overlap. */
export interface CopyStep<N extends Naming = Compiled> {
  readonly op: "copy";
  readonly source: N["place"];
  readonly target: N["place"];
  readonly bytes: number;
  readonly info: number;
}

/** Something rare that is done in JavaScript: call `runHostStep(step, table, memory)`. */
export interface HostStep {
  readonly op: "host";
  readonly kernel: HostKernel;
  /** Operands, then results. */
  readonly places: readonly SlotAddress[];
  readonly info: number;
}

/**
 * Calls `program.callbacks[step.callback]` with what lies at the first places, and waits until its results are written
 * to the others. A device at a position that does not call writes zeros there.
 */
export interface CallbackStep {
  readonly op: "callback";
  readonly callback: number;
  /** Operands, then results, dense and row-major, with their bytes. */
  readonly places: readonly (SlotAddress & { readonly bytes: number })[];
  readonly numOperands: number;
  /** For every mesh position whether the device there calls. */
  readonly calls: readonly boolean[];
  readonly info: number;
}

/** A host callback with the types of what it takes and gives. */
export interface CallbackSpec {
  readonly fn: HostFunction;
  readonly ins: readonly TensorType[];
  readonly outs: readonly TensorType[];
}

/** What a host step computes; all tensors are dense and row-major, viewed as `[outer, n, inner]`. */
export type HostKernel =
  | {
      readonly kind: "sort";
      readonly dtypes: readonly DType[];
      readonly numKeys: number;
      readonly outer: number;
      readonly n: number;
      readonly inner: number;
    }
  | {
      readonly kind: "argmax" | "argmin" | "cumsum" | "cumsumReverse";
      readonly dtype: DType;
      readonly outer: number;
      readonly n: number;
      readonly inner: number;
    };

/**
 * `table[slot] = address(from) + Σ clamp(int32 at term.index, 0, term.max) * term.stride`: the address of a
 * dynamic slice.
 */
export interface AddressStep<N extends Naming = Compiled> {
  readonly op: "address";
  readonly slot: N["slot"];
  readonly from: N["place"];
  readonly terms: readonly AddressTerm<N>[];
  readonly info: number;
}

/** One dynamic index of an {@link AddressStep}. */
export interface AddressTerm<N extends Naming = Compiled> {
  readonly index: N["place"];
  readonly max: number;
  /** In bytes. */
  readonly stride: number;
}

/** Writes the int32 `positions[p]` to the target, where p is the device's row-major position in the mesh. */
export interface AxisIndexStep<N extends Naming = Compiled> {
  readonly op: "axisIndex";
  readonly target: N["place"];
  readonly positions: readonly number[];
  readonly info: number;
}

/** Sets a dynamic slot: `table[slot] = address(from)`. */
export interface SlotSet<N extends Naming = Compiled> {
  readonly slot: N["slot"];
  readonly from: N["place"];
}

/** Moves a dynamic slot: `table[slot] += stride` (bytes, may be negative). */
export interface SlotAdvance<N extends Naming = Compiled> {
  readonly slot: N["slot"];
  readonly stride: number;
}

/**
 * `sets` once, then `count` times the body, and after every iteration first all `advances`, then all `swaps`
 * (the two slots exchange their contents). `count` may be 0.
 */
export interface LoopStep<N extends Naming = Compiled> {
  readonly op: "loop";
  readonly count: number;
  readonly sets: readonly SlotSet<N>[];
  readonly body: readonly N["step"][];
  readonly advances: readonly SlotAdvance<N>[];
  readonly swaps: readonly (readonly [N["slot"], N["slot"]])[];
  readonly info: number;
}

/**
 * `sets` once; then run `condition` and stop unless the byte at `predicate` is not 0; else run `body`, do the
 * `swaps`, and begin again.
 */
export interface WhileStep<N extends Naming = Compiled> {
  readonly op: "while";
  readonly sets: readonly SlotSet<N>[];
  readonly condition: readonly N["step"][];
  readonly predicate: N["place"];
  readonly body: readonly N["step"][];
  readonly swaps: readonly (readonly [N["slot"], N["slot"]])[];
  readonly info: number;
}

/** Runs the branch whose number is the int32 at `index`, clamped to the branches there are. */
export interface CondStep<N extends Naming = Compiled> {
  readonly op: "cond";
  readonly index: N["place"];
  readonly branches: readonly (readonly N["step"][])[];
  readonly info: number;
}

/**
 * Begins a collective. Never waits for other devices longer than it takes them to have left an earlier use of
 * the same collective. Every device of the mesh starts and ends the same collectives in the same order.
 */
export interface StartStep<N extends Naming = Compiled> {
  readonly op: "start";
  readonly collective: N["collective"];
  readonly info: number;
}

/**
 * Ends a collective: afterwards the target holds the result, and the source may be overwritten at once (so all
 * peers have read it). Between start and done this device writes neither, and does not read the target.
 * Several collectives can be under way; a collective is never started again before it is done.
 */
export interface DoneStep<N extends Naming = Compiled> {
  readonly op: "done";
  readonly collective: N["collective"];
  readonly info: number;
}

/**
 * One collective of a program. `groups` lists the mesh positions that take part together, each group in the
 * order of positions along `axes`; every device is in exactly one group, and all have `size` members.
 *
 * * `allReduce`: source and target are `elements` elements; target = the combination of all sources.
 * * `allGather`: source is `[outer, inner]`, target `[outer, size, inner]`.
 * * `reduceScatter`: source is `[outer, size, inner]`, target `[outer, inner]`: the own block, combined.
 * * `permute`: source and target are `elements` elements; `permutation` pairs positions inside a group
 *   (source, target); a device that is not a target gets zero bytes, or nothing where the rest is `unset`.
 * * `allToAll`: source and target are `[size, inner]`: block j of the source goes to member j, block i of the
 *   target comes from member i. Unless it is `ragged`: then tables say which rows go where.
 *
 * `outer` and `inner` count elements. Source and target are dense and never overlap, except that an `allReduce`
 * may have `source` equal to `target`.
 * Reductions combine in the order of the group, so that all members get the same bits.
 */
export interface CollectiveSpec<N extends Naming = Compiled> {
  readonly kind: "allReduce" | "allGather" | "reduceScatter" | "permute" | "allToAll";
  /** How elements are combined (for bool: `max` is or, `min` is and); bfloat16 and float16 sum in float32. */
  readonly combine: "sum" | "max" | "min";
  readonly dtype: DType;
  readonly axes: readonly MeshAxis[];
  readonly groups: readonly (readonly number[])[];
  readonly size: number;
  readonly source: N["place"];
  readonly target: N["place"];
  /** The elements of the source. */
  readonly elements: number;
  readonly outer: number;
  readonly inner: number;
  readonly permutation: readonly (readonly [source: number, target: number])[];
  readonly unset?: true;
  /** Set for an `allToAll` of blocks of rows whose sizes are known when it runs. */
  readonly ragged?: RaggedExchange<N["place"]>;
  readonly info: number;
}

/**
 * Which rows members send each other; the target holds the rows that stay. Each table has three int32 for every block,
 * member by member: the first row of the block here, its number of rows, and its first row there.
 */
export interface RaggedExchange<Place> {
  readonly sends: Place;
  readonly receives: Place;
  /** The number of blocks between any two members. */
  readonly numBlocks: number;
  /** The number of rows of the source, and of the target. */
  readonly rows: number;
  readonly targetRows: number;
}

/** What a step does. */
export interface StepInfo {
  /** The ops that the step computes, in order. */
  readonly ops: readonly string[];
  /** Where the user wrote the last of them. */
  readonly source?: { readonly text: string } | undefined;
  /** Floating-point operations of one execution. */
  readonly flops: number;
  /** Bytes read and written by one execution. */
  readonly bytes: number;
  /** What a loop or a choice of a pipeline stands for, with its numbers of stages, microbatches and messages. */
  readonly role?: ControlRole;
}

/** What one run costs a device; loops are counted with their trip counts, `while` bodies once. */
export interface ProgramCost {
  readonly flops: number;
  readonly bytes: number;
  /** Bytes sent to other devices. */
  readonly communicatedBytes: number;
  /** The arena, the inputs and the outputs together. */
  readonly peakBytes: number;
}
