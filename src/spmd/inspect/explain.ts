import { need } from "../../ir/arguments.js";
import { formatMesh } from "../../ir/mesh.js";
import { at, formatBytes, formatType, type TensorType } from "../../ir/shape.js";
import { simplify } from "../../transforms/rewrite/simplify.js";
import { type PartitionSpec, toPartitionSpec } from "../mesh/partitionSpec.js";
import type { GatherNote } from "../partition/blocks/resharding.js";
import { type JitOptions, jitOptions, type PartitionedCall, partitionCall } from "../run/call.js";
import { type CollectiveCost, CostReport, formatCollectives } from "./cost.js";

/** How one argument or result is split. */
export interface ValueSharding {
  /** Where it is among the arguments or results. */
  readonly path: string;
  readonly type: TensorType;
  readonly spec: PartitionSpec;
}

/** How the partitioner splits a call; see {@link explainSharding}. */
export class ShardingReport {
  readonly inputs: readonly ValueSharding[];
  readonly outputs: readonly ValueSharding[];
  /** Where split values had to be gathered. */
  readonly gathers: readonly GatherNote[];
  /** Everything that is sent, by kind and axes, those gathers among them: what `costAnalysis` counts. */
  readonly collectives: readonly CollectiveCost[];
  /** Whether there are `while` loops, which count as one iteration because their number is not known. */
  readonly hasOpenLoops: boolean;
  private readonly title: string;

  /** @internal */
  constructor(call: PartitionedCall) {
    const { mesh, whole, program, inSpecs, outSpecs, inPaths, outPaths, gathers } = call;
    const value =
      (specs: typeof inSpecs, paths: readonly string[]) => (atom: { type: TensorType }, i: number) => ({
        path: at(paths, i),
        type: atom.type,
        spec: toPartitionSpec(at(specs, i)),
      });
    this.inputs = whole.inputs.map(value(inSpecs, inPaths));
    this.outputs = whole.outputs.map(value(outSpecs, outPaths));
    this.gathers = gathers;
    const { collectives, hasOpenLoops } = new CostReport(simplify(program));
    this.collectives = collectives;
    this.hasOpenLoops = hasOpenLoops;
    this.title = mesh ? `on the mesh ${formatMesh(mesh)}` : "on one device, nothing is split";
  }

  /** The bytes that all gathers put together on every device. */
  get gatheredBytes(): number {
    return this.gathers.reduce((bytes, note) => bytes + note.bytes * note.times, 0);
  }

  toString(): string {
    const values = [...this.inputs, ...this.outputs];
    const width = Math.max(0, ...values.map(({ path }) => path.length));
    const line = ({ path, type, spec }: ValueSharding) =>
      `  ${path.padEnd(width)}  ${formatType(type)} ${spec}`;
    const gathers = this.gathers.map(
      ({ what, from, to, bytes, times, source }) =>
        `  ${formatBytes(bytes)}${times > 1 ? ` x ${times}` : ""} for ${what}: ${from} becomes ${to}\n    ${source}`,
    );
    const gathered =
      gathers.length > 0 ? [`gathered: ${formatBytes(this.gatheredBytes)} on every device`] : [];
    const sent = this.collectives.reduce((bytes, cost) => bytes + cost.bytes, 0);
    const open = this.hasOpenLoops ? ", a while loop counted as one round" : "";
    return [
      this.title,
      ...values.map(line),
      this.collectives.length > 0 ? `sent: ${formatBytes(sent)} by every device${open}` : "nothing is sent",
      ...formatCollectives(this.collectives),
      ...gathered,
      ...gathers,
    ].join("\n");
  }
}

/**
 * How a call would be split: the sharding of every argument and result, every place where a split value
 * has to be put together, with the bytes and the line of the function that needs it, and all that is sent, by
 * collective and axes. Nothing is run.
 *
 * ```ts
 * console.log(`${explainSharding(model, { mesh })(params, batch)}`);
 * ```
 *
 * @param options those of `jit`
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const explained = explainSharding((x: Tensor) => np.sum(x), { mesh, inShardings: [P("data")] });
 * String(explained(np.arange(4))).includes("psum"); // true
 * ```
 */
export function explainSharding<A extends readonly unknown[], R, S extends number = never>(
  fn: (...args: A) => R,
  options: JitOptions<A, R, S> = {},
): (...args: A) => ShardingReport {
  need("function", fn, "fn", "explainSharding");
  jitOptions.read(options, "explainSharding");
  return (...args) => new ShardingReport(partitionCall(fn, args, options));
}
