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

/** What text is sampled from: a model with its parameters, and how it reads text. */
export interface Sampled {
  readonly model: ModelConfig;
  /** The parameters with layers in their order, wherever they lie. */
  readonly params: Variables;
  readonly tokenizer: Tokenizer;
  /** How many tokens the model sees. */
  readonly window: number;
  /** What computes; the process's shared engine by default. */
  readonly engine?: Engine;
}

/** Continues a text with a model, on one device: a single row of tokens has nothing to split. */
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
    // Those that lie there already are the caller's.
    tree.dispose(params, of.params);
  }
}

/** Reads a text token by token, and remembers what it has read. */
class Reader {
  /** The variables that the model remembers by. */
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

  /** Begins anew. */
  forget(): void {
    tree.dispose(this.cache);
    this.cache = undefined;
    this.known = [];
  }
}
