import { getOrInsert } from "../../../ir/collections.js";
import { formatSpec, type MeshShape, type Spec } from "../../../ir/mesh.js";
import type { Eqn, Var } from "../../../ir/program.js";
import { at, bytesOf, formatType, type TensorType } from "../../../ir/shape.js";
import type { Tensor } from "../../../trace/tensor.js";
import { reshard } from "../placement/reshard.js";
import type { DeviceBlocks } from "../placement/rowValues.js";
import type { DeviceSums } from "./deviceSums.js";

/** A place where a split value was needed whole. */
export interface GatherNote {
  /** The op that needed it, with the value's type. */
  readonly what: string;
  readonly from: string;
  readonly to: string;
  /** The bytes of the result on every device. */
  readonly bytes: number;
  /** How often it happens: more than once inside a scan. */
  readonly times: number;
  /** The user's source line. */
  readonly source: string;
}

/** Reshards values to the specs that equations need, each once, and records the gathers it takes. */
export class Resharding {
  readonly gathers: GatherNote[] = [];
  /** The index of a gather's record, by the value that it makes. */
  private readonly noteOf = new Map<number, number>();
  /** Values that were resharded, for reuse. */
  private readonly moved = new WeakMap<Tensor, Map<string, Tensor>>();
  /** How often the equations being rewritten run. */
  private times = 1;

  constructor(
    private readonly mesh: MeshShape,
    private readonly sums: DeviceSums,
  ) {}

  /** Rewrites what runs `length` times. */
  repeated<T>(length: number, rewrite: () => T): T {
    const before = this.times;
    this.times *= length;
    const result = rewrite();
    this.times = before;
    return result;
  }

  /** Reshards a value for an equation, and records the gathers of split values. */
  move(value: DeviceBlocks, to: Spec, eqn: Eqn | undefined, type: TensorType): Tensor {
    const { block, spec } = this.sums.share(value, to);
    const key = `${formatSpec(spec)} ${formatSpec(to)}`;
    const note = (gathered: Tensor): void => {
      const { node } = gathered;
      if (node.kind === "traced" && node.atom.kind === "var")
        this.noteOf.set(node.atom.id, this.gathers.length);
      this.gathers.push({
        what: `${eqn?.op ?? "return"} ${formatType(type)}`,
        from: formatSpec(spec),
        to: formatSpec(to),
        bytes: bytesOf(gathered.type),
        times: this.times,
        source: eqn?.source?.text ?? "the results of the function",
      });
    };
    const known = getOrInsert(this.moved, block, () => new Map());
    return getOrInsert(known, key, () => reshard(block, spec, to, this.mesh, note));
  }

  /** Notes that a gather left a loop that would have run it `length` times. */
  noteHoisted(inside: Var, before: Var, length: number): void {
    const place = this.noteOf.get(inside.id);
    if (place === undefined) return;
    const note = at(this.gathers, place);
    this.gathers[place] = { ...note, times: note.times / length };
    this.noteOf.set(before.id, place);
  }
}
