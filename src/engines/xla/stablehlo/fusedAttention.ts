/**
 * cuDNN's attention as XLA exposes it: custom calls that never write the scores to memory. Their settings are XLA's
 * `CudnnfMHABackendConfig` as JSON, in which integers are strings.
 */
import type { Attention } from "../../../ir/ops.js";
import { at, type TensorType, tensorType } from "../../../ir/shape.js";
import { elementText, typeText } from "./text.js";
import { type HloValue, names, types, type Writer } from "./writer.js";

/** The largest head size that all GPUs with these kernels support. */
const MAX_HEAD_SIZE = 128;

/** Whether there is a kernel for operands of these types. */
export function hasFusedAttention(query: TensorType, key: TensorType, params: Attention): boolean {
  const { causal, window, softcap, extras = [] } = params;
  const [batch = 0, length = 0, heads = 0, headSize = 0] = query.shape;
  const [, keyLength = 0] = key.shape;
  const isNarrow = query.dtype === "bfloat16" || query.dtype === "float16";
  const fits = headSize > 0 && headSize % 8 === 0 && headSize <= MAX_HEAD_SIZE;
  const isPlain = batch > 0 && heads > 0 && length > 1 && keyLength > 1;
  const isUsual = window === undefined && softcap === undefined && extras.length === 0;
  // If the lengths differ, the kernels and our definition of "up to t" may count from different ends.
  return isNarrow && fits && isPlain && isUsual && (!causal || length === keyLength);
}

interface DotDims {
  readonly lhs: readonly [contract: number, ...batch: number[]];
  readonly rhs: readonly [contract: number, ...batch: number[]];
}

const texts = (numbers: readonly number[]) => numbers.map(String);

const dotDims = ({ lhs: [l, ...lhsBatch], rhs: [r, ...rhsBatch] }: DotDims) => ({
  lhs_contracting_dimensions: texts([l]),
  rhs_contracting_dimensions: texts([r]),
  lhs_batch_dimensions: texts(lhsBatch),
  rhs_batch_dimensions: texts(rhsBatch),
});

/** Scores are `[batch, heads, T, S]`, the other operands `[batch, length, heads, headSize]`. */
const forwardDims = {
  bmm1_dot_dimension_numbers: dotDims({ lhs: [3, 0, 2], rhs: [3, 0, 2] }),
  bmm2_dot_dimension_numbers: dotDims({ lhs: [3, 0, 1], rhs: [1, 0, 2] }),
};

const backwardDims = {
  bmm1_grad_gemm1_dot_dimension_numbers: dotDims({ lhs: [2, 0, 1], rhs: [1, 0, 2] }),
  bmm1_grad_gemm2_dot_dimension_numbers: dotDims({ lhs: [3, 0, 1], rhs: [1, 0, 2] }),
  bmm2_grad_gemm1_dot_dimension_numbers: dotDims({ lhs: [2, 0, 1], rhs: [1, 0, 2] }),
  bmm2_grad_gemm2_dot_dimension_numbers: dotDims({ lhs: [3, 0, 2], rhs: [3, 0, 2] }),
};

/** The type of the scores, for which no memory is allocated. */
function scoresShape(dtype: string, dimensions: readonly number[]) {
  return {
    element_type: dtype.toUpperCase(),
    dimensions: texts(dimensions),
    tuple_shapes: [],
    layout: {
      dim_level_types: [],
      dim_unique: [],
      dim_ordered: [],
      minor_to_major: texts([3, 2, 1, 0]),
      tiles: [],
      element_size_in_bits: "0",
      memory_space: "0",
      index_primitive_type: "PRIMITIVE_TYPE_INVALID",
      pointer_primitive_type: "PRIMITIVE_TYPE_INVALID",
      dynamic_shape_metadata_prefix_bytes: "0",
    },
    is_dynamic_dimension: [false, false, false, false],
  };
}

function backendConfig(
  { scale, causal }: Attention,
  query: TensorType,
  key: TensorType,
  dims: typeof forwardDims | typeof backwardDims,
): string {
  const [batch = 0, length = 0, heads = 0] = query.shape;
  const config = {
    operation_queue_id: "0",
    cudnn_fmha_backend_config: {
      algorithm: {
        algo_id: "0",
        math_type: "TENSOR_OP_MATH",
        tuning_knobs: { "17": "1", "24": "0" },
        is_cudnn_frontend: true,
        workspace_size: "0",
      },
      fmha_scale: scale,
      intermediate_tensor_shape: scoresShape(elementText(query.dtype), [
        batch,
        heads,
        length,
        at(key.shape, 1),
      ]),
      is_flash_attention: true,
      mask_type: causal ? "CAUSAL" : "NO_MASK",
      ...dims,
      dropout_rate: 0,
      seed: 42,
      sliding_window_length: 0,
      max_seg_per_batch: 1,
      is_paged_attention: false,
    },
  };
  return JSON.stringify(config).replaceAll('"', "\\22");
}

const layoutText = (order: readonly number[]) =>
  `dense<${order.length === 1 ? order[0] : `[${order.join(", ")}]`}> : tensor<${order.length}xindex>`;

const rowMajor = ({ shape }: TensorType) => shape.map((_, d) => shape.length - 1 - d);

/** Heads are laid out in memory as in the operands: positions before heads. */
const headsInside = [3, 1, 2, 0];

/** XLA determines the size of the kernel's workspace. */
const workspace = "tensor<0xui8>";

function customCall(
  target: string,
  config: string,
  operands: readonly HloValue[],
  results: readonly { readonly type: TensorType; readonly layout: readonly number[] }[],
  write: Writer,
): HloValue[] {
  const base = write.fresh(at(results, 0).type).name;
  const operandLayouts = operands.map(({ type }) => layoutText(rowMajor(type)));
  const resultLayouts = [...results.map(({ layout }) => layoutText(layout)), layoutText([0])];
  const resultTypes = [...results.map(({ type }) => typeText(type)), workspace];
  write.line(
    `${base}:${resultTypes.length} = stablehlo.custom_call @${target}(${names(operands)}) ` +
      `{api_version = 2 : i32, backend_config = "${config}", ` +
      `operand_layouts = [${operandLayouts.join(", ")}], result_layouts = [${resultLayouts.join(", ")}]} : ` +
      `(${types(operands)}) -> (${resultTypes.join(", ")})`,
  );
  return results.map(({ type }, i) => ({ name: `${base}#${i}`, type }));
}

/** `[batch, heads, length, headSize]`, as the kernels give it, with positions before heads. */
function positionsFirst(x: HloValue, write: Writer): HloValue {
  const [batch = 0, heads = 0, length = 0, headSize = 0] = x.type.shape;
  const type = tensorType(x.type.dtype, [batch, length, heads, headSize]);
  return write.mapped("stablehlo.transpose", [x], ", dims = [0, 2, 1, 3]", type);
}

function headsFirst({ dtype, shape }: TensorType) {
  const [batch = 0, length = 0, heads = 0, headSize = 0] = shape;
  return { type: tensorType(dtype, [batch, heads, length, headSize]), layout: headsInside };
}

/** Writes the forward pass: from query, key and value to the result and its log-sums. */
export function fusedAttention(operands: readonly HloValue[], params: Attention, write: Writer): HloValue[] {
  const [query, key] = [at(operands, 0).type, at(operands, 1).type];
  const [batch = 0, length = 0, heads = 0] = query.shape;
  const sums = { type: tensorType("float32", [batch, heads, length]), layout: [2, 1, 0] };
  const config = backendConfig(params, query, key, forwardDims);
  const results = [headsFirst(query), sums];
  const [mixed, logSums] = customCall("__cudnn$fmhaSoftmax", config, operands, results, write);
  return mixed && logSums ? [positionsFirst(mixed, write), logSums] : [];
}

/** Writes the backward pass: from the operands of `attentionBackward` to the cotangents of query, key and value. */
export function fusedAttentionBackward(
  operands: readonly HloValue[],
  params: Attention,
  write: Writer,
): HloValue[] {
  const [query, key, value] = [at(operands, 0).type, at(operands, 1).type, at(operands, 2).type];
  const config = backendConfig(params, query, key, backwardDims);
  const results = [query, key, value].map(headsFirst);
  return customCall("__cudnn$fmhaSoftmaxBackward", config, operands, results, write).map((x) =>
    positionsFirst(x, write),
  );
}
