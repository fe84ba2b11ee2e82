import type { GpuProgram } from "../../compiler/compileForGpu.js";
import type { LoopPlan } from "../../compiler/kernel/loopPlan.js";
import type {
  AddressStep,
  CallbackStep,
  CollectiveSpec,
  GemmEpilogue,
  GemmStep,
  LoopStep,
  SlotAddress,
  SlotSet,
  Step,
} from "../../compiler/steps.js";
import { attentionShaders } from "../../compiler/wgsl/attentionShader.js";
import { collectiveKernels, gpuPlan, valueSpec } from "../../compiler/wgsl/collectiveKernels.js";
import {
  type Epilogue,
  type GemmShader,
  gemmParams,
  gemmShader,
  isInVectors,
} from "../../compiler/wgsl/gemmShader.js";
import { chooseTile, type GemmShape, type TileChoice } from "../../compiler/wgsl/gemmTile.js";
import { kernelShader } from "../../compiler/wgsl/kernelShader.js";
import type { KernelSetting } from "../../compiler/wgsl/kernelWriter.js";
import { matrixShader } from "../../compiler/wgsl/matrixShader.js";
import { chooseMatrixTile, type MatrixSetting } from "../../compiler/wgsl/matrixTile.js";
import { MAX_PARAMS } from "../../compiler/wgsl/shaderMemory.js";
import type { ShaderSlabs } from "../../compiler/wgsl/shaderSlabs.js";
import {
  addressShader,
  copyShader,
  fetchShader,
  hostShader,
  TABLE_OP,
  tableShader,
  WORDS_PER_CHANGE,
} from "../../compiler/wgsl/stepShaders.js";
import { byteSize } from "../../ir/dtype.js";
import { InternalError, ShardwiseError } from "../../ir/errors.js";
import { at, range } from "../../ir/shape.js";
import { alignmentOf, slotAlignments } from "./alignment.js";
import type { Shader } from "./shaders.js";

/** A call of a shader. */
export interface Dispatch {
  readonly kind: "dispatch";
  /** The text of the shader and its workgroups, given the slabs of the places. */
  readonly shader: (slabs: ShaderSlabs) => {
    readonly code: string;
    readonly workgroups: number | readonly [number, number, number];
  };
  /** Slots of the address table whose slabs the shader is bound to. */
  readonly slots: readonly number[];
  /** Where its parameters begin, in bytes. */
  readonly params: number;
  readonly writesTable: boolean;
  /** The kind of its step, for traces. */
  readonly step: Step["op"];
  /** What it computes, for messages and traces. */
  readonly info: number;
  /** What has been prepared for the slabs of an earlier run. */
  readonly prepared: Map<string, Prepared>;
}

/** A dispatch with everything that recording it takes. */
export interface Prepared {
  readonly shader: Shader;
  /** Its compiled form, from its first use on. */
  pipeline: GPUComputePipeline | undefined;
  readonly bindGroup: GPUBindGroup;
  readonly workgroups: readonly [number, number, number];
}

/** Slots that follow others to their slabs. */
export type SlabMove =
  | { readonly slot: number; readonly from: number }
  | { readonly swap: readonly [number, number] };

/** What a device of a program does, with slots of the table that all of its devices share. */
export type Action =
  | Dispatch
  | { readonly kind: "moves"; readonly moves: readonly SlabMove[] }
  | {
      readonly kind: "loop";
      readonly count: number;
      readonly before: readonly Action[];
      readonly body: readonly Action[];
    }
  | {
      readonly kind: "while";
      readonly before: readonly Action[];
      readonly condition: readonly Action[];
      readonly predicate: Fetch;
      readonly body: readonly Action[];
    }
  | { readonly kind: "cond"; readonly index: Fetch; readonly branches: readonly (readonly Action[])[] }
  | { readonly kind: "collective"; readonly collective: number }
  | { readonly kind: "callback"; readonly step: CallbackStep; readonly firstSlot: number };

/** A value that the host needs: a dispatch that leaves it in a slot of the table. */
export interface Fetch {
  readonly dispatch: Dispatch;
  readonly slot: number;
}

/** Collects the parameters of all dispatches of a program. */
export class Params {
  private readonly words: number[] = [];

  /** @param alignment of the parameters of a dispatch, in bytes */
  constructor(private readonly alignment: number) {}

  /** Adds the words of a dispatch; gives their offset in bytes. */
  add(words: readonly number[]): number {
    if (words.length > MAX_PARAMS)
      throw new ShardwiseError(
        "internal",
        `[webgpu] a step has ${words.length} parameters, more than ${MAX_PARAMS}`,
      );
    while ((4 * this.words.length) % this.alignment !== 0) this.words.push(0);
    const offset = 4 * this.words.length;
    for (const word of words) this.words.push(word >>> 0);
    return offset;
  }

  /** All parameters, with room after the last for a shader that can see more. */
  toWords(): Uint32Array<ArrayBuffer> {
    const all = new Uint32Array(this.words.length + MAX_PARAMS);
    all.set(this.words);
    return all;
  }
}

/** What the shaders of a program depend on besides its steps. */
export interface GpuSetting extends TileChoice, Pick<KernelSetting, "subgroupSize"> {
  /** The matrices that products of float16 use. */
  readonly matrices?: MatrixSetting | undefined;
}

/** Turns the steps of a program into the actions of one device. */
export class ActionBuilder {
  private readonly constants: DataView;
  private readonly alignments: readonly number[];

  /**
   * @param firstSlot where the device's slots begin in the table that all devices of the program share
   * @param fetchSlot the slot for values that the host reads
   */
  constructor(
    private readonly program: GpuProgram,
    private readonly params: Params,
    private readonly position: number,
    private readonly firstSlot: number,
    private readonly fetchSlot: number,
    private readonly setting: GpuSetting,
  ) {
    const { constants } = program.compiled;
    this.constants = new DataView(constants.buffer, constants.byteOffset, constants.byteLength);
    this.alignments = slotAlignments(program.compiled);
  }

  steps(steps: readonly Step[]): Action[] {
    return steps.flatMap((step) => this.step(step));
  }

  private step(step: Step): Action[] {
    switch (step.op) {
      case "kernel": {
        const places = this.kernelPlaces(step.args, step.numArgs);
        const plan = at(this.program.kernels, step.kernel);
        if ("kind" in plan)
          return attentionShaders(plan).map((shader) => this.dispatch(places, shader, step));
        return [this.dispatch(places, this.kernel(plan, places), step)];
      }
      case "gemm":
        return [this.gemm(step)];
      case "copy": {
        const { source, target, bytes } = step;
        const isAligned = bytes % 4 === 0 && this.areAligned([source, target], 4);
        return [this.dispatch([source, target], (slabs) => copyShader(bytes, isAligned, slabs), step)];
      }
      case "host":
        return [this.dispatch(step.places, (slabs) => hostShader(step.kernel, slabs), step)];
      case "callback":
        return [{ kind: "callback", step, firstSlot: this.firstSlot }];
      case "address":
        return this.address(step);
      case "axisIndex": {
        const plan = gpuPlan(valueSpec("int32", 1, at(step.positions, this.position)));
        return [this.dispatch([step.target], this.kernel(plan, [step.target]), step)];
      }
      case "loop":
        return [this.loop(step)];
      case "while":
        return [
          {
            kind: "while",
            before: this.sets(step.sets, step.info),
            condition: this.steps(step.condition),
            predicate: this.fetch(step.predicate, true, step.info),
            body: [...this.steps(step.body), ...this.swaps(step.swaps, step.info)],
          },
        ];
      case "cond": {
        const branches = step.branches.map((branch) => this.steps(branch));
        return [{ kind: "cond", index: this.fetch(step.index, false, step.info), branches }];
      }
      case "start":
        return [];
      case "done":
        return [{ kind: "collective", collective: step.collective }];
    }
  }

  private kernel(plan: LoopPlan, places: readonly SlotAddress[]): Dispatch["shader"] {
    const aligned = places.map((place) => this.areAligned([place], 16));
    return (slabs) => kernelShader(plan, slabs, { ...this.setting, aligned });
  }

  private kernelPlaces(args: number, count: number): SlotAddress[] {
    return Array.from({ length: count }, (_, i) => ({
      slot: this.constants.getUint32(args + 8 * i, true) / 4,
      offset: this.constants.getUint32(args + 8 * i + 4, true),
    }));
  }

  /** Whether places begin at multiples of this many bytes, whatever happens. */
  private areAligned(places: readonly SlotAddress[], bytes: number): boolean {
    return places.every(
      ({ slot, offset }) => Math.min(at(this.alignments, slot), alignmentOf(offset)) >= bytes,
    );
  }

  private gemm(step: GemmStep): Dispatch {
    const { a, b, c, info: _, op: __, epilogue, ...shape } = step;
    const places = [a, b, c];
    const after = epilogue && this.epilogue(epilogue, places);
    const inVectors = isInVectors(shape) && this.areAligned(places.slice(0, 3), 16);
    const write = shape.dtype === "float16" ? this.matrices(shape) : this.tiles(shape);
    return this.dispatch(places, (slabs) => write(slabs, inVectors, after), step, gemmParams(shape));
  }

  private tiles(shape: GemmShape): WriteProduct {
    const tile = chooseTile(shape, this.setting);
    return (slabs, inVectors, after) => gemmShader(shape, slabs, tile, inVectors, after);
  }

  private matrices(shape: GemmShape): WriteProduct {
    const { matrices } = this.setting;
    if (matrices === undefined) throw new InternalError("[webgpu] a product of float16 without matrices");
    const tile = chooseMatrixTile(shape, matrices, this.setting);
    return (slabs, inVectors, after) => matrixShader(shape, slabs, tile, matrices, inVectors, after);
  }

  /** What follows a product; `places` become those of all arguments. */
  private epilogue(
    { kernel, args, writes, keepsProduct }: GemmEpilogue<SlotAddress>,
    places: SlotAddress[],
  ): Epilogue {
    const plan = at(this.program.kernels, kernel);
    if ("kind" in plan) throw new InternalError("[webgpu] an attention follows no product");
    // A product without memory needs a place whose distances are its own.
    if (!keepsProduct) places[2] = at(args, at(writes, 0));
    places.push(...args);
    const aligned = places.map((place) => this.areAligned([place], 16));
    return { plan, keepsProduct, setting: { ...this.setting, aligned } };
  }

  private dispatch(
    places: readonly SlotAddress[],
    shader: Dispatch["shader"],
    step: StepName,
    extra: readonly number[] = [],
  ): Dispatch {
    const words = places.flatMap(({ slot, offset }) => [this.firstSlot + slot, offset]);
    const slots = places.map(({ slot }) => this.firstSlot + slot);
    return newDispatch(shader, slots, this.params.add([...words, ...extra]), false, step);
  }

  private address({ slot, from, terms, info }: AddressStep): Action[] {
    const words = [
      ...[this.firstSlot + slot, this.firstSlot + from.slot, from.offset],
      ...terms.flatMap(({ index, max, stride }) => [this.firstSlot + index.slot, index.offset, max, stride]),
    ];
    const slots = terms.map(({ index }) => this.firstSlot + index.slot);
    const dispatch = newDispatch(addressShader, slots, this.params.add(words), true, { op: "address", info });
    return [
      dispatch,
      { kind: "moves", moves: [{ slot: this.firstSlot + slot, from: this.firstSlot + from.slot }] },
    ];
  }

  private loop({ count, sets, body, advances, swaps, info }: LoopStep): Action {
    const moved = advances.map(({ slot, stride }) => [TABLE_OP.advance, this.firstSlot + slot, 0, stride]);
    return {
      kind: "loop",
      count,
      before: this.sets(sets, info),
      body: [...this.steps(body), ...this.changes(moved, info), ...this.swaps(swaps, info)],
    };
  }

  private sets(sets: readonly SlotSet[], info: number): Action[] {
    const changes = sets.map(({ slot, from }) => [
      TABLE_OP.set,
      this.firstSlot + slot,
      this.firstSlot + from.slot,
      from.offset,
    ]);
    const moves = sets.map(({ slot, from }) => ({
      slot: this.firstSlot + slot,
      from: this.firstSlot + from.slot,
    }));
    return [...this.changes(changes, info), ...(moves.length > 0 ? [{ kind: "moves", moves } as const] : [])];
  }

  private swaps(swaps: readonly (readonly [number, number])[], info: number): Action[] {
    const pairs = swaps.map(([a, b]) => [this.firstSlot + a, this.firstSlot + b] as const);
    const moves = pairs.map((swap) => ({ swap }));
    const changes = pairs.map(([a, b]) => [TABLE_OP.swap, a, b, 0]);
    return [...this.changes(changes, info), ...(moves.length > 0 ? [{ kind: "moves", moves } as const] : [])];
  }

  /** Changes of the table, as few dispatches as their parameters allow. */
  private changes(changes: readonly (readonly number[])[], info: number): Action[] {
    const most = MAX_PARAMS / WORDS_PER_CHANGE;
    const parts = Array.from({ length: Math.ceil(changes.length / most) }, (_, i) =>
      changes.slice(i * most, (i + 1) * most),
    );
    return parts.map((part) =>
      newDispatch(() => tableShader(part.length), [], this.params.add(part.flat()), true, {
        op: "address",
        info,
      }),
    );
  }

  private fetch({ slot, offset }: SlotAddress, isByte: boolean, info: number): Fetch {
    const params = this.params.add([this.firstSlot + slot, offset, this.fetchSlot]);
    const dispatch = newDispatch(
      (slabs) => fetchShader(isByte, slabs),
      [this.firstSlot + slot],
      params,
      true,
      {
        op: "address",
        info,
      },
    );
    return { dispatch, slot: this.fetchSlot };
  }
}

/** Writes a product for the slabs of its places. */
type WriteProduct = (slabs: ShaderSlabs, inVectors: boolean, after: Epilogue | undefined) => GemmShader;

/** What kind of step it is, and which one. */
type StepName = Pick<GemmStep, "info"> & { readonly op: Step["op"] };

function newDispatch(
  shader: Dispatch["shader"],
  slots: readonly number[],
  params: number,
  writesTable: boolean,
  { op, info }: StepName,
): Dispatch {
  return { kind: "dispatch", shader, slots, params, writesTable, step: op, info, prepared: new Map() };
}

/** What a GPU does for a collective of a group. */
export interface GroupDispatches {
  readonly dispatches: readonly Dispatch[];
  /** The members on other GPUs that it needs the sources of, each with the slot of a copy. */
  readonly guests: readonly Guest[];
}

/** A device of another GPU, and the slot of a copy of what it sends. */
export interface Guest {
  readonly position: number;
  readonly slot: number;
}

/** Where the devices of a program have their slots in the table of a GPU. */
export interface TablePlan {
  /** Whether the GPU has the device at a position. */
  isHere(position: number): boolean;
  /** The first slot of a position. */
  firstSlot(position: number): number;
  /** The slot for a copy of what the n-th member of a group sends, if that is elsewhere. */
  guestSlot(member: number): number;
}

/** What a GPU does for a collective of one group of positions, of which it has at least one. */
export function groupDispatches(
  spec: CollectiveSpec,
  group: readonly number[],
  params: Params,
  { isHere, firstSlot, guestSlot }: TablePlan,
  setting: GpuSetting,
): GroupDispatches {
  const guests = new Map<number, Guest>();
  const receivers = range(group.length).filter((member) => isHere(at(group, member)));
  const dispatches = collectiveKernels(spec, receivers).map(({ plan, args }) => {
    const places = args.map(({ member, side, element }) => {
      const position = at(group, member);
      const bytes = element * byteSize(spec.dtype);
      if (isHere(position)) {
        const { slot, offset } = spec[side];
        return { slot: firstSlot(position) + slot, offset: offset + bytes };
      }
      const slot = guestSlot(member);
      guests.set(member, { position, slot });
      return { slot, offset: bytes };
    });
    const words = params.add(places.flatMap(({ slot, offset }) => [slot, offset]));
    const slots = places.map(({ slot }) => slot);
    const aligned = places.map(() => false);
    return newDispatch((slabs) => kernelShader(plan, slabs, { ...setting, aligned }), slots, words, false, {
      op: "done",
      info: spec.info,
    });
  });
  return { dispatches, guests: [...guests.values()] };
}
