/** Brings tokens to their experts and the results back, on one device or along a mesh axis. */
import type { MeshAxis } from "../../ir/mesh.js";
import { at } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { exchangeRows, type RowExchange } from "../../spmd/mesh/raggedAllToAll.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { customVjp } from "../../transforms/derivatives/customVjp.js";

/** Computes consecutive groups of rows by one expert each: rows [rows, width], int32 sizes [experts of this device]. */
export type RunExperts = (rows: Tensor, sizes: Tensor) => Tensor;

/** The choices of tokens in the order of their experts. */
interface Sorting {
  /** For every choice, token by token, its place in the order; int32 [choices]. */
  readonly places: Tensor;
  /** For every place the choice; int32 [choices]. */
  readonly order: Tensor;
  /** How many choices each expert has; int32 [experts]. */
  readonly counts: Tensor;
}

/** Sorts by counting: the place of a choice is where its expert begins plus the number of earlier choices of it. */
function sortChoices(experts: Tensor, numExperts: number): Sorting {
  const numChoices = at(experts.shape, 0);
  // One class more than experts, for choices that were dropped.
  const classes = np.arange(numExperts + 1).astype("int32");
  const isOf = np.equal(np.expandDims(experts, -1), classes).astype("int32");
  const running = np.cumsum(isOf, 0);
  const sizes = np.sum(isOf, 0).astype("int32");
  const starts = np.cumsum(sizes).sub(sizes);
  const places = np.sum(isOf.mul(running.add(starts).sub(1)), -1).astype("int32");
  const order = ops.scatter(ops.zeros(places.type), places, ops.iota("int32", [numChoices], 0), {
    dim: 0,
    batchDims: 0,
    combine: "set",
  });
  return { places, order, counts: ops.sliceDim(sizes, 0, 0, numExperts) };
}

const take = (rows: Tensor, indices: Tensor) => ops.gather(rows, indices, { dim: 0, batchDims: 0 });

/**
 * The results of every token's choices, times their gates and added; backward, every choice looks up the cotangent of its
 * token, so that no copy of the results in the order of tokens is kept.
 */
const combine = (count: number) => {
  const forward = (results: Tensor, gates: Tensor, places: Tensor) => {
    const [numTokens, width] = [at(gates.shape, 0), at(results.shape, 1)];
    const returned = ops.reshape(take(results, places), [numTokens, count, width]).astype("float32");
    return np.sum(returned.mul(np.expandDims(gates, -1)), 1).astype(results.dtype);
  };
  return customVjp(
    (results: Tensor, gates: Tensor, places: Tensor, _order: Tensor) => forward(results, gates, places),
    {
      forward: (results, gates, places, order) =>
        [forward(results, gates, places), { results, gates, places, order }] as const,
      backward: ({ results, gates, places, order }, ct: Tensor) => {
        const cts = take(ct, ops.div(order, count)).astype("float32");
        const ownGates = take(ops.reshape(gates, [at(order.shape, 0)]), order);
        const products = np.sum(results.astype("float32").mul(cts), 1);
        const ofResults = cts.mul(np.expandDims(ownGates, -1)).astype(results.dtype);
        return [ofResults, ops.reshape(take(products, places), gates.shape), null, null];
      },
    },
  );
};

/** The token of every choice, `count` for each token; backward, the cotangents of a token's choices are added. */
const spread = (count: number) => {
  const forward = (tokens: Tensor, order: Tensor) => take(tokens, ops.div(order, count));
  return customVjp((tokens: Tensor, order: Tensor, _places: Tensor) => forward(tokens, order), {
    forward: (tokens, order, places) => [forward(tokens, order), places] as const,
    backward: (places, ct: Tensor) => {
      const [numChoices = 0, ...row] = ct.shape;
      const ofChoices = ops.reshape(take(ct, places), [numChoices / count, count, ...row]);
      return [ops.reduceSum(ofChoices, [1]), null, null];
    },
  });
};

/** How rows travel to the devices of their experts. */
interface Travel {
  readonly exchange: RowExchange;
  /** int32 [experts of this device] */
  readonly sizes: Tensor;
}

/** Sums over what comes before, along a dim. */
const before = (x: Tensor, dim: number) => np.cumsum(x, dim).sub(x);

/** From how many choices all devices have for all experts, where every block of rows begins and ends. */
function planTravel(counts: Tensor, axis: MeshAxis): Travel {
  const [numExperts, { size }] = [at(counts.shape, 0), axis];
  const perDevice = numExperts / size;
  const me = ops.axisIndex([axis]);
  const all = ops.allGather(ops.reshape(counts, [1, numExperts]), [axis], 0);
  const totals = np.sum(all, 0).astype("int32");
  const groupStarts = ops.reshape(before(ops.reshape(totals, [size, perDevice]), 1), [1, numExperts]);
  // [devices, experts]: where the rows that a device sends for an expert begin, there and here.
  const there = np.add(groupStarts, before(all, 0));
  const here = before(all, 1);
  const zero = ops.zeros({ dtype: "int32", shape: [] });
  const mine = (table: Tensor) =>
    ops.reshape(ops.dynamicSlice(table, [me, zero], [1, numExperts]), [numExperts, 1]);
  const ofMine = (table: Tensor) =>
    ops.reshape(ops.dynamicSlice(table, [zero, me.mul(perDevice)], [size, perDevice]), [numExperts, 1]);
  return {
    exchange: {
      sends: ops.concatenate([mine(here), mine(all), mine(there)], 1),
      receives: ops.concatenate([ofMine(there), ofMine(all), ofMine(here)], 1),
    },
    sizes: ops.dynamicSlice(totals, [me.mul(perDevice)], [perDevice]),
  };
}

/** What dispatching needs to know besides tokens. */
export interface DispatchOptions {
  readonly numExperts: number;
  /** The axis along which each device has some of the experts; undefined if this one has all. */
  readonly axis: MeshAxis | undefined;
  /** The largest number of rows that all tokens of this device together can have at one device's experts. */
  readonly maxRows: number;
  /** Whether choices can be dropped. */
  readonly drops: boolean;
}

/**
 * The results of every token's experts, weighted and added.
 *
 * @param tokens [tokens, width]
 * @param experts int32 [tokens, experts per token]; the number of experts for dropped choices
 * @param gates float32 [tokens, experts per token]
 */
export function dispatchTokens(
  tokens: Tensor,
  experts: Tensor,
  gates: Tensor,
  run: RunExperts,
  options: DispatchOptions,
): Tensor {
  const { numExperts, axis } = options;
  const [numTokens = 0, count = 0] = experts.shape;
  const numChoices = numTokens * count;
  const { places, order, counts } = sortChoices(ops.reshape(experts, [numChoices]), numExperts);
  const sorted = spread(count)(tokens, order, places);
  const results = axis ? runAway(sorted, counts, run, { ...options, axis }) : run(sorted, counts);
  return combine(count)(results, gates, places, order).astype(tokens.dtype);
}

/** The memory that rows travel to: how many there is room for, and whether those that do not come are read, as zeros. */
interface Space {
  readonly room: number;
  readonly isRead: boolean;
}

/** Rows on their way to other devices; backward, cotangents go back. */
const travel = (axis: MeshAxis, there: Space, back: Space) => {
  const send = (rows: Tensor, exchange: RowExchange, { room, isRead }: Space) => {
    const type = { dtype: rows.dtype, shape: [room, at(rows.shape, 1)] };
    return exchangeRows(rows, isRead ? ops.zeros(type) : ops.unset(type), exchange, [axis]);
  };
  return customVjp((rows: Tensor, exchange: RowExchange) => send(rows, exchange, there), {
    forward: (rows, exchange) => [send(rows, exchange, there), exchange] as const,
    backward: (exchange, ct: Tensor) => [send(ct, turned(exchange), back), null],
  });
};

const turned = ({ sends, receives }: RowExchange): RowExchange => ({ sends: receives, receives: sends });

/** All-to-all to the devices of the experts and back, forward and backward. */
function runAway(
  sorted: Tensor,
  counts: Tensor,
  run: RunExperts,
  { axis, maxRows, drops }: DispatchOptions & { readonly axis: MeshAxis },
): Tensor {
  const { exchange, sizes } = planTravel(counts, axis);
  // Experts read the rows of their groups only. Choices that were dropped do not travel, and are read as zeros.
  const atExperts = { room: maxRows * axis.size, isRead: false };
  const atTokens = { room: at(sorted.shape, 0), isRead: drops };
  const received = travel(axis, atExperts, atTokens)(sorted, exchange);
  return travel(axis, atTokens, atExperts)(run(received, sizes), turned(exchange));
}
