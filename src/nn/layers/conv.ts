import { arrayOf, either, type Kind, oneOf } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { at, formatType, type Shape, sameNumbers, sizeOf } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import * as np from "../../numpy/index.js";
import { tensorKind } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { module } from "../modules/module.js";
import { promote } from "../modules/operands.js";
import { param } from "../modules/variables.js";
import { linearConfig } from "./linear.js";

/** Zeros before and after each spatial dim, or a rule for them. */
export type Padding =
  | "SAME"
  | "VALID"
  | "CAUSAL"
  | "CIRCULAR"
  | "REFLECT"
  | number
  | readonly (number | readonly [before: number, after: number])[];

/** The kind of paddings that are given for each spatial dim. */
export const paddings = arrayOf("integerOrIntegers", "integers or pairs [before, after]") as Kind<
  readonly (number | readonly [number, number])[]
>;

/** The schema of {@link ConvConfig}. */
export const convConfig = schema({
  ...linearConfig.fields,
  /** The number of output features. */
  features: required("number"),
  /** The size of the window along each spatial dim. */
  kernelSize: required("integerOrIntegers"),
  /** How far the window moves along each spatial dim; 1 by default. */
  strides: optional("integerOrIntegers"),
  /** `SAME` by default; `CAUSAL` pads only before a single spatial dim. */
  padding: optional<Padding>(
    either(oneOf("SAME", "VALID", "CAUSAL", "CIRCULAR", "REFLECT"), "integer", paddings),
    "SAME",
  ),
  /** The distance between the elements of a window; 1 by default. */
  kernelDilation: optional("integerOrIntegers"),
  /** The number of groups of input features that do not mix; 1 by default. */
  featureGroupCount: 1,
  /** Multiplied with the kernel, whose shape it has: 0 masks an element out. */
  mask: optional(tensorKind),
});

/** Configuration of {@link Conv}. */
export interface ConvConfig extends OptionsOf<typeof convConfig> {}

/**
 * Convolution of inputs [batch…, space…, features] with a kernel [space…, inputs / groups, features].
 *
 * @example
 * ```ts
 * const layer = nn.Conv({ features: 8, kernelSize: [3, 3] });
 * const image = np.ones([1, 8, 8, 3]);
 * layer.apply(layer.init(random.key(0), image), image).shape; // [1, 8, 8, 8]
 * ```
 */
export const Conv = module({ name: "Conv", options: convConfig }, (config) => {
  const { features, useBias, dtype, paramDtype, featureGroupCount, kernelInit, biasInit } = config;
  const window = windowOf(config, "Conv");
  return (inputs: Tensor): Tensor => {
    const [flat, restore] = flatBatch(inputs, window.size, "Conv");
    const numInputs = inputs.shape.at(-1) ?? 0;
    for (const [what, n] of [
      ["input features", numInputs],
      ["features", features],
    ] as const) {
      if (n % featureGroupCount !== 0) {
        throw new ShapeError(
          `[Conv] ${n} ${what} do not split into ${featureGroupCount} groups (${n} / ${featureGroupCount} = ${n / featureGroupCount})`,
        );
      }
    }
    const shape = [...window.size, numInputs / featureGroupCount, features];
    const kernel = param("kernel", kernelInit, shape, paramDtype);
    const bias = useBias ? param("bias", biasInit, [features], paramDtype) : undefined;
    const [x, w, b] = promote([flat, maskedKernel(kernel, config.mask, "Conv"), bias], dtype, "Conv");
    const y = restore(convolve(padInput(x, config.padding, window, "Conv"), w, window, featureGroupCount));
    return b ? np.add(y, b) : y;
  };
});

/** A kernel times its mask, if there is one. */
export function maskedKernel(kernel: Tensor, mask: Tensor | undefined, caller: string): Tensor {
  if (mask === undefined) return kernel;
  if (mask instanceof Tensor && sameNumbers(mask.shape, kernel.shape)) return np.multiply(kernel, mask);
  throw new ShapeError(
    `[${caller}] the mask must be a tensor of the shape of the kernel, [${kernel.shape}], got ${describe(mask)}`,
  );
}

/** A window and how it moves, one entry for each spatial dim. */
export interface WindowOf {
  readonly size: Shape;
  readonly strides: Shape;
  readonly dilation: Shape;
}

/** The window that a configuration describes. */
export function windowOf(
  {
    kernelSize,
    strides = 1,
    kernelDilation = 1,
  }: Pick<ConvConfig, "kernelSize" | "strides" | "kernelDilation">,
  caller: string,
): WindowOf {
  const size = typeof kernelSize === "number" ? [kernelSize] : kernelSize;
  return {
    size,
    strides: perDim(strides, size, "strides", caller),
    dilation: perDim(kernelDilation, size, "kernelDilation", caller),
  };
}

/** A number for each spatial dim. */
function perDim(value: number | readonly number[], size: Shape, what: string, caller: string): Shape {
  const list = typeof value === "number" ? size.map(() => value) : value;
  if (list.length !== size.length || list.some((n) => !Number.isInteger(n) || n < 1)) {
    throw new ValueError(
      `[${caller}] ${what} [${list}] must be integers of at least 1, one for each of the ${size.length} spatial dims`,
    );
  }
  return list;
}

/** Pads an input [batch, space…, features] so that every window lies inside. */
export function padInput(
  x: Tensor,
  padding: Padding,
  { size, strides, dilation }: WindowOf,
  caller: string,
): Tensor {
  const reach = size.map((k, i) => (k - 1) * at(dilation, i));
  const pad = (widths: readonly (readonly [number, number])[], mode: "constant" | "wrap" | "reflect") =>
    np.pad(x, [[0, 0], ...widths, [0, 0]], { mode });
  switch (padding) {
    case "VALID":
      return x;
    case "SAME":
      return pad(
        reach.map((extent, i) => {
          const n = at(x.shape, i + 1);
          const stride = at(strides, i);
          const total = Math.max((Math.ceil(n / stride) - 1) * stride + extent + 1 - n, 0);
          return [Math.floor(total / 2), Math.ceil(total / 2)];
        }),
        "constant",
      );
    case "CAUSAL":
      if (size.length !== 1) {
        throw new ValueError(`[${caller}] CAUSAL padding is for one spatial dim, kernelSize is [${size}]`);
      }
      return pad([[at(reach, 0), 0]], "constant");
    case "CIRCULAR":
    case "REFLECT":
      return pad(
        reach.map((extent) => [Math.floor(extent / 2), Math.ceil(extent / 2)]),
        padding === "CIRCULAR" ? "wrap" : "reflect",
      );
    default:
      return pad(padsOf(padding, size, caller), "constant");
  }
}

/** The elements before and after each spatial dim. */
export function padsOf(
  padding: Exclude<Padding, string>,
  size: Shape,
  caller: string,
): (readonly [before: number, after: number])[] {
  const list = typeof padding === "number" ? size.map(() => padding) : padding;
  if (list.length !== size.length) {
    throw new ValueError(
      `[${caller}] padding has ${list.length} entries for ${size.length} spatial dims: give one for each`,
    );
  }
  return list.map((entry) => (typeof entry === "number" ? [entry, entry] : entry));
}

/** Inputs with one batch dim, and a function that restores the batch dims of results. */
export function flatBatch(inputs: Tensor, size: Shape, caller: string): [Tensor, (y: Tensor) => Tensor] {
  const numBatch = inputs.ndim - size.length - 1;
  if (numBatch < 0) {
    throw new ShapeError(
      `[${caller}] a kernel of size [${size}] needs an input of at least ${size.length + 1} dims, got ${formatType(inputs.type)}`,
    );
  }
  const batch = inputs.shape.slice(0, numBatch);
  const flat = np.reshape(inputs, [sizeOf(batch), ...inputs.shape.slice(numBatch)]);
  return [flat, (y) => np.reshape(y, [...batch, ...y.shape.slice(1)])];
}

/** Convolves a padded input [batch, space…, features] with a kernel [space…, inputs, features]. */
function convolve(x: Tensor, kernel: Tensor, window: WindowOf, groups: number): Tensor {
  const { size, strides, dilation } = window;
  size.forEach((k, i) => {
    const [n, extent] = [at(x.shape, i + 1), (k - 1) * at(dilation, i) + 1];
    if (extent <= n) return;
    throw new ShapeError(
      `[Conv] a window of ${extent} does not fit into ${n} elements of spatial dim ${i}: pad more, or use a smaller kernel`,
    );
  });
  return lax.convGeneralDilated(x, kernel, strides, "VALID", {
    rhsDilation: dilation,
    featureGroupCount: groups,
    dimensionNumbers: convLayout(size),
  });
}

/** The layout of images [batch, space…, features] and kernels [space…, inputs, features]. */
export function convLayout(size: Shape): lax.ConvDimensionNumbers {
  const space = size.map((_, i) => i + 1);
  const last = size.length + 1;
  return {
    lhsSpec: [0, last, ...space],
    rhsSpec: [last, last - 1, ...space.map((d) => d - 1)],
    outSpec: [0, last, ...space],
  };
}
