/** One step of recurrent networks: `(carry, input) => [carry, output]`. */
import { need } from "../ir/arguments.js";
import { needOptions, type OptionNames } from "../ir/options.js";
import type { Shape } from "../ir/shape.js";
import * as np from "../numpy/index.js";
import { type Initializer, initializers, split } from "../random/index.js";
import type { Tensor } from "../trace/tensor.js";
import { Conv, type ConvConfig, type Padding } from "./conv.js";
import { sigmoid } from "./functions.js";
import { Dense, type DenseConfig, defaultKernelInit } from "./linear.js";
import { type ModuleClass, type ModuleInstance, mainMethod, module, moduleClass } from "./module.js";
import { type LayerTypes, promote } from "./operands.js";
import type { ParamInitializer } from "./partitioned.js";
import { param } from "./variables.js";

/** What a step of a recurrent network is: the next carry and the output from a carry and an input. */
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

/** What {@link rnnCell} needs to know of a cell besides its step. */
export interface CellDefinition<Config extends object, C> {
  readonly initializeCarry: (config: Config) => (key: Tensor, inputShape: Shape) => C;
  readonly numFeatureAxes?: (config: Config) => number;
  /** The names of all options of the configuration; with them, others are refused. */
  readonly options?: OptionNames<NoInfer<Config>>;
}

/**
 * Defines a cell of one's own for `nn.RNN`: a module, with the carry that it starts from.
 *
 * ```ts
 * const Sum = nn.rnnCell("Sum", () => (carry: Tensor, x: Tensor) => [carry.add(x), carry], {
 *   initializeCarry: () => (_key, shape) => np.zeros(shape),
 * });
 * ```
 *
 * @param members `initializeCarry`, and `numFeatureAxes`: how many dims of an input belong to one example; 1 by default
 */
export function rnnCell<Config extends object, C>(
  name: string,
  define: (config: Config) => CellFunction<C>,
  members: CellDefinition<Config, C>,
): RNNCellClass<Config, C> {
  need("string", name, "name", "nn.rnnCell");
  need("function", define, "define", "nn.rnnCell");
  needOptions<CellDefinition<Config, C>>(
    members,
    { initializeCarry: true, numFeatureAxes: true, options: true },
    "nn.rnnCell",
  );
  need("function", members.initializeCarry, "initializeCarry", "nn.rnnCell");
  const { options, ...own } = members;
  return moduleClass({
    name,
    methods: { [mainMethod]: define },
    members: { numFeatureAxes: () => 1, ...own },
    options,
  });
}

/** What cells have in common. */
export interface CellConfig extends LayerTypes {
  /** The number of features of carry and output. */
  readonly features: number;
  /** What makes gates of numbers; `nn.sigmoid` by default. */
  readonly gateFn?: (x: Tensor) => Tensor;
  /** What makes outputs of numbers; `np.tanh` by default. */
  readonly activationFn?: (x: Tensor) => Tensor;
  /** Initialises the kernels of the inputs; `lecunNormal` by default. */
  readonly kernelInit?: ParamInitializer;
  /** Initialises the kernels of the carry; `orthogonal` by default. */
  readonly recurrentKernelInit?: ParamInitializer;
  /** Initialises the biases; zeros by default. */
  readonly biasInit?: ParamInitializer;
  /** Initialises the carry; zeros by default. */
  readonly carryInit?: Initializer;
}

/** Configuration of {@link SimpleCell}. */
export interface SimpleCellConfig extends Omit<CellConfig, "gateFn"> {
  /** Whether the old carry is added before the activation; false by default. */
  readonly residual?: boolean;
}

/** Configuration of {@link MGUCell}. */
export interface MGUCellConfig extends Omit<CellConfig, "biasInit"> {
  /** Initialises the bias of the forget gate; ones by default. */
  readonly forgetBiasInit?: ParamInitializer;
  /** Initialises the other biases; zeros by default. */
  readonly activationBiasInit?: ParamInitializer;
  /** Whether the forget gate also acts on the old carry; true by default. */
  readonly resetGate?: boolean;
}

/** The carry of an LSTM: what it remembers and what it last gave. */
export type LstmCarry = [memory: Tensor, hidden: Tensor];

const carryOf =
  ({
    carryInit = initializers.zeros,
    paramDtype = "float32",
  }: Pick<CellConfig, "carryInit" | "paramDtype">) =>
  (key: Tensor, shape: Shape): Tensor =>
    carryInit(key, shape, paramDtype);

const single =
  (config: CellConfig) =>
  (key: Tensor, inputShape: Shape): Tensor =>
    carryOf(config)(key, [...inputShape.slice(0, -1), config.features]);

const pair =
  (config: CellConfig) =>
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
function layersOf(config: Omit<CellConfig, "features">, features: number) {
  const { dtype, paramDtype = "float32", kernelInit = defaultKernelInit } = config;
  const { recurrentKernelInit = initializers.orthogonal(), biasInit = initializers.zeros } = config;
  const types = { features, dtype, paramDtype, biasInit };
  return {
    ofInput: (name: string, options: Partial<DenseConfig>) =>
      Dense({ ...types, kernelInit, name, ...options }),
    ofCarry: (name: string, options: Partial<DenseConfig>) =>
      Dense({ ...types, kernelInit: recurrentKernelInit, name, ...options }),
  };
}

const widthOf = (x: Tensor): number => x.shape.at(-1) ?? 0;

const cellNames: OptionNames<CellConfig> = {
  features: true,
  gateFn: true,
  activationFn: true,
  kernelInit: true,
  recurrentKernelInit: true,
  biasInit: true,
  carryInit: true,
  dtype: true,
  paramDtype: true,
};

/** A long short-term memory: gates decide what it forgets, takes in and gives. */
export const LSTMCell: RNNCellClass<CellConfig, LstmCarry> = rnnCell(
  "LSTMCell",
  (config: CellConfig) => {
    const { gateFn = sigmoid, activationFn = np.tanh } = config;
    return ([c, h]: LstmCarry, inputs: Tensor): [LstmCarry, Tensor] => {
      const { ofInput, ofCarry } = layersOf(config, widthOf(h));
      const sum = (gate: string) =>
        np.add(ofInput(`i${gate}`, { useBias: false })(inputs), ofCarry(`h${gate}`, {})(h));
      return lstmStep(c, { i: sum("i"), f: sum("f"), g: sum("g"), o: sum("o") }, gateFn, activationFn);
    };
  },
  { options: cellNames, initializeCarry: pair },
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

/** Kernel and bias of a layer that others multiply together with their own. */
const DenseParams = module(
  "DenseParams",
  ({ features, useBias = true, paramDtype, kernelInit, biasInit }: DenseConfig) =>
    (inputs: Tensor): { readonly kernel: Tensor; readonly bias: Tensor | undefined } => ({
      kernel: param("kernel", kernelInit ?? defaultKernelInit, [widthOf(inputs), features], paramDtype),
      bias: useBias ? param("bias", biasInit ?? initializers.zeros, [features], paramDtype) : undefined,
    }),
);

const gateNames = ["i", "f", "g", "o"] as const;

/** {@link LSTMCell} with the same parameters and one product for all gates. */
export const OptimizedLSTMCell: RNNCellClass<CellConfig, LstmCarry> = rnnCell(
  "OptimizedLSTMCell",
  (config: CellConfig) => {
    const { gateFn = sigmoid, activationFn = np.tanh, dtype, paramDtype = "float32" } = config;
    const { kernelInit = defaultKernelInit, biasInit = initializers.zeros } = config;
    const { recurrentKernelInit = initializers.orthogonal() } = config;
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
  { options: cellNames, initializeCarry: pair },
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

/** `activation(input · kernel + carry · kernel)`. */
export const SimpleCell: RNNCellClass<SimpleCellConfig, Tensor> = rnnCell(
  "SimpleCell",
  (config: SimpleCellConfig) => {
    const { activationFn = np.tanh, residual = false } = config;
    return (carry: Tensor, inputs: Tensor): [Tensor, Tensor] => {
      const { ofInput, ofCarry } = layersOf(config, widthOf(carry));
      const sum = np.add(ofInput("i", {})(inputs), ofCarry("h", { useBias: false })(carry));
      const next = activationFn(residual ? np.add(sum, carry) : sum);
      return [next, next];
    };
  },
  {
    options: {
      residual: true,
      paramDtype: true,
      features: true,
      activationFn: true,
      kernelInit: true,
      recurrentKernelInit: true,
      biasInit: true,
      carryInit: true,
      dtype: true,
    },
    initializeCarry: single,
  },
);

/** A gated recurrent unit: one gate for what it forgets and takes in, one for how much of the past is seen. */
export const GRUCell: RNNCellClass<CellConfig, Tensor> = rnnCell(
  "GRUCell",
  (config: CellConfig) => {
    const { gateFn = sigmoid, activationFn = np.tanh } = config;
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
  { options: cellNames, initializeCarry: single },
);

/** A minimal gated unit: a {@link GRUCell} with a single gate. */
export const MGUCell: RNNCellClass<MGUCellConfig, Tensor> = rnnCell(
  "MGUCell",
  (config: MGUCellConfig) => {
    const { gateFn = sigmoid, activationFn = np.tanh, resetGate = true } = config;
    const { forgetBiasInit = initializers.ones, activationBiasInit = initializers.zeros } = config;
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
  {
    options: {
      forgetBiasInit: true,
      activationBiasInit: true,
      resetGate: true,
      paramDtype: true,
      gateFn: true,
      features: true,
      activationFn: true,
      kernelInit: true,
      recurrentKernelInit: true,
      carryInit: true,
      dtype: true,
    },
    initializeCarry: single,
  },
);

/** Configuration of {@link ConvLSTMCell}. */
export interface ConvLSTMCellConfig extends LayerTypes, Pick<ConvConfig, "features" | "strides" | "useBias"> {
  /** The size of the window along each spatial dim. */
  readonly kernelSize: readonly number[];
  /** `SAME` by default. */
  readonly padding?: Padding;
  /** Initialises the carry; zeros by default. */
  readonly carryInit?: Initializer;
}

/** An LSTM of images: its products are convolutions, its carry has the inputs' spatial dims. */
export const ConvLSTMCell: RNNCellClass<ConvLSTMCellConfig, LstmCarry> = rnnCell(
  "ConvLSTMCell",
  ({ carryInit: _, ...config }: ConvLSTMCellConfig) => {
    const layer = (name: string) => Conv({ ...config, features: 4 * config.features, name });
    return ([c, h]: LstmCarry, inputs: Tensor): [LstmCarry, Tensor] => {
      const sums = np.add(layer("ih")(inputs), layer("hh")(h));
      const { i, f, g, o } = gatesOf(sums, ["i", "g", "f", "o"]);
      return lstmStep(c, { i, f: np.add(f, 1), g, o }, sigmoid, np.tanh);
    };
  },
  {
    options: {
      kernelSize: true,
      padding: true,
      carryInit: true,
      dtype: true,
      paramDtype: true,
      features: true,
      strides: true,
      useBias: true,
    },
    initializeCarry: (config: ConvLSTMCellConfig) => (key: Tensor, inputShape: Shape) => {
      const [first, second] = keyPair(key);
      const shape = [...inputShape.slice(0, -1), config.features];
      return [carryOf(config)(first, shape), carryOf(config)(second, shape)];
    },
    numFeatureAxes: ({ kernelSize }) => {
      need("integers", kernelSize, "kernelSize", "nn.ConvLSTMCell");
      return kernelSize.length + 1;
    },
  },
);
