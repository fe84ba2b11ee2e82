import { need } from "../../ir/arguments.js";
import { needProgram } from "../../ir/checkProgram.js";
import { ShapeError } from "../../ir/errors.js";
import { axesSize, type MeshShape } from "../../ir/mesh.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import type { Literal, Program } from "../../ir/program.js";
import { evaluateProgram } from "../../ir/program.js";
import { at, formatType, range, sameType, sizeOf, type TensorType, typesOf } from "../../ir/shape.js";
import { type LimitLoop, limitLoops } from "../loopLimit.js";
import { callbackRules } from "./callback.js";
import { collectiveRules } from "./collectives.js";
import { contractionRules } from "./contraction.js";
import { controlFlowRules } from "./controlFlow.js";
import { elementwiseRules } from "./elementwise.js";
import { encode, type HostTensor } from "./hostTensor.js";
import { indexingRules } from "./indexing.js";
import { movementRules } from "./movement.js";
import { reductionRules } from "./reductions.js";
import type { Context, EvalRule, Lanes, Override } from "./rule.js";
import { sortRules } from "./sort.js";
import { spmdRules } from "./spmd.js";

/** The reference rules of all ops. */
const evalRules: { readonly [K in OpName]: EvalRule<K> } = {
  ...elementwiseRules,
  ...movementRules,
  ...indexingRules,
  ...reductionRules,
  ...sortRules,
  ...contractionRules,
  ...callbackRules,
  ...controlFlowRules,
  ...collectiveRules,
  ...spmdRules,
};

/** Evaluates one equation: from its operands on all lanes to its results, whose types are `types`. */
export function evaluate<K extends OpName>(
  op: K,
  ins: readonly Lanes[],
  params: OpParams[K],
  types: readonly TensorType[],
  context: Context,
): Lanes[] {
  const rule: EvalRule<K> = evalRules[op];
  return rule(ins, params, types, context);
}

/** Runs a program on the lanes of a context, one equation after the other. */
function run(program: Program, inputs: readonly Lanes[], context: Context): Lanes[] {
  const literal = ({ type, value }: Literal): Lanes => {
    const scalar = encode(type, Float64Array.of(value));
    return context.devices.map(() => scalar);
  };
  return evaluateProgram(program, inputs, literal, ({ op, outs, params }, operands) => {
    const types = typesOf(outs);
    return context.override?.(op, operands, types) ?? evaluate(op, operands, params, types, context);
  });
}

/**
 * Evaluates a program on tensors; shard maps inside run on simulated devices.
 *
 * @example
 * ```ts
 * const program = makeProgram((x: Tensor) => x.mul(x))(np.array([1, 2]));
 * const [result] = engines.interpret(program, [engines.hostTensor("float32", [2], [3, 4])]);
 * engines.numbersOf(result); // [9, 16]
 * ```
 */
export function interpret(program: Program, inputs: readonly HostTensor[]): HostTensor[] {
  needProgram(program, "interpret");
  need("list", inputs, "inputs", "interpret");
  const lanes = inputs.map((input) => [input]);
  return runSpmd(program, { axes: [] }, lanes, limitLoops()).map((output) => at(output, 0));
}

/**
 * Evaluates a per-device program on all devices of a mesh, in lock step and in one thread.
 *
 * @param inputs for every input of the program one block per device of the mesh, row-major
 * @returns for every output one block per device
 *
 * @example
 * ```ts
 * const program = makeProgram((x: Tensor) => x.mul(x))(np.array([1, 2]));
 * const blocks = [[1, 2], [3, 4]].map((values) => engines.hostTensor("float32", [2], values));
 * const [results] = engines.interpretSpmd(program, { axes: [{ name: "data", size: 2 }] }, [blocks]);
 * results.map(engines.numbersOf); // [[1, 4], [9, 16]]
 * ```
 */
export function interpretSpmd(
  program: Program,
  mesh: MeshShape,
  inputs: readonly (readonly HostTensor[])[],
): HostTensor[][] {
  needProgram(program, "interpretSpmd");
  need("object", mesh, "mesh", "interpretSpmd");
  need("list", inputs, "inputs", "interpretSpmd");
  return runSpmd(program, mesh, inputs, limitLoops());
}

/** {@link interpretSpmd} without checks of program and mesh. */
export function runSpmd(
  program: Program,
  mesh: MeshShape,
  inputs: readonly (readonly HostTensor[])[],
  limitLoop: LimitLoop,
  override?: Override,
): HostTensor[][] {
  const numDevices = axesSize(mesh.axes);
  checkInputs(program, numDevices, inputs);
  const outputs = run(program, inputs, { mesh, devices: range(numDevices), run, limitLoop, override });
  return outputs.map((lanes) => [...lanes]);
}

function checkInputs(program: Program, numDevices: number, inputs: readonly Lanes[]): void {
  if (inputs.length !== program.inputs.length) {
    throw new ShapeError(`[interpret] ${inputs.length} inputs for ${program.inputs.length} places`);
  }
  program.inputs.forEach(({ type }, i) => {
    const lanes = at(inputs, i);
    if (lanes.length !== numDevices) {
      throw new ShapeError(`[interpret] input ${i} has ${lanes.length} blocks for ${numDevices} devices`);
    }
    for (const block of lanes) {
      if (!sameType(block.type, type) || block.data.length !== sizeOf(type.shape)) {
        throw new ShapeError(
          `[interpret] input ${i} is ${formatType(block.type)} of ${block.data.length} elements, ` +
            `the program takes ${formatType(type)}`,
        );
      }
    }
  });
}
