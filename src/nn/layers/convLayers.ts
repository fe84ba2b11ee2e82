/** Transposed convolutions, and convolutions with a separate kernel for every position. */

import { either, oneOf } from "../../ir/arguments.js";
import { type OptionsOf, omit, optional, required, schema } from "../../ir/schema.js";
import { at, type Shape, sizeOf } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import * as np from "../../numpy/index.js";
import { tensorKind } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { evalShape } from "../../transforms/makeProgram.js";
import { module } from "../modules/module.js";
import { promote } from "../modules/operands.js";
import { param } from "../modules/variables.js";
import {
  convConfig,
  convLayout,
  flatBatch,
  maskedKernel,
  type Padding,
  paddings,
  padInput,
  padsOf,
  windowOf,
} from "./conv.js";
import { linearConfig } from "./linear.js";

const convTransposeConfig = schema({
  ...linearConfig.fields,
  /** The number of output features. */
  features: required("number"),
  /** The size of the window along each spatial dim. */
  kernelSize: required("integerOrIntegers"),
  /** How many times larger each spatial dim becomes; 1 by default. */
  strides: optional("integerOrIntegers"),
  /** `SAME` by default: exactly `strides` times as large. */
  padding: optional<Exclude<Padding, "CAUSAL" | "REFLECT">>(
    either(oneOf("SAME", "VALID", "CIRCULAR"), "integer", paddings),
    "SAME",
  ),
  /** The distance between the elements of a window; 1 by default. */
  kernelDilation: optional("integerOrIntegers"),
  /** Whether the kernel is that of the convolution of which this is the gradient: [space…, features, inputs]. */
  transposeKernel: false,
  /** Multiplied with the kernel, whose shape it has: 0 masks an element out. */
  mask: optional(tensorKind),
});

/** Configuration of {@link ConvTranspose}. */
export interface ConvTransposeConfig extends OptionsOf<typeof convTransposeConfig> {}

/**
 * The convolution that undoes the strides of another: inputs [batch…, space…, features] become larger.
 *
 * @example
 * ```ts
 * const layer = nn.ConvTranspose({ features: 2, kernelSize: [2], strides: [2] });
 * const x = np.ones([1, 4, 3]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [1, 8, 2]
 * ```
 */
export const ConvTranspose = module({ name: "ConvTranspose", options: convTransposeConfig }, (config) => {
  const { features, useBias, dtype, paramDtype, transposeKernel, kernelInit, biasInit, padding } = config;
  const { size, strides, dilation: rhsDilation } = windowOf(config, "ConvTranspose");
  return (inputs: Tensor): Tensor => {
    const [flat, restore] = flatBatch(inputs, size, "ConvTranspose");
    const numInputs = inputs.shape.at(-1) ?? 0;
    const channels = transposeKernel ? [features, numInputs] : [numInputs, features];
    const kernel = param("kernel", kernelInit, [...size, ...channels], paramDtype);
    const bias = useBias ? param("bias", biasInit, [features], paramDtype) : undefined;
    const [x, w, b] = promote(
      [flat, maskedKernel(kernel, config.mask, "ConvTranspose"), bias],
      dtype,
      "ConvTranspose",
    );
    const options = { rhsDilation, transposeKernel, dimensionNumbers: convLayout(size) };
    const pads = typeof padding === "string" ? padding : padsOf(padding, size, "ConvTranspose");
    const y = lax.convTranspose(x, w, strides, pads === "CIRCULAR" ? "VALID" : pads, options);
    const period = strides.map((stride, i) => stride * at(x.shape, i + 1));
    const whole = pads === "CIRCULAR" ? wrapped(y, period, transposeKernel) : y;
    return restore(b ? np.add(whole, b) : whole);
  };
});

/** Adds up elements a period apart along each spatial dim, so that what leaves at one end enters at the other. */
function wrapped(y: Tensor, period: Shape, padsAfter: boolean): Tensor {
  return period.reduce((x, n, i) => {
    const dim = i + 1;
    const more = (((n - at(x.shape, dim)) % (2 * n)) + 2 * n) % (2 * n);
    const [less, rest] = [Math.floor(more / 2), Math.ceil(more / 2)];
    const widths = x.shape.map((_, d): readonly [number, number] =>
      d === dim ? (padsAfter ? [less, rest] : [rest, less]) : [0, 0],
    );
    const padded = np.pad(x, widths);
    const times = at(padded.shape, dim) / n;
    const shape = [...padded.shape.slice(0, dim), times, n, ...padded.shape.slice(dim + 1)];
    return np.sum(np.reshape(padded, shape), dim);
  }, y);
}

const convLocalConfig = schema(omit(convConfig.fields, "featureGroupCount"));

/** Configuration of {@link ConvLocal}. */
export interface ConvLocalConfig extends OptionsOf<typeof convLocalConfig> {}

/**
 * A convolution with a separate kernel and bias for every position of the result:
 * `kernel` is [space…, window · inputs, features], `bias` [space…, features].
 *
 * @example
 * ```ts
 * const layer = nn.ConvLocal({ features: 2, kernelSize: [3] });
 * const x = np.ones([1, 4, 3]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [1, 4, 2]
 * ```
 */
export const ConvLocal = module({ name: "ConvLocal", options: convLocalConfig }, (config) => {
  const { features, useBias, dtype, paramDtype, padding, kernelInit, biasInit } = config;
  const window = windowOf(config, "ConvLocal");
  const { size, strides, dilation: rhsDilation } = window;
  return (inputs: Tensor): Tensor => {
    const [flat, restore] = flatBatch(inputs, size, "ConvLocal");
    const padded = padInput(flat, padding, window, "ConvLocal");
    const numInputs = inputs.shape.at(-1) ?? 0;
    const options = { rhsDilation, dimensionNumbers: convLayout(size) };
    const windows = evalShape((x: Tensor) =>
      lax.convGeneralDilatedPatches(x, size, strides, "VALID", options),
    );
    const space = windows(padded).shape.slice(1, -1);
    const kernel = param("kernel", kernelInit, [...space, sizeOf(size) * numInputs, features], paramDtype);
    const bias = useBias ? param("bias", biasInit, [...space, features], paramDtype) : undefined;
    const [x, w, b] = promote(
      [padded, maskedKernel(kernel, config.mask, "ConvLocal"), bias],
      dtype,
      "ConvLocal",
    );
    const y = lax.convGeneralDilatedLocal(x, w, strides, "VALID", size, options);
    return restore(b ? np.add(y, np.reshape(b, [1, ...b.shape])) : y);
  };
});
