import { isInteger } from "../../ir/dtype.js";
import { DimError, DTypeError, ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDims, range, type Shape, sizeOf } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { parseSubscripts } from "../../numpy/linalg/einsum.js";
import { initializers } from "../../random/index.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { module } from "../modules/module.js";
import { layerTypes, promote } from "../modules/operands.js";
import type { ParamInitializer } from "../modules/partitioned.js";
import { param } from "../modules/variables.js";

/** The initialiser of kernels when none is given. */
export const defaultKernelInit = initializers.lecunNormal();

/** The schema of {@link LinearConfig}. */
export const linearConfig = schema({
  ...layerTypes.fields,
  /** Whether a bias is added; true by default. */
  useBias: true,
  /** Initialises the kernel; `lecunNormal` by default. */
  kernelInit: optional<ParamInitializer>("function", defaultKernelInit),
  /** Initialises the bias; zeros by default. */
  biasInit: optional<ParamInitializer>("function", initializers.zeros),
});

/** What linear layers have in common. */
export interface LinearConfig extends OptionsOf<typeof linearConfig> {}

/** Multiplies inputs by a kernel over paired dims. */
export type DotGeneral = (x: Tensor, kernel: Tensor, dims: ops.DotDims) => Tensor;

const productConfig = schema({
  ...linearConfig.fields,
  /** Multiplies the input by the kernel, such as {@link float8DotGeneral}; the plain product by default. */
  dotGeneral: optional<DotGeneral>("function", ops.dotGeneral),
});

const denseConfig = schema({
  ...productConfig.fields,
  /** The number of output features. */
  features: required("number"),
});

/** Configuration of {@link Dense}. */
export interface DenseConfig extends OptionsOf<typeof denseConfig> {}

/**
 * `x · kernel + bias` over the last dim; `kernel` is [inputs, features], `bias` [features].
 *
 * @example
 * ```ts
 * const layer = nn.Dense({ features: 3 });
 * const variables = layer.init(random.key(0), np.ones([2, 4]));
 * layer.apply(variables, np.ones([2, 4])).shape; // [2, 3]
 * ```
 */
export const Dense = module({ name: "Dense", options: denseConfig }, (config) => {
  const { features, useBias, dtype, paramDtype, kernelInit, biasInit, dotGeneral } = config;
  return (inputs: Tensor): Tensor => {
    const [numInputs] = inputs.shape.slice(-1);
    if (numInputs === undefined) {
      throw new ShapeError(`[Dense] needs an input with at least one dim, got ${formatType(inputs.type)}`);
    }
    const kernel = param("kernel", kernelInit, [numInputs, features], paramDtype);
    const bias = useBias ? param("bias", biasInit, [features], paramDtype) : undefined;
    return tracedAsOneCall(() => {
      const [x, w, b] = promote([inputs, kernel, bias], dtype, "Dense");
      const y = dotGeneral(x, w, { lhsContract: [x.ndim - 1], rhsContract: [0] });
      return b ? np.add(y, b) : y;
    });
  };
});

const denseGeneralConfig = schema({
  ...productConfig.fields,
  /** The sizes of the output features, one dim each. */
  features: required("integerOrIntegers"),
  /** The dims of the input that are multiplied and summed, in their order in the input; the last by default. */
  axis: optional("integerOrIntegers"),
  /** Leading dims that input and kernel share: every index of them has a kernel of its own. */
  batchDims: optional("integers"),
});

/** Configuration of {@link DenseGeneral}. */
export interface DenseGeneralConfig extends OptionsOf<typeof denseGeneralConfig> {}

/**
 * {@link Dense} over any dims: `kernel` is [batch dims, input dims, features], `bias` [batch dims, features].
 *
 * @example
 * ```ts
 * const layer = nn.DenseGeneral({ features: [2, 3] });
 * const x = np.ones([5, 4]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [5, 2, 3]
 * ```
 */
export const DenseGeneral = module({ name: "DenseGeneral", options: denseGeneralConfig }, (config) => {
  const { useBias, dtype, paramDtype, kernelInit, biasInit, dotGeneral } = config;
  const features = typeof config.features === "number" ? [config.features] : config.features;
  return (inputs: Tensor): Tensor => {
    // Sorted as in Flax, so that the same seed gives the same kernel.
    const sorted = (dims: number | readonly number[]) =>
      normalizeDims(dims, inputs.ndim, "DenseGeneral").sort((a, b) => a - b);
    const axis = sorted(config.axis ?? -1);
    const batchDims = sorted(config.batchDims ?? []);
    const numBatch = batchDims.length;
    if (batchDims.some((dim) => dim >= numBatch)) {
      throw new DimError(`[DenseGeneral] batchDims [${batchDims}] must be the leading dims 0, 1, 2, …`);
    }
    const sizes = (dims: readonly number[]) => dims.map((dim) => at(inputs.shape, dim));
    const batch = sizes(batchDims);
    const inShape = sizes(axis);
    const numFeatures = sizeOf(features);
    const kernel = param(
      "kernel",
      flattened(kernelInit, [sizeOf(batch) * sizeOf(inShape), numFeatures]),
      [...batch, ...inShape, ...features],
      paramDtype,
    );
    const bias = useBias
      ? param("bias", flattened(biasInit, [sizeOf(batch) * numFeatures]), [...batch, ...features], paramDtype)
      : undefined;
    const [x, w, b] = promote([inputs, kernel, bias], dtype, "DenseGeneral");
    const y = dotGeneral(x, w, {
      lhsBatch: batchDims,
      rhsBatch: range(numBatch),
      lhsContract: axis,
      rhsContract: axis.map((_, i) => numBatch + i),
    });
    if (!b) return y;
    const kept = range(inputs.ndim).filter((dim) => !axis.includes(dim));
    const spread = kept.map((dim) => (batchDims.includes(dim) ? at(inputs.shape, dim) : 1));
    return np.add(y, np.reshape(b, [...spread, ...features]));
  };
});

/** An initialiser that reshapes a parameter to fewer dims, from which it takes the numbers of inputs and outputs. */
function flattened(init: ParamInitializer, flat: Shape): ParamInitializer {
  // A box keeps its names, which are those of the dims of the parameter.
  return (key, shape, dtype) => tree.map((x: Tensor) => ops.reshape(x, shape), init(key, flat, dtype));
}

const einsumConfig = schema({
  ...linearConfig.fields,
  /** The shape of the kernel. */
  shape: required("integers"),
  /** The subscripts of input and kernel, such as `"abc,cde->abde"`. */
  subscripts: required("string"),
});

/** Configuration of {@link Einsum}. */
export interface EinsumConfig extends OptionsOf<typeof einsumConfig> {}

/**
 * An einsum of the input with a kernel; the bias has the kernel's dims that are in the result.
 *
 * @example
 * ```ts
 * const layer = nn.Einsum({ shape: [4, 2, 3], subscripts: "bd,dhf->bhf" });
 * const x = np.ones([5, 4]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [5, 2, 3]
 * ```
 */
export const Einsum = module({ name: "Einsum", options: einsumConfig }, (config) => {
  const { shape, subscripts, useBias, dtype, paramDtype, kernelInit, biasInit } = config;
  return (inputs: Tensor): Tensor => {
    const kernel = param("kernel", kernelInit, shape, paramDtype);
    const parsed = parseSubscripts(subscripts, [inputs.ndim, shape.length]);
    const labels = parsed.inputs[1];
    if (!labels || parsed.inputs.length !== 2) {
      throw new ShapeError(`[Einsum] "${subscripts}" must have two operands, the input and the kernel`);
    }
    const sizes = [...parsed.output].map((label) => shape[labels.indexOf(label)]);
    const biasShape = sizes.filter((size) => size !== undefined);
    const bias = useBias ? param("bias", biasInit, biasShape, paramDtype) : undefined;
    const [x, w, b] = promote([inputs, kernel, bias], dtype, "Einsum");
    const y = np.einsum(subscripts, x, w);
    return b
      ? np.add(
          y,
          np.reshape(
            b,
            sizes.map((size) => size ?? 1),
          ),
        )
      : y;
  };
});

const embedConfig = schema({
  ...layerTypes.fields,
  /** The number of different ids. */
  numEmbeddings: required("number"),
  /** The length of the vector of an id. */
  features: required("number"),
  /** Initialises the table; normally distributed with variance 1 / features by default. */
  embeddingInit: optional<ParamInitializer>("function"),
});

/** Configuration of {@link Embed}. */
export interface EmbedConfig extends OptionsOf<typeof embedConfig> {}

const defaultEmbedInit = initializers.varianceScaling(1, "fanIn", "normal", { outAxis: 0 });

function table({ numEmbeddings, features, paramDtype = "float32", embeddingInit }: EmbedConfig): Tensor {
  return param("embedding", embeddingInit ?? defaultEmbedInit, [numEmbeddings, features], paramDtype);
}

/**
 * Vectors for integers: the rows of the parameter `embedding`, [numEmbeddings, features]; ids out of range
 * give NaN. Its method `attend` gives the products of vectors with all rows, the logits of a language model.
 *
 * @example
 * ```ts
 * const layer = nn.Embed({ numEmbeddings: 10, features: 4 });
 * const tokens = np.array([[1, 2, 3]], "int32");
 * layer.apply(layer.init(random.key(0), tokens), tokens).shape; // [1, 3, 4]
 * ```
 */
export const Embed = module(
  { name: "Embed", options: embedConfig },
  (config) =>
    (ids: Tensor): Tensor => {
      if (!isInteger(ids.dtype)) {
        throw new DTypeError(`[Embed] ids must be integers, got ${formatType(ids.type)}`);
      }
      const embedding = table(config);
      const rows = config.dtype ? ops.convert(embedding, config.dtype) : embedding;
      if (config.numEmbeddings === 1) return np.broadcastTo(rows, [...ids.shape, config.features]);
      return np.take(rows, ids, 0);
    },
  {
    attend:
      (config: EmbedConfig) =>
      (query: Tensor): Tensor => {
        const [x, rows] = promote([query, table(config)], config.dtype, "Embed.attend");
        return ops.dotGeneral(x, rows, { lhsContract: [x.ndim - 1], rhsContract: [1] });
      },
  },
);
