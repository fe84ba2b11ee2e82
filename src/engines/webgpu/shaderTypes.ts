import { DTypeError } from "../../ir/errors.js";
import type { OpName } from "../../ir/ops.js";
import { type Eqn, forEachEqn, type Program } from "../../ir/program.js";
import { formatType, type TensorType } from "../../ir/shape.js";

/**
 * The ops on float64 that shaders compute, with pairs of float32: products and sums that are rounded to float32 in the
 * end, as the functions of random numbers use them.
 */
const doubleOps: ReadonlySet<OpName> = new Set<OpName>([
  "convert",
  "mul",
  "add",
  "select",
  "broadcastInDim",
  "reshape",
]);

/** Refuses types that shaders do not have, with the equation that needs them. */
export function checkTypes(program: Program, name: string): void {
  const refuse = ({ dtype, shape }: TensorType, what: string): never => {
    throw new DTypeError(
      `[compile] ${name}: ${what} ${formatType({ dtype, shape })}, but the webgpu engine has no ${dtype}: convert it, or use the threads engine`,
    );
  };
  for (const { type } of program.inputs) if (!isHeld(type)) refuse(type, "an input is");
  for (const { type } of program.outputs) if (!isHeld(type)) refuse(type, "an output is");
  forEachEqn(program, (eqn) => {
    const wide = [...eqn.ins, ...eqn.outs].find(({ type }) => !isHeld(type));
    if (wide !== undefined && !isComputed(eqn))
      refuse(wide.type, `${eqn.op}${eqn.source ? ` at ${eqn.source.text}` : ""} has`);
  });
}

/** Whether tensors on a GPU can have elements of a type. */
const isHeld = ({ dtype }: TensorType): boolean => dtype !== "float64" && !dtype.startsWith("complex");

/** Whether an equation on float64 is one of products and sums; conversions are from and to float32. */
function isComputed({ op, ins, outs }: Eqn): boolean {
  const dtypes = [...ins, ...outs].map(({ type }) => type.dtype);
  if (op === "convert") return dtypes.every((dtype) => dtype === "float64" || dtype === "float32");
  return doubleOps.has(op);
}
