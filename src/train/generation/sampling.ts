import { ValueError } from "../../ir/errors.js";
import { schema, type Values } from "../../ir/schema.js";

/** The options that say how tokens are drawn. */
export const samplingOptions = schema({
  /** Divides the logits: below 1 keeps to likely tokens, 0 always takes the likeliest; 1 by default. */
  temperature: 1,
  /** Draws from this many of the likeliest tokens, and those as likely as the last; 0, the default, for all. */
  topK: 0,
  /** Draws from the likeliest tokens that have this share of the probability together; 1, the default, for all. */
  topP: 1,
  /** Draws from tokens with at least this multiple of the probability of the likeliest; 0, the default, for all. */
  minP: 0,
  /** Above 1, tokens that the text has already become less likely; 1, the default, for none. */
  repetitionPenalty: 1,
});

/** How tokens are drawn. */
export type Sampling = Values<typeof samplingOptions.fields>;

/** The sampling that options ask for; throws for values that have no meaning. */
export function checkedSampling(options: Sampling, caller: string): Sampling {
  const { temperature, topK, topP, minP, repetitionPenalty } = options;
  const rules: readonly (readonly [name: string, isRight: boolean, value: number, rule: string])[] = [
    ["temperature", temperature >= 0, temperature, "a number of at least 0"],
    ["topK", Number.isInteger(topK) && topK >= 0, topK, "an integer, 0 for all tokens"],
    ["topP", topP > 0 && topP <= 1, topP, "a number above 0 and up to 1"],
    ["minP", minP >= 0 && minP <= 1, minP, "a number from 0 to 1"],
    // Logits of any model stay finite.
    [
      "repetitionPenalty",
      repetitionPenalty >= 0.01 && repetitionPenalty <= 100,
      repetitionPenalty,
      "a number from 0.01 to 100",
    ],
  ];
  for (const [name, isRight, value, rule] of rules) {
    if (!isRight) throw new ValueError(`[${caller}] ${name} is ${value}: use ${rule}`);
  }
  return { temperature, topK, topP, minP, repetitionPenalty };
}

/** Throws if the largest logit is not finite. */
export function checkLargest(logit: number): void {
  if (Number.isFinite(logit)) return;
  throw new ValueError("[generate] the model's logits are not finite: its parameters are damaged");
}
