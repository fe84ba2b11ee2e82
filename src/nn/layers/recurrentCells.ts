/** One step of recurrent networks: `(carry, input) => [carry, output]`. */

import { need } from "../../ir/arguments.js";
import {
  type Fields,
  type FieldsOf,
  type Option,
  type OptionsOf,
  type OptionsOfFields,
  omit,
  optional,
  pick,
  required,
  type Schema,
  schema,
  type Values,
} from "../../ir/schema.js";
import type { Shape } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { type Initializer, initializers, split } from "../../random/index.js";
import type { Tensor } from "../../trace/tensor.js";
import { sigmoid } from "../functions/functions.js";
import {
  type Method,
  type ModuleClass,
  type ModuleInstance,
  mainMethod,
  module,
  moduleClass,
} from "../modules/module.js";
import { layerTypes, promote } from "../modules/operands.js";
import type { ParamInitializer } from "../modules/partitioned.js";
import { param } from "../modules/variables.js";
import { Conv, convConfig } from "./conv.js";
import { Dense, type DenseConfig, defaultKernelInit } from "./linear.js";

/** A step of a recurrent network: from a carry and an input to the next carry and the output. */
export type CellFunction<C> = (carry: C, inputs: Tensor) => [carry: C, output: Tensor];

/** What cells have besides their step. */
export interface CellMembers<C> {
  /** The carry before the first step, for inputs [batch…, features] of one step. */
  initializeCarry(key: Tensor, inputShape: Shape): C;
  /** How many dims of an input belong to one example: 1, or with spatial dims more. */
  readonly numFeatureAxes: number;
}

/** A cell with its configuration, which `nn.RNN` repeats. */
export type RNNCell<C> = ModuleInstance<CellFunction<C>, CellMembers<C>>;

/** The class of a cell. */
export type RNNCellClass<Config extends object, C> = ModuleClass<Config, CellFunction<C>, CellMembers<C>>;

/** What {@link rnnCell} needs to know about a cell besides its step. */
export interface CellDefinition<Config extends object, C> {
  readonly initializeCarry: (config: Config) => (key: Tensor, inputShape: Shape) => C;
  readonly numFeatureAxes?: (config: Config) => number;
}

const cellDefinition = schema<FieldsOf<CellDefinition<object, unknown>> & { readonly options: Option }>({
  initializeCarry: required("function"),
  numFeatureAxes: optional("function"),
  options: optional("object"),
});

/**
 * Defines a custom cell for `nn.RNN`: a module, with the carry that it starts from.
 *
 * @param members `initializeCarry`, and `numFeatureAxes`: how many dims of an input belong to one example; 1 by default
 *
 * @example
 * ```ts
 * const Sum = nn.rnnCell("Sum", () => (carry: Tensor, x: Tensor) => [carry.add(x), carry.add(x)], {
 *   initializeCarry: () => (_key, shape) => np.zeros(shape),
 * });
 * const rnn = nn.RNN({ cell: Sum() });
 * rnn.apply({}, np.array([[[1], [2], [3]]])); // [[[1], [3], [6]]]
 * ```
 */
export function rnnCell<S extends Fields, C>(
  name: string,
  define: (config: Values<S>) => CellFunction<C>,
  members: CellDefinition<Values<S>, C> & { readonly options: Schema<S> },
): RNNCellClass<OptionsOfFields<S>, C>;
export function rnnCell<Config extends object, C>(
  name: string,
  define: (config: Config) => CellFunction<C>,
  members: CellDefinition<Config, C>,
): RNNCellClass<Config, C>;
export function rnnCell(
  name: string,
  define: Method,
  members: CellDefinition<never, unknown> & { readonly options?: Schema },
): { readonly moduleName: string } {
  need("string", name, "name", "nn.rnnCell");
  need("function", define, "define", "nn.rnnCell");
  cellDefinition.read(members, "nn.rnnCell");
  const { options, ...own } = members;
  return moduleClass({
    name,
    methods: { [mainMethod]: define },
    members: { numFeatureAxes: () => 1, ...own },
    options,
  });
}

const cellConfig = schema({
  ...layerTypes.fields,
  /** The number of features of carry and output. */
  features: required("number"),
  /** The activation of gates; `nn.sigmoid` by default. */
  gateFn: optional<(x: Tensor) => Tensor>("function", sigmoid),
  /** The activation of outputs; `np.tanh` by default. */
  activationFn: optional<(x: Tensor) => Tensor>("function", np.tanh),
  /** Initialises the kernels of the inputs; `lecunNormal` by default. */
  kernelInit: optional<ParamInitializer>("function", defaultKernelInit),
  /** Initialises the kernels of the carry; `orthogonal` by default. */
  recurrentKernelInit: optional<ParamInitializer>("function", initializers.orthogonal()),
  /** Initialises the biases; zeros by default. */
  biasInit: optional<ParamInitializer>("function", initializers.zeros),
  /** Initialises the carry; zeros by default. */
  carryInit: optional<Initializer>("function", initializers.zeros),
});

/** What cells have in common. */
export interface CellConfig extends OptionsOf<typeof cellConfig> {}

const simpleCellConfig = schema({
  ...omit(cellConfig.fields, "gateFn"),
  /** Whether the old carry is added before the activation; false by default. */
  residual: false,
});

/** Configuration of {@link SimpleCell}. */
export interface SimpleCellConfig extends OptionsOf<typeof simpleCellConfig> {}

const mguCellConfig = schema({
  ...omit(cellConfig.fields, "biasInit"),
  /** Initialises the bias of the forget gate; ones by default. */
  forgetBiasInit: optional<ParamInitializer>("function", initializers.ones),
  /** Initialises the other biases; zeros by default. */
  activationBiasInit: optional<ParamInitializer>("function", initializers.zeros),
  /** Whether the forget gate also acts on the old carry; true by default. */
  resetGate: true,
});

/** Configuration of {@link MGUCell}. */
export interface MGUCellConfig extends OptionsOf<typeof mguCellConfig> {}

/** The carry of an LSTM: its cell state and its last output. */
export type LstmCarry = [memory: Tensor, hidden: Tensor];

/** A configuration with its defaults. */
type Cell = Values<typeof cellConfig.fields>;

const carryOf =
  ({ carryInit, paramDtype }: Pick<Cell, "carryInit" | "paramDtype">) =>
  (key: Tensor, shape: Shape): Tensor =>
    carryInit(key, shape, paramDtype);

const single =
  (config: Pick<Cell, "carryInit" | "paramDtype" | "features">) =>
  (key: Tensor, inputShape: Shape): Tensor =>
    carryOf(config)(key, [...inputShape.slice(0, -1), config.features]);

const pair =
  (config: Pick<Cell, "carryInit" | "paramDtype" | "features">) =>
  (key: Tensor, inputShape: Shape): LstmCarry => {
    const [first, second] = keyPair(key);
    const shape = [...inputShape.slice(0, -1), config.features];
    return [carryOf(config)(first, shape), carryOf(config)(second, shape)];
  };

function keyPair(key: Tensor): [Tensor, Tensor] {
  const keys = split(key);
  return [keys.get(0), keys.get(1)];
}

/** The layers of a cell, from inputs and from the carry. */
function layersOf(config: Omit<Cell, "features" | "gateFn">, features: number) {
  const { dtype, paramDtype, kernelInit, recurrentKernelInit, biasInit } = config;
  const types = { features, dtype, paramDtype, biasInit };
  return {
    ofInput: (name: string, options: Partial<DenseConfig>) =>
      Dense({ ...types, kernelInit, name, ...options }),
    ofCarry: (name: string, options: Partial<DenseConfig>) =>
      Dense({ ...types, kernelInit: recurrentKernelInit, name, ...options }),
  };
}

const widthOf = (x: Tensor): number => x.shape.at(-1) ?? 0;

/**
 * A long short-term memory: gates decide what it forgets, stores and outputs.
 *
 * @example
 * ```ts
 * const cell = nn.RNN({ cell: nn.LSTMCell({ features: 4 }) });
 * const x = np.ones([1, 5, 3]);
 * cell.apply(cell.init(random.key(0), x), x).shape; // [1, 5, 4]
 * ```
 */
export const LSTMCell: RNNCellClass<CellConfig, LstmCarry> = rnnCell(
  "LSTMCell",
  (config) => {
    const { gateFn, activationFn } = config;
    return ([c, h]: LstmCarry, inputs: Tensor): [LstmCarry, Tensor] => {
      const { ofInput, ofCarry } = layersOf(config, widthOf(h));
      const sum = (gate: string) =>
        np.add(ofInput(`i${gate}`, { useBias: false })(inputs), ofCarry(`h${gate}`, {})(h));
      return lstmStep(c, { i: sum("i"), f: sum("f"), g: sum("g"), o: sum("o") }, gateFn, activationFn);
    };
  },
  { options: cellConfig, initializeCarry: pair },
);

interface Gates {
  readonly i: Tensor;
  readonly f: Tensor;
  readonly g: Tensor;
  readonly o: Tensor;
}

function lstmStep(
  c: Tensor,
  sums: Gates,
  gateFn: (x: Tensor) => Tensor,
  activationFn: (x: Tensor) => Tensor,
): [LstmCarry, Tensor] {
  const [i, f, o] = [gateFn(sums.i), gateFn(sums.f), gateFn(sums.o)];
  const next = np.add(np.multiply(f, c), np.multiply(i, activationFn(sums.g)));
  const hidden = np.multiply(o, activationFn(next));
  return [[next, hidden], hidden];
}

/** Kernel and bias of a layer whose product is computed together with those of others. */
const DenseParams = module(
  "DenseParams",
  ({ features, useBias = true, paramDtype, kernelInit, biasInit }: DenseConfig) =>
    (inputs: Tensor): { readonly kernel: Tensor; readonly bias: Tensor | undefined } => ({
      kernel: param("kernel", kernelInit ?? defaultKernelInit, [widthOf(inputs), features], paramDtype),
      bias: useBias ? param("bias", biasInit ?? initializers.zeros, [features], paramDtype) : undefined,
    }),
);

const gateNames = ["i", "f", "g", "o"] as const;

/**
 * {@link LSTMCell} with the same parameters and one product for all gates.
 *
 * @example
 * ```ts
 * const rnn = nn.RNN({ cell: nn.OptimizedLSTMCell({ features: 4 }) });
 * const x = np.ones([1, 5, 3]);
 * rnn.apply(rnn.init(random.key(0), x), x).shape; // [1, 5, 4]
 * ```
 */
export const OptimizedLSTMCell: RNNCellClass<CellConfig, LstmCarry> = rnnCell(
  "OptimizedLSTMCell",
  (config) => {
    const { gateFn, activationFn, dtype, paramDtype, kernelInit, biasInit, recurrentKernelInit } = config;
    return ([c, h]: LstmCarry, inputs: Tensor): [LstmCarry, Tensor] => {
      const features = widthOf(h);
      const common = { features, paramDtype, biasInit };
      const made = gateNames.map((gate) => ({
        input: DenseParams({ ...common, useBias: false, kernelInit, name: `i${gate}` })(inputs),
        carry: DenseParams({ ...common, kernelInit: recurrentKernelInit, name: `h${gate}` })(h),
      }));
      const joined = (tensors: readonly Tensor[]) => np.concatenate(tensors, -1);
      const inputKernel = joined(made.map(({ input }) => input.kernel));
      const carryKernel = joined(made.map(({ carry }) => carry.kernel));
      const bias = joined(made.flatMap(({ carry }) => carry.bias ?? []));
      const [x, wx] = promote([inputs, inputKernel], dtype, "OptimizedLSTMCell");
      const [y, wh, b] = promote([h, carryKernel, bias], dtype, "OptimizedLSTMCell");
      const sums = np.add(np.add(np.matmul(y, wh), b), np.matmul(x, wx));
      return lstmStep(c, gatesOf(sums, gateNames), gateFn, activationFn);
    };
  },
  { options: cellConfig, initializeCarry: pair },
);

/** The parts of four gates that lie side by side, in the given order. */
function gatesOf(sums: Tensor, order: readonly (keyof Gates)[]): Gates {
  const width = widthOf(sums) / order.length;
  const part = (gate: keyof Gates) => {
    const start = order.indexOf(gate) * width;
    return sums.get("...", np.s(start, start + width));
  };
  return { i: part("i"), f: part("f"), g: part("g"), o: part("o") };
}

/**
 * `activation(input · kernel + carry · kernel)`.
 *
 * @example
 * ```ts
 * const rnn = nn.RNN({ cell: nn.SimpleCell({ features: 4 }) });
 * const x = np.ones([1, 5, 3]);
 * rnn.apply(rnn.init(random.key(0), x), x).shape; // [1, 5, 4]
 * ```
 */
export const SimpleCell: RNNCellClass<SimpleCellConfig, Tensor> = rnnCell(
  "SimpleCell",
  (config) => {
    const { activationFn, residual } = config;
    return (carry: Tensor, inputs: Tensor): [Tensor, Tensor] => {
      const { ofInput, ofCarry } = layersOf(config, widthOf(carry));
      const sum = np.add(ofInput("i", {})(inputs), ofCarry("h", { useBias: false })(carry));
      const next = activationFn(residual ? np.add(sum, carry) : sum);
      return [next, next];
    };
  },
  { options: simpleCellConfig, initializeCarry: single },
);

/**
 * A gated recurrent unit: one gate for what it forgets and takes in, one for how much of the past is seen.
 *
 * @example
 * ```ts
 * const rnn = nn.RNN({ cell: nn.GRUCell({ features: 4 }) });
 * const x = np.ones([1, 5, 3]);
 * rnn.apply(rnn.init(random.key(0), x), x).shape; // [1, 5, 4]
 * ```
 */
export const GRUCell: RNNCellClass<CellConfig, Tensor> = rnnCell(
  "GRUCell",
  (config) => {
    const { gateFn, activationFn } = config;
    return (h: Tensor, inputs: Tensor): [Tensor, Tensor] => {
      const { ofInput, ofCarry } = layersOf(config, widthOf(h));
      const gate = (name: string) =>
        gateFn(np.add(ofInput(`i${name}`, {})(inputs), ofCarry(`h${name}`, { useBias: false })(h)));
      const [r, z] = [gate("r"), gate("z")];
      const n = activationFn(np.add(ofInput("in", {})(inputs), np.multiply(r, ofCarry("hn", {})(h))));
      const next = np.add(np.multiply(np.subtract(1, z), n), np.multiply(z, h));
      return [next, next];
    };
  },
  { options: cellConfig, initializeCarry: single },
);

/**
 * A minimal gated unit: a {@link GRUCell} with a single gate.
 *
 * @example
 * ```ts
 * const rnn = nn.RNN({ cell: nn.MGUCell({ features: 4 }) });
 * const x = np.ones([1, 5, 3]);
 * rnn.apply(rnn.init(random.key(0), x), x).shape; // [1, 5, 4]
 * ```
 */
export const MGUCell: RNNCellClass<MGUCellConfig, Tensor> = rnnCell(
  "MGUCell",
  (config) => {
    const { gateFn, activationFn, resetGate, forgetBiasInit, activationBiasInit } = config;
    return (h: Tensor, inputs: Tensor): [Tensor, Tensor] => {
      const { ofInput, ofCarry } = layersOf({ ...config, biasInit: activationBiasInit }, widthOf(h));
      const f = gateFn(
        np.add(ofInput("if", { biasInit: forgetBiasInit })(inputs), ofCarry("hf", { useBias: false })(h)),
      );
      const past = ofCarry("hn", { useBias: resetGate })(h);
      const n = activationFn(np.add(ofInput("in", {})(inputs), resetGate ? np.multiply(past, f) : past));
      const next = np.add(np.multiply(np.subtract(1, f), n), np.multiply(f, h));
      return [next, next];
    };
  },
  { options: mguCellConfig, initializeCarry: single },
);

const convLstmCellConfig = schema({
  ...layerTypes.fields,
  ...pick(convConfig.fields, "features", "strides", "useBias", "padding"),
  /** The size of the window along each spatial dim. */
  kernelSize: required("integers"),
  /** Initialises the carry; zeros by default. */
  carryInit: cellConfig.fields.carryInit,
});

/** Configuration of {@link ConvLSTMCell}. */
export interface ConvLSTMCellConfig extends OptionsOf<typeof convLstmCellConfig> {}

/**
 * An LSTM of images: its products are convolutions, its carry has the inputs' spatial dims.
 *
 * @example
 * ```ts
 * const rnn = nn.RNN({ cell: nn.ConvLSTMCell({ features: 4, kernelSize: [3, 3] }) });
 * const x = np.ones([1, 5, 6, 6, 3]);
 * rnn.apply(rnn.init(random.key(0), x), x).shape; // [1, 5, 6, 6, 4]
 * ```
 */
export const ConvLSTMCell: RNNCellClass<ConvLSTMCellConfig, LstmCarry> = rnnCell(
  "ConvLSTMCell",
  ({ carryInit: _, ...config }) => {
    const layer = (name: string) => Conv({ ...config, features: 4 * config.features, name });
    return ([c, h]: LstmCarry, inputs: Tensor): [LstmCarry, Tensor] => {
      const sums = np.add(layer("ih")(inputs), layer("hh")(h));
      const { i, f, g, o } = gatesOf(sums, ["i", "g", "f", "o"]);
      return lstmStep(c, { i, f: np.add(f, 1), g, o }, sigmoid, np.tanh);
    };
  },
  {
    options: convLstmCellConfig,
    initializeCarry: pair,
    numFeatureAxes: ({ kernelSize }) => kernelSize.length + 1,
  },
);
