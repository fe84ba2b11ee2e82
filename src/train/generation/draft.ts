/**
 * Speculative decoding: a small model proposes tokens, which the large one then reads at once. Every proposal is drawn
 * with the same noise as the large model's token at its place, and kept only if the two are the same, so the text is
 * the one that the large model writes alone.
 */
import { ValueError } from "../../ir/errors.js";
import { at, range } from "../../ir/shape.js";
import type { Variables } from "../../nn/modules/scope.js";
import { isRecurrent, type ModelConfig } from "../models/config.js";
import { CachedModel, type CachedModelOptions } from "./cachedModel.js";
import type { Draw } from "./drawing.js";

/** A smaller model that proposes tokens. */
export interface DraftModel {
  readonly model: ModelConfig;
  /** Its parameters, with the layers in order. */
  readonly params: Variables;
}

/** Throws unless one model can propose tokens of the other. */
export function checkDraft(model: ModelConfig, draft: ModelConfig, vocabSize: number): void {
  if (isRecurrent(model) || isRecurrent(draft)) {
    throw new ValueError(
      `[generate] draft: ${isRecurrent(model) ? model.kind : draft.kind} cannot forget the tokens of a proposal: both models must be ones with attention`,
    );
  }
  if (draft.vocabSize >= vocabSize) return;
  throw new ValueError(
    `[generate] the draft has ${draft.vocabSize} tokens, the model ${vocabSize}: use a draft with the same tokeniser`,
  );
}

/** How the next token of a slot's text is drawn. @param proposed what was proposed before it */
export type DrawOf = (slot: number, proposed: readonly number[]) => Draw | undefined;

/** Proposes tokens for the texts of all slots. */
export class Draft {
  private readonly model: CachedModel;
  /** The tokens of each slot that the model has not read yet; one or two. */
  private readonly unread = new Map<number, number[]>();

  /** @param count the number of tokens to propose */
  constructor(
    { model, params }: DraftModel,
    readonly count: number,
    options: CachedModelOptions,
  ) {
    this.model = new CachedModel(model, params, options);
  }

  /** Reads a prompt, which a text continues with a token. */
  async begin(slot: number, prompt: readonly number[], next: number): Promise<void> {
    const { logits } = await this.model.read(slot, prompt);
    logits.dispose();
    this.unread.set(slot, [next]);
  }

  /** Proposes tokens for every slot. @param vocabSize the number of tokens that may be drawn */
  async propose(slots: readonly number[], vocabSize: number, drawOf: DrawOf): Promise<Map<number, number[]>> {
    const proposed = new Map(slots.map((slot) => [slot, [] as number[]]));
    for (const i of range(this.count)) {
      const tokens = (slot: number) =>
        i === 0 ? (this.unread.get(slot) ?? []) : [at(proposed.get(slot) ?? [], i - 1)];
      const rows = new Map(slots.map((slot) => [slot, tokens(slot)]));
      const logits = await this.model.readTogether(rows, i === 0 ? 2 : 1, "last");
      const draws = range(this.model.slots).map((slot) => {
        const own = proposed.get(slot);
        return own && drawOf(slot, own);
      });
      // Logits that are not finite propose nothing of use, but the text is the model's.
      const drawn = await this.model.drawer.draw(logits, vocabSize, draws).read();
      logits.dispose();
      for (const [slot, own] of proposed) own.push(at(drawn, slot).token);
    }
    return proposed;
  }

  /** Keeps the first of a slot's proposals, which the text continues with a token. */
  keep(slot: number, proposed: readonly number[], numKept: number, next: number): void {
    const last = proposed.slice(this.count - 1, numKept);
    // The last proposal was drawn, but not read.
    this.model.forgetLast(slot, Math.max(0, this.count - 1 - numKept));
    this.unread.set(slot, [...last, next]);
  }

  forget(slot: number): void {
    this.model.forget(slot);
    this.unread.delete(slot);
  }

  close(): Promise<void> {
    return this.model.close();
  }
}
