import type { Engine } from "../../ir/engine.js";
import type { Variables } from "../../nn/scope.js";
import * as np from "../../numpy/index.js";
import * as random from "../../random/index.js";
import { Mesh } from "../../spmd/mesh/mesh.js";
import { PartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { devicePut, NamedSharding } from "../../spmd/mesh/sharding.js";
import { jit } from "../../spmd/run/jit.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import type { Tokenizer } from "../data/tokenizer.js";
import type { ModelConfig } from "./config.js";
import { type GenerateOptions, generate } from "./generate.js";
import { LanguageModel } from "./languageModel.js";

/** A model with its parameters and tokeniser, to sample text from. */
export interface Sampled {
  readonly model: ModelConfig;
  /** The parameters with layers in canonical order, on any devices. */
  readonly params: Variables;
  readonly tokenizer: Tokenizer;
  /** Maximum number of tokens that the model sees. */
  readonly window: number;
  /** The engine to run on; the shared engine of the process by default. */
  readonly engine?: Engine;
}

/** Continues a text with a model, on one device, because a single row of tokens cannot be split. */
export async function sampleText(of: Sampled, options: GenerateOptions): Promise<string> {
  const { model, tokenizer, window, engine } = of;
  const mesh = Mesh.create({ data: 1 }, engine ? { engine, devices: [0] } : {});
  const whole = new NamedSharding(mesh, new PartitionSpec([]));
  const params = await devicePut(of.params, whole);
  const reader = new Reader(LanguageModel({ ...model, cacheLength: window }), params, whole);
  try {
    return await generate((tokens) => reader.read(tokens), tokenizer, window, options);
  } finally {
    reader.forget();
    // Tensors that are there already belong to the caller.
    tree.dispose(params, of.params);
  }
}

/** Reads a text token by token with a cache of what it has read. */
class Reader {
  /** The cache variables of the model. */
  private cache: Variables | undefined;
  private known: readonly number[] = [];
  private readonly start: (key: Tensor) => Variables;
  private readonly next: (params: Variables, cache: Variables, token: Tensor) => [Tensor, Variables];

  constructor(
    network: ReturnType<typeof LanguageModel>,
    private readonly params: Variables,
    whole: NamedSharding,
  ) {
    const { mesh } = whole;
    const placed = { mesh, outShardings: whole };
    this.start = jit(
      (key) => {
        const { cache = {} } = network.init(key, ops.zeros({ dtype: "int32", shape: [1, 1] }));
        return { cache };
      },
      { ...placed, name: "emptyCache" },
    );
    const changing = network.with({ mutable: ["cache"] });
    this.next = jit(
      (own, cache, token) => {
        const [logits, changed] = changing.apply({ ...own, ...cache }, token);
        return [np.squeeze(logits, [0, 1]).astype("float32"), changed];
      },
      { ...placed, donate: 1, name: "nextToken" },
    );
  }

  /** The logits after a text. */
  async read(tokens: readonly number[]): Promise<readonly number[]> {
    const isMore = this.known.length < tokens.length && this.known.every((token, i) => token === tokens[i]);
    if (!isMore) this.forget();
    let logits: Tensor | undefined;
    for (const token of tokens.slice(this.known.length)) {
      const row = Tensor.fromHost({ dtype: "int32", shape: [1, 1] }, Int32Array.of(token));
      logits?.dispose();
      [logits, this.cache] = this.next(this.params, this.cache ?? this.start(random.key(0)), row);
    }
    this.known = [...tokens];
    const values = Array.from((await logits?.data()) ?? [], Number);
    logits?.dispose();
    return values;
  }

  /** Clears the cache. */
  forget(): void {
    tree.dispose(this.cache);
    this.cache = undefined;
    this.known = [];
  }
}
