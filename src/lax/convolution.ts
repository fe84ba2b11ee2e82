/** Convolutions of every kind, expressed as matrix products of the operand's windows. */

import { either, type Kind, need, needIfGiven } from "../ir/arguments.js";
import { dtypeKind } from "../ir/dtype.js";
import { DTypeError, ShapeError, ValueError } from "../ir/errors.js";
import { type OptionsOf, optional, pick, schema } from "../ir/schema.js";
import { at, formatType, range, type Shape, sizeOf } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { needTensor } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";
import { type ConvDimensionNumbers, type ConvLayouts, convDimensionNumbers } from "./dimensionNumbers.js";
import { convolve, patches } from "./windowProducts.js";
import { dilated, type WindowPadding, windowOver } from "./windows.js";

const layoutsKind = either("strings", "object") as Kind<ConvLayouts>;

const convOptions = schema({
  /** The distance at which the operand's elements are laid out, with zeros between: a fractional stride. */
  lhsDilation: optional("integers"),
  /** The distance between the elements of the window. */
  rhsDilation: optional("integers"),
  /** The layouts; batch and features first by default. */
  dimensionNumbers: optional(layoutsKind),
  /** The number of groups of features that do not mix. */
  featureGroupCount: 1,
  /** The number of groups of the batch, each of which makes a group of the output features. */
  batchGroupCount: 1,
  /** The data type of the result; the operands' own by default. */
  preferredElementType: optional(dtypeKind),
});

/** Options of a convolution besides its operands, strides and padding. */
export interface ConvOptions extends OptionsOf<typeof convOptions> {}

/**
 * The convolution of a tensor with a kernel over any number of spatial dims, without flipping the kernel:
 * windows move by `windowStrides` over the padded operand.
 *
 * @example
 * ```ts
 * const [x, kernel] = [np.array([[[1], [2], [3]]]), np.array([[[1]], [[1]]])];
 * lax.convGeneralDilated(x, kernel, [1], "VALID", { dimensionNumbers: ["NHC", "HIO", "NHC"] }); // [[[3], [5]]]
 * ```
 */
export function convGeneralDilated(
  lhs: Tensor,
  rhs: Tensor,
  windowStrides: Shape,
  padding: WindowPadding,
  options?: ConvOptions,
): Tensor {
  needTensor(lhs, "lhs", "lax.convGeneralDilated");
  needTensor(rhs, "rhs", "lax.convGeneralDilated");
  need("list", windowStrides, "windowStrides", "lax.convGeneralDilated");
  const caller = "lax.convGeneralDilated";
  const given = convOptions.read(options, caller);
  const { featureGroupCount, batchGroupCount, lhsDilation } = given;
  const numbers = convDimensionNumbers(lhs.shape, rhs.shape, given.dimensionNumbers);
  checkOperands(lhs, rhs, caller);
  checkGroups(lhs, rhs, numbers, featureGroupCount, batchGroupCount);
  const [x, kernel] = [channelsLast(lhs, numbers.lhsSpec), kernelLast(rhs, numbers.rhsSpec)];
  const window = windowOver(
    x.shape.slice(1, -1),
    {
      size: kernel.shape.slice(0, -2),
      strides: windowStrides,
      dilation: given.rhsDilation,
      baseDilation: lhsDilation,
      padding: withoutRule(padding, lhsDilation, caller),
    },
    caller,
  );
  const dtype = given.preferredElementType ?? lhs.dtype;
  const groups = featureGroupCount * batchGroupCount;
  const grouped = batchGroupCount > 1 ? groupBatch(x, batchGroupCount) : x;
  const y = convolve(grouped, kernel, window, groups, dtype, caller);
  return channelsTo(y, numbers.outSpec);
}

const convSchema = schema(pick(convOptions.fields, "preferredElementType"));

/**
 * {@link convGeneralDilated} with the default layouts and without dilation.
 *
 * @example
 * ```ts
 * lax.conv(np.array([[[1, 2, 3]]]), np.array([[[1, 1]]]), [1], "VALID"); // [[[3, 5]]]
 * ```
 */
export function conv(
  lhs: Tensor,
  rhs: Tensor,
  windowStrides: Shape,
  padding: WindowPadding,
  options?: Pick<ConvOptions, "preferredElementType">,
): Tensor {
  needTensor(lhs, "lhs", "lax.conv");
  needTensor(rhs, "rhs", "lax.conv");
  need("list", windowStrides, "windowStrides", "lax.conv");
  const { preferredElementType } = convSchema.read(options, "lax.conv");
  return convGeneralDilated(lhs, rhs, windowStrides, padding, { preferredElementType });
}

/**
 * {@link convGeneralDilated} with the default layouts and dilation of both operands.
 *
 * @example
 * ```ts
 * const [x, kernel] = [np.array([[[1, 2, 3]]]), np.array([[[1, 1]]])];
 * lax.convWithGeneralPadding(x, kernel, [1], [[1, 0]], [1], [2]); // [[[2, 4]]]
 * ```
 */
export function convWithGeneralPadding(
  lhs: Tensor,
  rhs: Tensor,
  windowStrides: Shape,
  padding: WindowPadding,
  lhsDilation?: Shape,
  rhsDilation?: Shape,
  given?: Pick<ConvOptions, "preferredElementType">,
): Tensor {
  needTensor(lhs, "lhs", "lax.convWithGeneralPadding");
  needTensor(rhs, "rhs", "lax.convWithGeneralPadding");
  need("list", windowStrides, "windowStrides", "lax.convWithGeneralPadding");
  needIfGiven("list", lhsDilation, "lhsDilation", "lax.convWithGeneralPadding");
  needIfGiven("list", rhsDilation, "rhsDilation", "lax.convWithGeneralPadding");
  const { preferredElementType } = convSchema.read(given, "lax.convWithGeneralPadding");
  const options = { lhsDilation, rhsDilation, preferredElementType };
  return convGeneralDilated(lhs, rhs, windowStrides, padding, options);
}

const convTransposeOptions = schema({
  /** The distance between the elements of the window. */
  rhsDilation: optional("integers"),
  /** The layouts; batch first and features last by default. */
  dimensionNumbers: optional(layoutsKind),
  /** Whether the kernel is that of the convolution of which this is the gradient. */
  transposeKernel: optional("flag"),
  /** The data type of the result; the operands' own by default. */
  preferredElementType: optional(dtypeKind),
  /** Whether pairs of numbers, too, are the padding of the convolution of which this is the gradient. */
  useConsistentPadding: optional("flag"),
});

/** Options of {@link convTranspose}. */
export interface ConvTransposeOptions extends OptionsOf<typeof convTransposeOptions> {}

const transposeLayouts: Readonly<Record<number, readonly [string, string, string]>> = {
  2: ["NC", "IO", "NC"],
  3: ["NHC", "HIO", "NHC"],
  4: ["NHWC", "HWIO", "NHWC"],
  5: ["NHWDC", "HWDIO", "NHWDC"],
};

/**
 * The convolution that undoes the strides of another: it makes spatial dims larger by `strides`. `"SAME"` and
 * `"VALID"` are the padding of that other convolution.
 *
 * @example
 * ```ts
 * lax.convTranspose(np.array([[[1], [2]]]), np.array([[[1]], [[1]]]), [2], "VALID"); // [[[1], [1], [2], [2]]]
 * ```
 */
export function convTranspose(
  lhs: Tensor,
  rhs: Tensor,
  strides: Shape,
  padding: WindowPadding,
  options: ConvTransposeOptions = {},
): Tensor {
  needTensor(lhs, "lhs", "lax.convTranspose");
  needTensor(rhs, "rhs", "lax.convTranspose");
  need("integers", strides, "strides", "lax.convTranspose");
  const caller = "lax.convTranspose";
  const { rhsDilation, transposeKernel, preferredElementType, useConsistentPadding } =
    convTransposeOptions.read(options, "lax.convTranspose");
  const layouts = options.dimensionNumbers ?? transposeLayouts[lhs.ndim];
  if (!layouts) {
    throw new ValueError(`[${caller}] ${lhs.ndim} dims have no usual layout: pass { dimensionNumbers }`);
  }
  const numbers = convDimensionNumbers(lhs.shape, rhs.shape, layouts);
  const [outputs = 0, inputs = 0, ...space] = numbers.rhsSpec;
  const pads = space.map((dim, d): readonly [number, number] => {
    const extent = dilated(at(rhs.shape, dim), rhsDilation?.[d] ?? 1);
    if (typeof padding === "string") return transposedPadding(extent, at(strides, d), padding, caller);
    const [low, high] = at(padding, d);
    return useConsistentPadding ? [extent - 1 - low, extent - 1 - high] : [low, high];
  });
  const kernel = transposeKernel ? swapDims(ops.reverse(rhs, space), outputs, inputs) : rhs;
  return convGeneralDilated(
    lhs,
    kernel,
    strides.map(() => 1),
    pads,
    { lhsDilation: strides, rhsDilation, dimensionNumbers: numbers, preferredElementType },
  );
}

function transposedPadding(extent: number, stride: number, rule: string, caller: string): [number, number] {
  if (rule === "VALID") return [extent - 1, stride - 1 + Math.max(extent - stride, 0)];
  if (rule !== "SAME") {
    throw new ValueError(`[${caller}] padding "${rule}": use "SAME", "VALID" or pairs [low, high]`);
  }
  const total = extent + stride - 2;
  const low = stride > extent - 1 ? extent - 1 : Math.ceil(total / 2);
  return [low, total - low];
}

function swapDims(x: Tensor, a: number, b: number): Tensor {
  return ops.transpose(
    x,
    range(x.ndim).map((d) => (d === a ? b : d === b ? a : d)),
  );
}

const patchOptions = schema(
  pick(convOptions.fields, "lhsDilation", "rhsDilation", "dimensionNumbers", "preferredElementType"),
);

/** Options of {@link convGeneralDilatedPatches} and {@link convGeneralDilatedLocal}. */
export interface PatchOptions extends OptionsOf<typeof patchOptions> {}

/**
 * What each window of a convolution sees, as its features: for each feature of the operand all elements of the
 * window, in the order of the kernel's spatial dims.
 *
 * @example
 * ```ts
 * lax.convGeneralDilatedPatches(np.array([[[1, 2, 3]]]), [2], [1], "VALID"); // [[[1, 2], [2, 3]]]
 * ```
 */
export function convGeneralDilatedPatches(
  lhs: Tensor,
  filterShape: Shape,
  windowStrides: Shape,
  padding: WindowPadding,
  options?: PatchOptions,
): Tensor {
  needTensor(lhs, "lhs", "lax.convGeneralDilatedPatches");
  need("integers", filterShape, "filterShape", "lax.convGeneralDilatedPatches");
  need("list", windowStrides, "windowStrides", "lax.convGeneralDilatedPatches");
  const given = patchOptions.read(options, "lax.convGeneralDilatedPatches");
  const caller = "lax.convGeneralDilatedPatches";
  const numbers = convDimensionNumbers(lhs.shape, [1, 1, ...filterShape], given.dimensionNumbers);
  const x = channelsLast(lhs, numbers.lhsSpec);
  const window = windowOver(
    x.shape.slice(1, -1),
    {
      size: filterShape,
      strides: windowStrides,
      dilation: given.rhsDilation,
      baseDilation: given.lhsDilation,
      padding: withoutRule(padding, given.lhsDilation, caller),
    },
    caller,
  );
  const seen = patches(x, window, caller);
  const byFeature = ops.moveDim(seen, seen.ndim - 1, seen.ndim - 2);
  const size = sizeOf(byFeature.shape.slice(-2));
  const flat = ops.reshape(byFeature, [...byFeature.shape.slice(0, -2), size]);
  return channelsTo(ops.convert(flat, given.preferredElementType ?? lhs.dtype), numbers.outSpec);
}

/**
 * A convolution with a different kernel at every position: the spatial dims of `rhs` are those of the result, and its
 * inputs are the patches of {@link convGeneralDilatedPatches}.
 *
 * @example
 * ```ts
 * const kernels = np.array([[[1, 0], [1, 2]]]);
 * lax.convGeneralDilatedLocal(np.array([[[1, 2, 3]]]), kernels, [1], "VALID", [2]); // [[[3, 6]]]
 * ```
 */
export function convGeneralDilatedLocal(
  lhs: Tensor,
  rhs: Tensor,
  windowStrides: Shape,
  padding: WindowPadding,
  filterShape: Shape,
  options?: PatchOptions,
): Tensor {
  needTensor(lhs, "lhs", "lax.convGeneralDilatedLocal");
  needTensor(rhs, "rhs", "lax.convGeneralDilatedLocal");
  need("list", windowStrides, "windowStrides", "lax.convGeneralDilatedLocal");
  need("integers", filterShape, "filterShape", "lax.convGeneralDilatedLocal");
  const given = patchOptions.read(options, "lax.convGeneralDilatedLocal");
  const caller = "lax.convGeneralDilatedLocal";
  checkOperands(lhs, rhs, caller);
  const numbers = convDimensionNumbers(lhs.shape, [1, 1, ...filterShape], given.dimensionNumbers);
  const seen = convGeneralDilatedPatches(lhs, filterShape, windowStrides, padding, given);
  const x = channelsLast(seen, numbers.outSpec);
  const kernel = kernelLast(rhs, numbers.rhsSpec);
  const space = x.shape.slice(1, -1);
  const rank = space.length;
  if (space.some((n, d) => n !== kernel.shape[d]) || x.shape[rank + 1] !== kernel.shape[rank]) {
    throw new ShapeError(
      `[${caller}] the windows are [${x.shape.slice(1)}] in space and elements, but the kernel ${formatType(rhs.type)} has them as [${kernel.shape.slice(0, -1)}]`,
    );
  }
  const y = ops.dotGeneral(
    x,
    kernel,
    {
      lhsBatch: range(rank).map((d) => d + 1),
      rhsBatch: range(rank),
      lhsContract: [rank + 1],
      rhsContract: [rank],
    },
    given.preferredElementType ?? lhs.dtype,
  );
  return channelsTo(ops.moveDim(y, rank, 0), numbers.outSpec);
}

function checkOperands(lhs: Tensor, rhs: Tensor, caller: string): void {
  for (const operand of [lhs, rhs]) {
    if (!(operand instanceof Tensor)) throw new DTypeError(`[${caller}] operand and kernel must be tensors`);
  }
  if (lhs.dtype === rhs.dtype) return;
  throw new DTypeError(
    `[${caller}] operand and kernel need the same data type, got ${formatType(lhs.type)} and ${formatType(rhs.type)}: convert one of them`,
  );
}

function checkGroups(
  lhs: Tensor,
  rhs: Tensor,
  { lhsSpec, rhsSpec }: ConvDimensionNumbers,
  featureGroups: number,
  batchGroups: number,
): void {
  const fail = (message: string) => new ShapeError(`[lax.convGeneralDilated] ${message}`);
  const size = (x: Tensor, spec: readonly number[], i: number) => at(x.shape, at(spec, i));
  if (featureGroups > 1 && batchGroups > 1) {
    throw fail(`${featureGroups} groups of features and ${batchGroups} of the batch: use one of the two`);
  }
  const counts: readonly (readonly [string, number, number])[] = [
    ["features", size(lhs, lhsSpec, 1), featureGroups],
    ["output features", size(rhs, rhsSpec, 0), featureGroups * batchGroups],
    ["batch", size(lhs, lhsSpec, 0), batchGroups],
  ];
  for (const [what, n, groups] of counts) {
    if (!Number.isInteger(groups) || groups < 1 || n % groups !== 0) {
      throw fail(`${n} ${what} do not split into ${groups} groups (${n} / ${groups} = ${n / groups})`);
    }
  }
  const [inputs, features] = [size(rhs, rhsSpec, 1), size(lhs, lhsSpec, 1)];
  if (inputs * featureGroups !== features) {
    throw fail(
      `the kernel ${formatType(rhs.type)} takes ${inputs} features in each of ${featureGroups} groups, but the operand ${formatType(lhs.type)} has ${features} (${features} / ${featureGroups} = ${features / featureGroups})`,
    );
  }
}

/** With dilation of the operand, a padding rule would be ambiguous about the zeros between its elements. */
function withoutRule(padding: WindowPadding, dilation: Shape | undefined, caller: string): WindowPadding {
  if (typeof padding !== "string" || padding === "VALID" || !dilation?.some((n) => n !== 1)) return padding;
  throw new ValueError(
    `[${caller}] padding "${padding}" is not defined for lhsDilation [${dilation}]: give pairs [low, high], or use convTranspose`,
  );
}

/** [batch, space…, features] of an operand. */
function channelsLast(x: Tensor, [batch = 0, features = 1, ...space]: readonly number[]): Tensor {
  return ops.transpose(x, [batch, ...space, features]);
}

/** [space…, inputs, outputs] of a kernel. */
function kernelLast(x: Tensor, [outputs = 0, inputs = 1, ...space]: readonly number[]): Tensor {
  return ops.transpose(x, [...space, inputs, outputs]);
}

/** Undoes {@link channelsLast} for the layout of the result. */
function channelsTo(y: Tensor, [batch = 0, features = 1, ...space]: readonly number[]): Tensor {
  return ops.untranspose(y, [batch, ...space, features]);
}

/** [batch of a group, space…, groups · features]. */
function groupBatch(x: Tensor, groups: number): Tensor {
  const split = ops.reshape(x, [groups, at(x.shape, 0) / groups, ...x.shape.slice(1)]);
  const moved = ops.moveDim(split, 0, split.ndim - 2);
  return ops.reshape(moved, [...moved.shape.slice(0, -2), groups * (x.shape.at(-1) ?? 0)]);
}
