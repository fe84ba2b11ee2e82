import {
  type CollectiveSpec,
  type CompiledProgram,
  READ_SLACK,
  type SlotAddress,
  type SlotBase,
  type Step,
} from "../../src/compiler/steps.js";
import type { DType } from "../../src/ir/dtype.js";
import { deviceGroups, type MeshShape } from "../../src/ir/mesh.js";
import { bytesOf, type TensorType, tensorType } from "../../src/ir/shape.js";

/**
 * Step lists written by hand, for tests and benchmarks of the runtime alone: input i and output i lie in slots
 * `inputPlace(i)` and `outputPlace(i)`.
 */
export function handProgram(
  name: string,
  inputs: readonly TensorType[],
  outputs: readonly TensorType[],
  parts: {
    readonly steps: readonly Step[];
    readonly collectives?: readonly CollectiveSpec[];
    /** Further slots after those of the inputs and outputs. */
    readonly slots?: readonly SlotBase[];
    readonly arenaBytes?: number;
    /** `outputs[i]` takes the memory of this input over. */
    readonly heirs?: readonly (number | undefined)[];
    readonly infos?: CompiledProgram["infos"];
  },
): CompiledProgram {
  const heirs = parts.heirs ?? [];
  return {
    name,
    modules: [],
    steps: parts.steps,
    slots: [
      ...inputs.map((_, index) => ({ kind: "input", index }) as const),
      ...outputs.map((_, index) =>
        heirs[index] === undefined
          ? ({ kind: "output", index } as const)
          : ({ kind: "input", index: heirs[index] } as const),
      ),
      ...(parts.slots ?? []),
    ],
    arenaBytes: (parts.arenaBytes ?? 0) + READ_SLACK,
    constants: new Uint8Array(),
    inputs: inputs.map((type, i) => ({ type, bytes: bytesOf(type), overwritten: heirs.includes(i) })),
    outputs: outputs.map((type, i) => ({ type, bytes: bytesOf(type), inputIndex: heirs[i] })),
    collectives: parts.collectives ?? [],
    callbacks: [],
    infos: parts.infos ?? [{ ops: ["test"], source: { text: "model.ts:3:5" }, flops: 0, bytes: 0 }],
    cost: { flops: 0, bytes: 0, communicatedBytes: 0, peakBytes: 0 },
  };
}

/** The place of a slot. */
export function place(slot: number, offset = 0): SlotAddress {
  return { slot, offset };
}

/** A copy between two slots. */
export function copyStep(source: number, target: number, bytes: number): Step {
  return { op: "copy", source: place(source), target: place(target), bytes, info: 0 };
}

/** What a collective of a test does. */
export interface CollectiveCase {
  readonly kind: CollectiveSpec["kind"];
  readonly combine?: CollectiveSpec["combine"];
  readonly dtype: DType;
  readonly axes: readonly string[];
  readonly outer: number;
  readonly inner: number;
  readonly permutation?: readonly (readonly [number, number])[];
}

/** The specification of a collective from slot `source` to slot `target`. */
export function collectiveSpec(
  mesh: MeshShape,
  given: CollectiveCase,
  source: number,
  target: number,
): CollectiveSpec {
  const groups = deviceGroups(mesh, given.axes);
  const size = groups[0]?.length ?? 1;
  const { kind, outer, inner } = given;
  const elements = kind === "reduceScatter" || kind === "allToAll" ? outer * size * inner : outer * inner;
  return {
    kind,
    combine: given.combine ?? "sum",
    dtype: given.dtype,
    axes: mesh.axes.filter(({ name }) => given.axes.includes(name)),
    groups,
    size,
    source: place(source),
    target: place(target),
    elements,
    outer,
    inner,
    permutation: given.permutation ?? [],
    info: 0,
  };
}

/** A program whose single output is a collective of its single input. */
export function collectiveProgram(mesh: MeshShape, given: CollectiveCase): CompiledProgram {
  const spec = collectiveSpec(mesh, given, 0, 1);
  const targets = {
    allReduce: spec.elements,
    allGather: spec.elements * spec.size,
    reduceScatter: spec.elements / spec.size,
    permute: spec.elements,
    allToAll: spec.elements,
  };
  return handProgram(
    `${given.kind} ${given.dtype}`,
    [tensorType(given.dtype, [spec.elements])],
    [tensorType(given.dtype, [targets[spec.kind]])],
    {
      collectives: [spec],
      steps: [
        { op: "start", collective: 0, info: 0 },
        { op: "done", collective: 0, info: 0 },
      ],
    },
  );
}
