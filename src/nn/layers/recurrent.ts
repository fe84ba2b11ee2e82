/** Recurrent networks: a cell repeated along time, in one direction or both. */

import { recordOf } from "../../ir/arguments.js";
import { type OptionsOf, optional, required, schema, type Values } from "../../ir/schema.js";
import { at, type Shape } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { key as newKey, split } from "../../random/index.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { scan } from "../lift/scan.js";
import { ModuleError } from "../modules/errors.js";
import { filterKind } from "../modules/filter.js";
import { type ModuleInstance, type ModuleOptions, mainMethod, moduleClass } from "../modules/module.js";
import type { RNNCell } from "./recurrentCells.js";

const recurrentOptions = schema({
  /** Whether time is the first dim of the inputs, and not the one before the features; false by default. */
  timeMajor: false,
});

/** What recurrent networks have in common. */
export interface RecurrentOptions extends OptionsOf<typeof recurrentOptions> {}

const rnnConfig = schema({
  ...recurrentOptions.fields,
  cell: required<RNNCell<unknown>>("function"),
  /** Whether the last carry is returned too: `[carry, outputs]`; false by default. */
  returnCarry: false,
  /** Whether to go from the last input to the first; false by default. Outputs are in the order of their steps. */
  reverse: false,
  /** With `reverse`: whether the outputs are put in the order of the inputs; false by default. */
  keepOrder: false,
  /** Collections of which every step has variables of its own, stacked along the given dim; none by default. */
  variableAxes: optional(recordOf("integer"), {}),
  /** Collections that all steps share; `params` by default. */
  variableBroadcast: optional(filterKind, "params"),
  /** Collections that are carried from step to step; none by default. */
  variableCarry: optional(filterKind, false),
  /** The keys that the cell gets: with `true` every step has keys of its own. `{ params: false }` by default. */
  splitRngs: optional(recordOf("flag"), { params: false }),
});

/** Configuration of {@link RNN}. */
export interface RNNConfig<C, K extends boolean = boolean> extends Omit<OptionsOf<typeof rnnConfig>, "cell"> {
  /** The cell to repeat. */
  readonly cell: RNNCell<C>;
  readonly returnCarry?: K;
}

/** Options of a call of a recurrent network. */
export interface RNNCallOptions<C> {
  /** The carry before the first step; by default that of the cell. */
  readonly initialCarry?: C | undefined;
  /** The key for the cell's initial carry, which is zeros for most cells. */
  readonly initKey?: Tensor | undefined;
  /** How many steps of each example count, int32 [batch]; the rest is padding. */
  readonly seqLengths?: Tensor | undefined;
  /** Overrides the configuration: whether the last carry is returned too. */
  readonly returnCarry?: boolean | undefined;
  /** Overrides the configuration: whether time is the first dim of the inputs. */
  readonly timeMajor?: boolean | undefined;
}

/** Options of a call of a network with one direction, which override its configuration. */
export interface DirectionOptions {
  /** Whether to go from the last input to the first. */
  readonly reverse?: boolean | undefined;
  /** With `reverse`: whether the outputs are put in the order of the inputs. */
  readonly keepOrder?: boolean | undefined;
}

/** What a recurrent network returns: outputs of every step, and with `K` the last carry. */
export type RNNResult<C, K extends boolean> = K extends true ? [carry: C, outputs: Tensor] : Tensor;

/** From inputs to outputs of every step, with the last carry where the configuration (`K`) or the call asks for it. */
export interface RNNFunction<C, K extends boolean, More = DirectionOptions> {
  (inputs: Tensor, options: RNNCallOptions<C> & More & { readonly returnCarry: true }): RNNResult<C, true>;
  (inputs: Tensor, options: RNNCallOptions<C> & More & { readonly returnCarry: false }): RNNResult<C, false>;
  (
    inputs: Tensor,
    options?: RNNCallOptions<C> & More & { readonly returnCarry?: undefined },
  ): RNNResult<C, K>;
}

/** The class of {@link RNN}, which takes its types from the cell. */
export interface RNNClass {
  <C, const K extends boolean = false>(
    config: RNNConfig<C, K> & ModuleOptions,
  ): ModuleInstance<RNNFunction<C, K>>;
  readonly moduleName: string;
}

/**
 * Repeats a cell along time: inputs [batch…, time, features] to outputs of the same form, as one loop.
 *
 * ```ts
 * const model = nn.RNN({ cell: nn.LSTMCell({ features: 64 }) });
 * ```
 *
 * @example
 * ```ts
 * const rnn = nn.RNN({ cell: nn.SimpleCell({ features: 4 }) });
 * const x = np.ones([1, 5, 3]);
 * rnn.apply(rnn.init(random.key(0), x), x).shape; // [1, 5, 4]
 * ```
 */
export const RNN = moduleClass<RNNClass>({
  name: "RNN",
  options: rnnConfig,
  methods: {
    [mainMethod]:
      (config: Values<typeof rnnConfig.fields>) =>
      (inputs: Tensor, options: RNNCallOptions<unknown> & DirectionOptions = {}) =>
        runSteps(config, inputs, options),
  },
});

function runSteps(
  config: Values<typeof rnnConfig.fields>,
  given: Tensor,
  options: RNNCallOptions<unknown> & DirectionOptions,
): unknown {
  const { cell, variableAxes, variableBroadcast, variableCarry, splitRngs } = config;
  const { timeMajor, returnCarry } = outputForm(config, options);
  const reverse = options.reverse ?? config.reverse;
  const keepOrder = options.keepOrder ?? config.keepOrder;
  const { initKey = newKey(0), seqLengths } = options;
  const time = timeMajor ? 0 : given.ndim - cell.numFeatureAxes - 1;
  if (time < 0 || given.ndim < cell.numFeatureAxes + 1) {
    throw new ModuleError(
      "argument",
      `[RNN] ${given} has ${given.ndim} dims: time and ${cell.numFeatureAxes} of the features are needed`,
    );
  }
  const flip = (x: Tensor) => flipSequences(x, seqLengths, time);
  const inputs = reverse ? flip(given) : given;
  const stepShape: Shape = inputs.shape.filter((_, dim) => dim !== time);
  const first = options.initialCarry ?? cell.initializeCarry(initKey, stepShape);
  // Where sequences end at different steps, all carries are kept and the last of each is chosen.
  const keepsCarries = seqLengths !== undefined && returnCarry;
  const step = (one: RNNCell<unknown>, carry: unknown, x: Tensor): [unknown, [unknown, Tensor]] => {
    const [next, output] = one(carry, x);
    return [next, [keepsCarries ? next : null, output]];
  };
  const loop = scan(step, {
    inAxes: time,
    outAxes: [0, time],
    variableAxes,
    variableBroadcast,
    variableCarry,
    splitRngs,
  });
  const [last, [carries, stacked]] = loop(cell, first, inputs);
  const outputs = reverse && keepOrder ? flip(stacked) : stacked;
  if (!returnCarry) return outputs;
  return [keepsCarries && seqLengths ? lastOf(carries, seqLengths) : last, outputs];
}

/** The layout of inputs and results, from the call or the configuration. */
function outputForm(
  config: RecurrentOptions & { readonly returnCarry?: boolean | undefined },
  call: RNNCallOptions<unknown>,
): { timeMajor: boolean; returnCarry: boolean } {
  return {
    timeMajor: call.timeMajor ?? config.timeMajor ?? false,
    returnCarry: call.returnCarry ?? config.returnCarry ?? false,
  };
}

/** The carry after the last step of each example, of carries [time, batch, …]. */
function lastOf(carries: unknown, seqLengths: Tensor): unknown {
  const steps = np.subtract(seqLengths, 1);
  return tree.map((x: Tensor) => x.get(steps, np.arange(at(x.shape, 1))), carries);
}

/** Reverses sequences along a dim; with lengths, the padding of each stays at its end. */
function flipSequences(x: Tensor, seqLengths: Tensor | undefined, time: number): Tensor {
  if (seqLengths === undefined) return np.flip(x, time);
  const steps = at(x.shape, time);
  const lengths = np.expandDims(seqLengths, time);
  const backwards = np.arange(steps - 1, -1, -1);
  const numBatch = seqLengths.ndim;
  const spread = np.reshape(backwards, range1(numBatch + 1, time, steps));
  const places = np.mod(np.add(spread, lengths), steps);
  const whole = np.reshape(places, [...places.shape, ...new Array(x.ndim - places.ndim).fill(1)]);
  return np.takeAlongAxis(x, np.broadcastTo(whole, x.shape), time);
}

const range1 = (rank: number, dim: number, size: number): Shape =>
  Array.from({ length: rank }, (_, i) => (i === dim ? size : 1));

const bidirectionalConfig = schema({
  ...recurrentOptions.fields,
  /** What runs from the first input to the last. */
  forwardRnn: required<unknown>("function"),
  /** What runs from the last input to the first. */
  backwardRnn: required<unknown>("function"),
  /** How the outputs of both are joined; by default the features side by side. */
  mergeFn: optional<(forward: Tensor, backward: Tensor) => Tensor>("function"),
  /** Whether the last carries are returned too; false by default. */
  returnCarry: false,
});

/** Configuration of {@link Bidirectional}. */
export interface BidirectionalConfig<F, B, K extends boolean = boolean>
  extends OptionsOf<typeof bidirectionalConfig> {
  readonly forwardRnn: ModuleInstance<RNNFunction<F, boolean>>;
  readonly backwardRnn: ModuleInstance<RNNFunction<B, boolean>>;
  readonly returnCarry?: K;
}

/** The class of {@link Bidirectional}. */
export interface BidirectionalClass {
  <F, B, const K extends boolean = false>(
    config: BidirectionalConfig<F, B, K> & ModuleOptions,
  ): ModuleInstance<RNNFunction<[forward: F, backward: B], K, object>>;
  readonly moduleName: string;
}

/**
 * Two recurrent networks, one in each direction, with their outputs joined.
 *
 * @example
 * ```ts
 * const rnn = () => nn.RNN({ cell: nn.GRUCell({ features: 4 }) });
 * const layer = nn.Bidirectional({ forwardRnn: rnn(), backwardRnn: rnn() });
 * const x = np.ones([1, 5, 3]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [1, 5, 8]
 * ```
 */
export const Bidirectional = moduleClass<BidirectionalClass>({
  name: "Bidirectional",
  options: bidirectionalConfig,
  methods: {
    [mainMethod]: <F, B>(config: BidirectionalConfig<F, B>) => bothWays(config),
  },
  fieldNames: { forwardRnn: "forward_rnn", backwardRnn: "backward_rnn" },
});

function bothWays<F, B>(config: BidirectionalConfig<F, B>) {
  const { forwardRnn, backwardRnn, mergeFn = (a, b) => np.concatenate([a, b], -1) } = config;
  return (inputs: Tensor, options: RNNCallOptions<[F, B]> = {}): unknown => {
    const { initialCarry, initKey, seqLengths } = options;
    const { timeMajor, returnCarry } = outputForm(config, options);
    const keys = initKey && split(initKey);
    const common = { seqLengths, returnCarry: true, timeMajor } as const;
    const [forwardCarry, forward] = forwardRnn(inputs, {
      ...common,
      initialCarry: initialCarry?.[0],
      initKey: keys?.get(0),
      reverse: false,
    });
    const [backwardCarry, backward] = backwardRnn(inputs, {
      ...common,
      initialCarry: initialCarry?.[1],
      initKey: keys?.get(1),
      reverse: true,
      keepOrder: true,
    });
    const outputs = mergeFn(forward, backward);
    return returnCarry ? [[forwardCarry, backwardCarry], outputs] : outputs;
  };
}
