import { signalKind } from "../../engines/abortSignal.js";
import { integerFrom } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import type { Variables } from "../../nn/modules/scope.js";
import { meshKind } from "../../spmd/mesh/mesh.js";
import type { Tokenizer } from "../data/tokenizers/tokenizer.js";
import type { ModelConfig } from "../models/config.js";
import type { DraftModel } from "./draft.js";
import { type DrawnToken, TextGenerator } from "./generator.js";
import { checkedSampling, samplingOptions } from "./sampling.js";
import { TextStream } from "./textStream.js";

const generateOptions = schema({
  /** Maximum number of tokens to add to each prompt; 128 by default. */
  maxTokens: 128,
  ...samplingOptions.fields,
  /** Strings that end a text; they are not part of it. */
  stop: optional<readonly string[]>("strings", []),
  /** Tokens that end a text; the tokeniser's end of text by default. */
  stopTokens: optional<readonly number[]>("integers"),
  /** Seed of the draws, one for all prompts or one for each; 0 by default. */
  seed: optional("integerOrIntegers", 0),
  /** Needed for prompts that are strings, and for `stop`. */
  tokenizer: optional<Tokenizer>("object"),
  /** Maximum number of tokens of a text with its prompt; enough for the longest prompt by default. */
  maxLength: optional("integer"),
  /** How many texts are continued at once; 8 by default. */
  slots: 8,
  /** A smaller model with the same tokeniser that proposes tokens; the text stays that of the model. */
  draft: optional<DraftModel>("object"),
  /** The number of tokens that the draft proposes at a time; 4 by default. */
  draftTokens: optional(integerFrom(1), 4),
  /** The mesh to run on; that of the parameters by default, or else one device. */
  mesh: optional(meshKind),
  /** Ends the generation when it is aborted. */
  signal: optional(signalKind),
});

/** Options of {@link generate}. */
export interface GenerateOptions extends OptionsOf<typeof generateOptions> {}

/** A piece of a generated text. */
export interface GeneratedToken {
  /** Which prompt is continued. */
  readonly prompt: number;
  readonly token: number;
  /** The text that the token adds; empty while a character or a stop string may be incomplete. */
  readonly text: string;
  /** Why the text ends here, if it does: at a stop, or because it is long enough. */
  readonly finish?: "stop" | "length";
}

/**
 * Continues prompts with a model, as many at once as there are slots, and gives the tokens as they are drawn. The text
 * of a prompt depends on the prompt, the options and its seed, not on the other prompts.
 *
 * ```ts
 * const { config, params, tokenizer } = await loadPretrained("models/llama");
 * for await (const { text } of generate(config, params, ["Once upon a time"], { tokenizer, topP: 0.9 })) {
 *   process.stdout.write(text);
 * }
 * ```
 *
 * @param model the configuration of the model
 * @param params its parameters, with the layers in order
 * @param prompts texts or arrays of tokens
 *
 * @example
 * ```ts
 * const tokens = train.generate({} as never, {}, []);
 * (await tokens.next()).done; // true
 * ```
 */
export async function* generate(
  model: ModelConfig,
  params: Variables,
  prompts: readonly (string | ArrayLike<number>)[],
  options: GenerateOptions = {},
): AsyncGenerator<GeneratedToken, void, void> {
  const read = generateOptions.read(options, "generate");
  const { tokenizer, stop, maxTokens, slots, mesh, signal, seed } = read;
  const draft = read.draft && { ...read.draft, count: read.draftTokens };
  const sampling = checkedSampling(read, "generate");
  if (!Array.isArray(prompts)) {
    throw new ValueError(`[generate] prompts must be an array, got ${describe(prompts)}`);
  }
  if (prompts.length === 0) return;
  const encoded = prompts.map((prompt) => encodePrompt(prompt, tokenizer));
  if (stop.length > 0 && !tokenizer) {
    throw new ValueError("[generate] stop strings need a tokenizer: give tokenizer, or use stopTokens");
  }
  const longest = Math.max(...encoded.map(({ length }) => length));
  const maxLength = read.maxLength ?? longest + maxTokens;
  const vocabSize = Math.min(tokenizer?.vocabSize ?? model.vocabSize, model.vocabSize);
  const endOfText = tokenizer?.endOfText;
  const stopTokens = new Set(read.stopTokens ?? (endOfText === undefined ? [] : [endOfText]));
  const generator = new TextGenerator(model, params, { slots, maxLength, mesh, vocabSize, draft });
  try {
    const texts = encoded.map((tokens, prompt) => {
      const own = typeof seed === "number" ? seed : (seed[prompt] ?? 0);
      const drawn = generator.submit({ tokens, maxTokens, sampling, seed: own, stopTokens, signal });
      return withText(drawn, prompt, tokenizer, stop, stopTokens);
    });
    yield* merged(texts);
  } finally {
    await generator.close();
  }
}

/** The tokens of a prompt. */
export function encodePrompt(prompt: string | ArrayLike<number>, tokenizer: Tokenizer | undefined): number[] {
  if (typeof prompt !== "string") return Array.from(prompt);
  if (!tokenizer) {
    throw new ValueError("[generate] prompts that are strings need a tokenizer: give tokenizer");
  }
  const tokens = Array.from(tokenizer.encode(prompt));
  // A model needs at least one token to continue from.
  return tokens.length > 0 ? tokens : [tokenizer.endOfText ?? 0];
}

/** Adds the text of tokens, and ends where a stop string begins. */
export async function* withText(
  drawn: AsyncGenerator<DrawnToken>,
  prompt: number,
  tokenizer: Tokenizer | undefined,
  stop: readonly string[],
  stopTokens: ReadonlySet<number>,
): AsyncGenerator<GeneratedToken> {
  const stream = new TextStream(tokenizer, stop);
  for await (const { token, finish } of drawn) {
    const isStop = stopTokens.has(token);
    const text = isStop ? "" : stream.add(token);
    if (stream.isStopped) {
      yield { prompt, token, text, finish: "stop" };
      return;
    }
    yield finish ? { prompt, token, text: text + stream.end(), finish } : { prompt, token, text };
  }
}

/** The items of several iterations as they come. */
export async function* merged<T>(sources: readonly AsyncGenerator<T>[]): AsyncGenerator<T> {
  const next = (source: AsyncGenerator<T>) => source.next().then((result) => ({ source, result }));
  const pending = new Map(sources.map((source) => [source, next(source)]));
  try {
    while (pending.size > 0) {
      const { source, result } = await Promise.race(pending.values());
      if (result.done) {
        pending.delete(source);
        continue;
      }
      pending.set(source, next(source));
      yield result.value;
    }
  } finally {
    await Promise.allSettled(sources.map((source) => source.return(undefined)));
  }
}
