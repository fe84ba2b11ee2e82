import { need } from "../../ir/arguments.js";
import type { OpName } from "../../ir/ops.js";
import { at, formatType, type TensorType, typesOf } from "../../ir/shape.js";
import { type JitOptions, jitOptions, nameOf, type PartitionedCall, partitionCall } from "../run/call.js";
import { checkInputs, run } from "../run/execute.js";
import { type Culprit, findCulprit, type RunFrame } from "./culprit.js";
import { status, watch } from "./watch.js";

/** The first tensor that is not finite; see {@link findNonFinite}. */
export class NonFinite {
  /** The op that made it; undefined for an argument. */
  readonly op: OpName | undefined;
  /** Which argument it is, such as `argument 0/w`; undefined for what an op made. */
  readonly argument: string | undefined;
  /** The type of the block that the device holds. */
  readonly type: TensorType;
  /** What the worst of its elements is. */
  readonly value: "infinite" | "NaN";
  /** The id of the device on which it is not finite; the lowest one where there are several. */
  readonly device: number;
  /** The iterations in which it was made, counted from 0 as the slices of a scan are; the outermost loop first. */
  readonly iterations: readonly number[];
  /** The path of the module that made it, such as `layers/block/mlp`. */
  readonly module: string | undefined;
  /** The line that made it, or of which it is the derivative. */
  readonly source: string | undefined;
  /** Whether a result is not finite because of it; otherwise all results are finite nevertheless. */
  readonly reachesResult: boolean;

  /** @internal */
  constructor(culprit: Culprit, { target, inPaths }: Pick<PartitionedCall, "target" | "inPaths">) {
    const { eqn, variable, frame } = culprit;
    this.op = eqn?.op;
    this.argument = eqn ? undefined : at(inPaths, frame.layout.program.inputs.indexOf(variable));
    this.type = variable.type;
    this.value = culprit.status === status.nan ? "NaN" : "infinite";
    this.device = at(target.devices, culprit.position);
    this.iterations = iterationsOf(frame);
    this.module = eqn?.source?.module;
    this.source = eqn?.source?.text;
    this.reachesResult = culprit.reachesResult;
  }

  toString(): string {
    const { iterations, module, source } = this;
    return [
      `${this.op ?? this.argument} ${formatType(this.type)}`,
      ...(module === undefined ? [] : [` in ${module}`]),
      ...(iterations.length === 0
        ? []
        : [`, ${iterations.length === 1 ? "iteration" : "iterations"} ${iterations.join(" and ")}`]),
      `, on device ${this.device}, with ${this.value === "NaN" ? "NaN" : "infinite values"}`,
      ...(source === undefined ? [] : [` (${source.replace(/^.*\((.*)\)$/, "$1")})`]),
      ...(this.reachesResult ? [] : ["; no result is worse for it"]),
    ].join("");
  }
}

function iterationsOf({ outer }: RunFrame): number[] {
  if (!outer) return [];
  const { frame, iteration } = outer;
  return [...iterationsOf(frame), ...(iteration === undefined ? [] : [iteration])];
}

/**
 * Finds out where a NaN or an infinity comes from: runs a function with a check after every equation and returns the
 * first tensor that is not finite although everything it was made from is, or an argument that is not finite itself. It
 * reports the op, the type, the line, the module, the loop's iteration and the device. Undefined means that everything
 * is finite.
 *
 * Infinite constants, such as those of masks, are not blamed, nor are devices to which a collective brought bad values
 * from others. A tensor from which a result became bad comes before one whose infinities were lost on the way, as those
 * of a branch that `np.where` did not take. Donated arguments are kept.
 *
 * ```ts
 * const found = await findNonFinite(grad(loss), { mesh })(params, batch);
 * console.log(`${found}`); // exp f32[4,8], on device 1, with infinite values (model.ts:39:12)
 * ```
 *
 * @param options those of `jit`
 *
 * @example
 * ```ts
 * const found = await findNonFinite((x: Tensor) => np.log(x.sub(1)))(np.array([2, 0]));
 * found?.op; // "log"
 * ```
 */
export function findNonFinite<A extends readonly unknown[], R, S extends number = never>(
  fn: (...args: A) => R,
  options: JitOptions<A, R, S> = {},
): (...args: A) => Promise<NonFinite | undefined> {
  need("function", fn, "fn", "findNonFinite");
  jitOptions.read(options, "findNonFinite");
  return async (...args) => {
    const parts = partitionCall(fn, args, options);
    const { inputs, held, target } = parts;
    checkInputs(target, inputs, nameOf(fn, options));
    const { engine, devices, mesh } = target;
    const { program, layout } = watch(parts.program);
    if (layout.size === 0) return undefined;
    const name = `findNonFinite ${nameOf(fn, options)}`;
    const executable = engine.compile(program, { mesh, devices, name });
    const place = (spec: PartitionedCall["inSpecs"][number]) => ({ ...target, spec });
    const whole = ({ dtype, shape }: TensorType) => ({ dtype, shape: shape.map((n) => n * devices.length) });
    const compiled = {
      executable,
      inPlacements: held.inSpecs.map(place),
      // The statuses of all devices, concatenated.
      outPlacements: [place([mesh.axes.map((axis) => axis.name)])],
      outTypes: typesOf(program.outputs).map(whole),
      donated: inputs.map(() => false),
      effectsAt: undefined,
    };
    const statuses = at(run(compiled, inputs), 0);
    executable.release();
    const told = await statuses.data();
    statuses.dispose();
    const perPosition = devices.map((_, i) => told.slice(i * layout.size, (i + 1) * layout.size));
    const culprit = findCulprit(layout, perPosition, mesh);
    return culprit && new NonFinite(culprit, parts);
  };
}
