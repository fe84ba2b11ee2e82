import { sigmoid } from "../../nn/functions/functions.js";
import { Dense, DenseGeneral } from "../../nn/layers/linear.js";
import { module } from "../../nn/modules/module.js";
import * as np from "../../numpy/index.js";
import { initializers } from "../../random/index.js";
import type { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "./config.js";
import { decoderOf } from "./decoder.js";
import { headSizeOf, Mlp } from "./llama.js";
import { markedPositions, memoryFor } from "./matrixMemory.js";
import { normalizeHeads } from "./mlstm.js";
import { activation, weight, whole } from "./names.js";
import { normNamed } from "./norm.js";
import { productsOf } from "./products.js";
import type { Reading } from "./reading.js";

/** The matrix memory of xLSTM 7B: queries, keys and gates are projections of the stream, without a convolution. */
const Memory = module("Memory", (config: ModelConfig) => (x: Tensor, reading: Reading): Tensor => {
  const { numHeads, width, dtype } = config;
  const { keySize, gateCap } = decoderOf(config);
  const project = (name: string, size: number) =>
    activation(
      DenseGeneral({
        name,
        features: [numHeads, size],
        useBias: false,
        dtype,
        ...productsOf(config),
        kernelInit: weight(["embed", "heads", "headSize"]),
      })(x),
      "batch",
      "length",
      "activationHeads",
      null,
    );
  const perHead = (name: string, size: number) => np.swapaxes(project(name, size), 1, 2).astype("float32");
  const gate = (name: string, start: number) => {
    const preactivation = Dense({
      name,
      features: numHeads,
      dtype,
      kernelInit: weight(["embed", "heads"], initializers.zeros),
      biasInit: weight(["heads"], initializers.constant(start)),
    })(x);
    const capped = gateCap === 0 ? preactivation : np.tanh(preactivation.div(gateCap)).mul(gateCap);
    return np.swapaxes(capped.astype("float32"), 1, 2);
  };
  const size = headSizeOf(config);
  const memory = memoryFor(config)({
    query: perHead("query", keySize),
    key: perHead("key", keySize),
    value: perHead("value", size),
    inputGate: gate("inputGate", -10),
    forgetGate: gate("forgetGate", 3),
    startExponent: 0,
    ...markedPositions(reading, numHeads),
  });
  const heads = normalizeHeads(memory, config).mul(sigmoid(project("outputGate", size)));
  return DenseGeneral({
    name: "out",
    features: width,
    axis: [-2, -1],
    useBias: false,
    dtype,
    ...productsOf(config),
    kernelInit: weight(["heads", "headSize", "embed"]),
  })(heads);
});

/** A pre-norm block of xLSTM 7B: the matrix memory and an MLP, each added to the residual stream. */
export const XlstmBlock = module("Block", (config: ModelConfig) => (x: Tensor, reading: Reading): Tensor => {
  const streamed = (sum: Tensor) => activation(sum, "batch", "streamLength", "activationEmbed");
  const before = (name: string, input: Tensor) => whole(normNamed(name, config)(input));
  const memory = Memory({ ...config, name: "memory" })(before("memoryNorm", x), reading);
  const stream = streamed(x.add(memory));
  return streamed(stream.add(Mlp({ ...config, name: "mlp" })(before("mlpNorm", stream))));
});
