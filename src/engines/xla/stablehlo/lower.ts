import { InternalError, ValueError } from "../../../ir/errors.js";
import type { MeshShape } from "../../../ir/mesh.js";
import type { OpName, Precision } from "../../../ir/ops.js";
import type { Atom, Eqn, EqnParts, Program } from "../../../ir/program.js";
import { at, sameType } from "../../../ir/shape.js";
import { collectiveRules } from "./collectives.js";
import { contractionRules } from "./contraction.js";
import { controlRules } from "./controlFlow.js";
import { elementwiseRules } from "./elementwise.js";
import { indexingRules } from "./indexing.js";
import { movementRules } from "./movement.js";
import { reductionRules } from "./reductions.js";
import { sortRules } from "./sort.js";
import { typeText } from "./text.js";
import type { Unrolling } from "./unroll.js";
import {
  type FusedKernel,
  type HloValue,
  type Rule,
  resultText,
  type StableHloModule,
  types,
  Writer,
} from "./writer.js";

/** An op that per-device programs do not contain. */
const gone =
  (op: OpName): Rule<OpName> =>
  () => {
    throw new InternalError(`[stablehlo] ${op} must not occur in a per-device program`);
  };

/** The lowering rules of all ops. */
const rules: { readonly [K in OpName]: Rule<K> } = {
  ...elementwiseRules,
  ...movementRules,
  ...indexingRules,
  ...reductionRules,
  ...sortRules,
  ...contractionRules,
  ...controlRules,
  ...collectiveRules,
  callback: ({ params, source }) => {
    const where = source ? ` (${source.text})` : "";
    throw new ValueError(
      `[xla] ${params.fn.name} calls JavaScript while the program runs, which a PJRT plug-in offers no way to do: return the value from the compiled function and use it there, or run this function on the threads engine${where}`,
    );
  },
  remat: gone("remat"),
  customVjp: gone("customVjp"),
  shardMap: gone("shardMap"),
  shardingConstraint: gone("shardingConstraint"),
};

function writeEqn<K extends OpName>(eqn: Eqn<K>, write: Writer): readonly HloValue[] {
  const parts: EqnParts<K> = eqn;
  const rule: Rule<K> = rules[parts.op];
  return rule(parts, write);
}

/** Options of {@link lowerToStableHlo}. */
export interface StableHloOptions {
  /** The mesh whose positions, row-major, are the replicas that run the module. */
  readonly mesh: MeshShape;
  /** Which inputs may be overwritten. */
  readonly donated?: readonly boolean[];
  readonly name?: string;
  /** Operations for which to use the devices' kernels; none by default. */
  readonly kernels?: readonly FusedKernel[];
  /** Precision of float32 products that do not specify one; `highest` by default. */
  readonly precision?: Precision;
  /** Which loops to unroll; none by default. */
  readonly unrolling?: Unrolling | undefined;
  /** Whether further inputs are overwritten by the outputs that overwrite none of the program's own. */
  readonly overwritesAll?: boolean;
}

/**
 * Lowers a per-device program to StableHLO text with one line for each op, so that a location in the text leads back to
 * an equation and its source.
 */
export function lowerToStableHlo(program: Program, options: StableHloOptions): StableHloModule {
  const write = new Writer(options.mesh, writeEqn, options.kernels, options.precision, options.unrolling);
  const inputs = program.inputs.map(({ type }) => write.fresh(type));
  const aliases = aliasedOutputs(program, options.donated ?? []);
  const parameters = inputs.map(({ name, type }, i) => {
    const output = aliases[i];
    const alias = output === undefined ? "" : ` {tf.aliasing_output = ${output} : i32}`;
    return `${name}: ${typeText(type)}${alias}`;
  });
  const others = options.overwritesAll ? [...program.outputs.keys()].filter((o) => !aliases.includes(o)) : [];
  for (const output of others) {
    const { name, type } = write.fresh(at(program.outputs, output).type);
    parameters.push(`${name}: ${typeText(type)} {tf.aliasing_output = ${output} : i32}`);
  }
  write.line(`module @${moduleName(options.name ?? "program")} {`);
  write.nested(() => {
    write.line(`func.func public @main(${parameters.join(", ")}) -> (${types(program.outputs)}) {`);
    write.overwritable(inputs.filter((_, i) => options.donated?.[i] && readsOnce(program, i)));
    write.nested(() => {
      const outputs = write.inline(program, inputs);
      write.line(`return${resultText(outputs)}`);
    });
    write.line("}");
  });
  return write.finish();
}

/** Whether a program reads an input only once. */
function readsOnce({ inputs, eqns, outputs }: Program, input: number): boolean {
  const isIt = (atom: Atom) => atom.kind === "var" && atom.id === inputs[input]?.id;
  return [...eqns.flatMap(({ ins }) => ins), ...outputs].filter(isIt).length === 1;
}

/** The output that reuses each donated input's memory: the first of the same type that is still unclaimed. */
export function aliasedOutputs(program: Program, donated: readonly boolean[]): (number | undefined)[] {
  const taken = new Set<number>();
  return program.inputs.map(({ type }, i) => {
    if (!donated[i]) return undefined;
    const output = program.outputs.findIndex((out, o) => !taken.has(o) && sameType(out.type, type));
    if (output < 0) return undefined;
    taken.add(output);
    return output;
  });
}

/** The name as a valid identifier of the text. */
function moduleName(name: string): string {
  const word = name.replaceAll(/\W+/g, "_").slice(0, 60);
  return /^[A-Za-z_]/.test(word) ? word : `program_${word}`;
}
