/** Continues the texts of requests with one model. */
import { randomInt } from "node:crypto";
import { ShardwiseError } from "../../ir/errors.js";
import { range } from "../../ir/shape.js";
import type { Variables } from "../../nn/modules/scope.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import type { Tokenizer } from "../data/tokenizers/tokenizer.js";
import { encodePrompt, merged, withText } from "../generation/generate.js";
import { type GeneratorOptions, TextGenerator } from "../generation/generator.js";
import type { ModelConfig } from "../models/config.js";
import type { AnswerPiece, Usage } from "./answers.js";
import { RequestError } from "./requestError.js";
import type { TextMessage, TextRequest } from "./requests.js";

/** A model that is served. */
export interface ServedModel {
  /** What clients call it. */
  readonly name: string;
  readonly config: ModelConfig;
  /** The parameters, with the layers in order. */
  readonly params: Variables;
  readonly tokenizer: Tokenizer;
  /** Maximum number of tokens of a text with its prompt. */
  readonly maxLength: number;
  /** The mesh to run on; that of the parameters by default, or else one device. */
  readonly mesh?: Mesh | undefined;
  /** A smaller model that proposes tokens, and how many at a time; none by default. */
  readonly draft?: GeneratorOptions["draft"];
  /** Tokens that end a text. */
  readonly stopTokens: ReadonlySet<number>;
  /** The prompt that the messages of a chat make; undefined if the model has no template for chats. */
  readonly chatPrompt?: ((messages: readonly TextMessage[]) => string | readonly number[]) | undefined;
}

/** Limits of what is computed at once. */
export interface ServiceLimits {
  /** How many texts are continued at once. */
  readonly slots: number;
  /** Maximum number of texts that wait for a slot. */
  readonly maxWaiting: number;
  /** Maximum number of tokens of a text, without its prompt. */
  readonly maxTokens: number;
}

/** Texts that are being continued. */
export interface StartedTexts {
  readonly count: number;
  /** Counts tokens as they are drawn. */
  readonly usage: Usage;
  readonly pieces: AsyncGenerator<AnswerPiece>;
}

/** A model with its slots. */
export class TextService {
  private readonly generator: TextGenerator;

  constructor(
    readonly model: ServedModel,
    readonly limits: ServiceLimits,
  ) {
    const { config, params, tokenizer, maxLength, mesh, draft } = model;
    const vocabSize = Math.min(tokenizer.vocabSize, config.vocabSize);
    this.generator = new TextGenerator(config, params, {
      slots: limits.slots,
      maxLength,
      vocabSize,
      mesh,
      draft,
    });
  }

  /** The number of texts that are continued, and of those that wait for a slot. */
  get load(): { readonly active: number; readonly waiting: number } {
    return this.generator.load;
  }

  /** Starts the texts of a request; throws at once if they cannot be. @param signal ends them */
  start(request: TextRequest, signal: AbortSignal): StartedTexts {
    const { name, tokenizer, stopTokens } = this.model;
    if (request.model !== undefined && request.model !== name) {
      throw new RequestError(
        404,
        `there is no model ${JSON.stringify(request.model.slice(0, 100))}: this server has ${JSON.stringify(name)}`,
        { param: "model", code: "model_not_found" },
      );
    }
    const prompts = this.promptsOf(request);
    const count = prompts.length * request.count;
    this.checkLoad(count);
    const encoded = prompts.map((prompt) => asRequestError(() => encodePrompt(prompt, tokenizer)));
    const lengths = encoded.map((tokens) => this.lengthOf(tokens.length, request.maxTokens));
    const usage: Usage = { prompt: encoded.reduce((sum, { length }) => sum + length, 0), completion: 0 };
    const { sampling, stop } = request;
    // Keys are made of these bits of a seed; more of them would leave no room for the seeds that follow.
    const seed = Number(BigInt.asUintN(32, BigInt(request.seed ?? randomInt(2 ** 32))));
    const texts = encoded.flatMap((tokens, prompt) =>
      range(request.count).map((i) => {
        const maxTokens = lengths[prompt] ?? 0;
        const drawn = asRequestError(() =>
          this.generator.submit({ tokens, maxTokens, sampling, seed: seed + i, stopTokens, signal }),
        );
        return withText(drawn, prompt * request.count + i, tokenizer, stop, stopTokens);
      }),
    );
    return { count, usage, pieces: pieces(merged(texts), usage) };
  }

  /** Ends all texts. */
  close(): Promise<void> {
    return this.generator.close();
  }

  private promptsOf({ input }: TextRequest): readonly (string | readonly number[])[] {
    if ("prompts" in input) return input.prompts;
    const { chatPrompt } = this.model;
    if (!chatPrompt) {
      throw new RequestError(
        400,
        "the model's tokenizer has no chat template: use /v1/completions with a prompt",
        { param: "messages", code: "no_chat_template" },
      );
    }
    return [asRequestError(() => chatPrompt(input.messages))];
  }

  private checkLoad(count: number): void {
    const { slots, maxWaiting } = this.limits;
    const most = slots + maxWaiting;
    if (count > most) {
      throw new RequestError(400, `the request asks for ${count} texts: ask for at most ${most} at once`);
    }
    const { active, waiting } = this.load;
    if (active + waiting + count <= most) return;
    throw new RequestError(429, `${waiting} texts are waiting for one of ${slots} slots: try again later`, {
      code: "too_many_requests",
      retryAfter: 1,
    });
  }

  /** Maximum number of tokens to add to a prompt. */
  private lengthOf(numPrompt: number, asked: number | undefined): number {
    const { maxLength } = this.model;
    const { maxTokens } = this.limits;
    if (asked !== undefined && asked > maxTokens) {
      throw new RequestError(400, `max_tokens is ${asked}: this server adds at most ${maxTokens}`, {
        param: "max_tokens",
      });
    }
    const wanted = asked ?? Math.max(1, Math.min(maxTokens, maxLength - numPrompt));
    if (numPrompt + wanted <= maxLength) return wanted;
    throw new RequestError(
      400,
      `the prompt has ${numPrompt} tokens, with max_tokens ${wanted} that is ${numPrompt + wanted}: the model reads at most ${maxLength}`,
      { code: "context_length_exceeded" },
    );
  }
}

async function* pieces(
  drawn: AsyncGenerator<{ prompt: number; text: string; finish?: "stop" | "length" }>,
  usage: Usage,
): AsyncGenerator<AnswerPiece> {
  for await (const { prompt, text, finish } of drawn) {
    usage.completion++;
    yield { index: prompt, text, finish };
  }
}

/** Runs what a client's values can make fail. */
function asRequestError<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof ShardwiseError) || error.code === "internal") throw error;
    throw new RequestError(400, error.message.replace(/^\[\w+\] /, ""));
  }
}
