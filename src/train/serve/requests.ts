/** The bodies of requests in OpenAI's form; nothing in them is trusted. */
import { describe } from "../../ir/describe.js";
import { arrayOf, fields, type JsonReader, object, ofKind, string } from "../../ir/jsonReaders.js";
import { nearest } from "../../ir/nearest.js";
import { RequestError } from "./requestError.js";

/** A message of a chat that is only text. */
export type TextMessage = { readonly role: string; readonly content: string };

/** What texts a client wants, whichever way it asked. */
export interface TextRequest {
  /** Texts or tokens to continue, or the messages of a chat. */
  readonly input:
    | { readonly prompts: readonly (string | readonly number[])[] }
    | { readonly messages: readonly TextMessage[] };
  /** The name of the model, if it is given. */
  readonly model: string | undefined;
  readonly maxTokens: number | undefined;
  readonly sampling: {
    readonly temperature: number;
    readonly topK: number;
    readonly topP: number;
    readonly minP: number;
    readonly repetitionPenalty: number;
  };
  readonly stop: readonly string[];
  /** Seed of the draws; any one if it is not given. */
  readonly seed: number | undefined;
  /** How many texts to write for each prompt. */
  readonly count: number;
  readonly isStream: boolean;
  /** Whether a stream ends with the numbers of tokens. */
  readonly includeUsage: boolean;
}

const maxCount = 16;
const maxStops = 16;

/** What another reader reads, or undefined; OpenAI's clients write null for what is not given. */
function given<T>(read: JsonReader<T>): JsonReader<T | undefined> {
  return (value, where, wrong) =>
    value === undefined || value === null ? undefined : read(value, where, wrong);
}

const isNumber = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value);
const numberThat = (is: (value: number) => boolean, rule: string) =>
  ofKind((value): value is number => isNumber(value) && is(value), `must be ${rule}`);
const integerFrom = (least: number, most = Number.MAX_SAFE_INTEGER) =>
  numberThat(
    (value) => Number.isSafeInteger(value) && value >= least && value <= most,
    most === Number.MAX_SAFE_INTEGER
      ? `an integer of at least ${least}`
      : `an integer from ${least} to ${most}`,
  );
const flag = ofKind((value) => typeof value === "boolean", "must be true or false");
const stopString = ofKind(
  (value): value is string => typeof value === "string" && value !== "",
  "must be a string that is not empty",
);

const stops: JsonReader<readonly string[]> = (value, where, wrong) => {
  if (!Array.isArray(value)) return [stopString(value, where, wrong)];
  if (value.length > maxStops) throw wrong(where, `must have at most ${maxStops} strings`, value);
  return arrayOf(stopString)(value, where, wrong);
};

/** A field whose effect is not implemented: only values without an effect are accepted. */
function unsupported(isNeutral: (value: unknown) => boolean): JsonReader<undefined> {
  return (value, where, wrong) => {
    if (value === undefined || value === null || isNeutral(value)) return undefined;
    throw wrong(where, "is not supported: leave it out", value);
  };
}

const isEmpty = (value: unknown) =>
  typeof value === "object" && value !== null && Object.keys(value).length === 0;
const anything: JsonReader<undefined> = () => undefined;

const commonFields = {
  model: given(string),
  max_tokens: given(integerFrom(1)),
  temperature: given(numberThat((value) => value >= 0 && value <= 2, "a number from 0 to 2")),
  top_p: given(numberThat((value) => value > 0 && value <= 1, "a number above 0 and up to 1")),
  top_k: given(integerFrom(0)),
  min_p: given(numberThat((value) => value >= 0 && value <= 1, "a number from 0 to 1")),
  repetition_penalty: given(
    numberThat((value) => value >= 0.01 && value <= 100, "a number from 0.01 to 100"),
  ),
  stop: given(stops),
  seed: given(numberThat((value) => Number.isSafeInteger(value), "an integer from -(2^53 - 1) to 2^53 - 1")),
  n: given(integerFrom(1, maxCount)),
  stream: given(flag),
  stream_options: given(object({ include_usage: given(flag) })),
  presence_penalty: unsupported((value) => value === 0),
  frequency_penalty: unsupported((value) => value === 0),
  logit_bias: unsupported(isEmpty),
  // These say who asks and how the request is to be billed or filed.
  user: anything,
  metadata: anything,
  store: anything,
  service_tier: anything,
  safety_identifier: anything,
  prompt_cache_key: anything,
};

const token = integerFrom(0);
const isTokens = (value: unknown): value is readonly unknown[] =>
  Array.isArray(value) && value.some((one) => typeof one === "number");

const prompts: JsonReader<readonly (string | readonly number[])[]> = (value, where, wrong) => {
  if (typeof value === "string") return [value];
  if (isTokens(value)) return [arrayOf(token)(value, where, wrong)];
  if (!Array.isArray(value) || value.length === 0) {
    throw wrong(where, "must be a string, an array of tokens, or an array of these", value);
  }
  return value.map((one, i) =>
    isTokens(one)
      ? arrayOf(token)(one, `${where}[${i}]`, wrong)
      : ofKind((text): text is string => typeof text === "string", "must be a string or an array of tokens")(
          one,
          `${where}[${i}]`,
          wrong,
        ),
  );
};

const textFields = {
  ...commonFields,
  prompt: prompts,
  echo: unsupported((value) => value === false),
  best_of: unsupported((value) => value === 1),
  suffix: unsupported((value) => value === ""),
  logprobs: unsupported((value) => value === false),
};

const roles = ["system", "developer", "user", "assistant"];
const role = ofKind(
  (value): value is string => typeof value === "string" && roles.includes(value),
  `must be one of ${roles.join(", ")}`,
);
const textPart = object({
  type: ofKind((value): value is "text" => value === "text", 'must be "text": the model reads only text'),
  text: string,
});
const content: JsonReader<string> = (value, where, wrong) => {
  if (typeof value === "string") return value;
  if (!Array.isArray(value)) throw wrong(where, "must be a string or an array of parts", value);
  return arrayOf(textPart)(value, where, wrong)
    .map(({ text }) => text)
    .join("");
};
const messages: JsonReader<readonly TextMessage[]> = (value, where, wrong) => {
  const read = arrayOf(object({ role, content }))(value, where, wrong);
  if (read.length === 0) throw wrong(where, "must have at least one message", value);
  return read;
};

const chatFields = {
  ...commonFields,
  messages,
  max_completion_tokens: given(integerFrom(1)),
  logprobs: unsupported((value) => value === false),
  top_logprobs: unsupported((value) => value === 0),
  tools: unsupported(isEmpty),
  tool_choice: unsupported((value) => value === "none" || value === "auto"),
  parallel_tool_calls: anything,
  functions: unsupported(isEmpty),
  function_call: unsupported((value) => value === "none" || value === "auto"),
  response_format: unsupported(
    (value) => typeof value === "object" && value !== null && "type" in value && value.type === "text",
  ),
  modalities: unsupported((value) => Array.isArray(value) && value.length === 1 && value[0] === "text"),
};

const wrongField = (where: string, rule: string, got: unknown) => {
  const found = got === undefined ? "" : `, got ${describe(got)}`;
  return new RequestError(400, `${where} ${rule}${found}`, { param: where });
};

/** Reads the fields of a body; unknown ones are errors, because ignoring them would change what is asked. */
function readFields<const F extends Readonly<Record<string, JsonReader<unknown>>>>(
  readers: F,
  json: unknown,
) {
  const body = fields(json, "the body", wrongField);
  const known = Object.keys(readers);
  const unknown = Object.keys(body).find((name) => !Object.hasOwn(readers, name));
  if (unknown !== undefined) {
    const near = nearest(unknown, known);
    const name = describe(unknown);
    throw new RequestError(400, `unknown field ${name}${near ? `; did you mean ${near}?` : ""}`, {
      param: unknown.slice(0, 40),
    });
  }
  return object(readers)(body, "", wrongField);
}

/** Reads the body of a request to `/v1/completions`. */
export function readTextRequest(json: unknown): TextRequest {
  const { prompt, ...rest } = readFields(textFields, json);
  // As with OpenAI's service, a text is short if no length is given.
  return { ...commonRequest(rest), input: { prompts: prompt }, maxTokens: rest.max_tokens ?? 16 };
}

/** Reads the body of a request to `/v1/chat/completions`. */
export function readChatRequest(json: unknown): TextRequest {
  const { messages: chat, max_completion_tokens, ...rest } = readFields(chatFields, json);
  const maxTokens = max_completion_tokens ?? rest.max_tokens;
  return { ...commonRequest(rest), input: { messages: chat }, maxTokens };
}

type Read<R> = R extends JsonReader<infer T> ? T : never;
type Common = { readonly [K in keyof typeof commonFields]?: Read<(typeof commonFields)[K]> };

function commonRequest(read: Common): Omit<TextRequest, "input" | "maxTokens"> {
  const { model, seed, stop = [], n = 1, stream = false, stream_options } = read;
  const { temperature = 1, top_k = 0, top_p = 1, min_p = 0, repetition_penalty = 1 } = read;
  return {
    ...{
      model,
      seed,
      stop,
      count: n,
      isStream: stream,
      includeUsage: stream_options?.include_usage === true,
    },
    sampling: { temperature, topK: top_k, topP: top_p, minP: min_p, repetitionPenalty: repetition_penalty },
  };
}
