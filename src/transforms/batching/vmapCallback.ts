import { ValueError } from "../../ir/errors.js";
import type { OpParams } from "../../ir/ops.js";
import { withShape } from "../../ir/shape.js";
import { bind, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { type BatchContext, type Batched, batched, materialize, type VmapRule } from "./vmapContext.js";

type Params = OpParams["callback"];

/** Sequential calls: a loop over the batch that calls once for each element. */
function oneByOne(ins: readonly Batched[], params: Params, { size }: BatchContext): Batched[] {
  const consts = ins.filter((x) => !x.batched).map(({ tensor }) => tensor);
  const xs = ins.filter((x) => x.batched).map(({ tensor }) => tensor);
  const slices = xs.map(({ type }) => withShape(type, type.shape.slice(1)));
  const { program: body } = traceFlat(
    (args) => {
      const [own, shared] = [args.slice(consts.length).values(), args.slice(0, consts.length).values()];
      const operands = ins.flatMap((x) => (x.batched ? own : shared).next().value ?? []);
      return bind("callback", operands, params);
    },
    [...consts.map(({ type }) => type), ...slices],
    "vmap of a callback",
  );
  const loop = { body, length: size, reverse: false, numConsts: consts.length, numCarry: 0 };
  return bind("scan", [...consts, ...xs], loop).map(batched);
}

/** One call for the whole batch, which is dim 0 of operands and results. */
function allAtOnce(ins: readonly Batched[], params: Params, context: BatchContext): Batched[] {
  const operands = ins.map((x) =>
    params.batching === "expandDims" && !x.batched
      ? ops.reshape(x.tensor, [1, ...x.tensor.shape])
      : materialize(x, context),
  );
  const results = params.results.map((type) => withShape(type, [context.size, ...type.shape]));
  return bind("callback", operands, { ...params, results }).map(batched);
}

/** Batches a host callback in the way its `vmapMethod` says. */
export const vmapCallback: VmapRule<"callback"> = (ins, params, context) => {
  switch (params.batching) {
    case "sequential":
      return oneByOne(ins, params, context);
    case "expandDims":
    case "broadcastAll":
      return allAtOnce(ins, params, context);
    case "never":
      throw new ValueError(
        `[vmap] ${params.fn.name} is called for a batch but has no vmapMethod: give vmapMethod "sequential" for a call per element, or "expandDims" or "broadcastAll" when it takes whole batches`,
      );
  }
};
