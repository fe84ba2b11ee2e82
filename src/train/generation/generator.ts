/** Continues many texts at once: texts join and leave between steps (continuous batching). */

import { nextTurn } from "#platform/system";
import { ValueError } from "../../ir/errors.js";
import { at, range } from "../../ir/shape.js";
import type { Variables } from "../../nn/modules/scope.js";
import type { AbortSignalLike } from "../../platform/hostTypes.js";
import type { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "../models/config.js";
import { CachedModel, type CachedModelOptions } from "./cachedModel.js";
import { checkDraft, Draft, type DraftModel } from "./draft.js";
import type { Draw, Drawn, DrawnTokens } from "./drawing.js";
import { checkLargest, type Sampling } from "./sampling.js";

/** A text to be continued. */
export interface TokenRequest {
  /** The tokens to continue; at least one. */
  readonly tokens: readonly number[];
  /** Maximum number of tokens to add. */
  readonly maxTokens: number;
  readonly sampling: Sampling;
  readonly seed: number;
  /** Tokens that end the text; they are reported, too. */
  readonly stopTokens: ReadonlySet<number>;
  /** Ends the text when it is aborted. */
  readonly signal?: AbortSignalLike | undefined;
}

/** One more token of a text. */
export interface DrawnToken {
  readonly token: number;
  /** Why it is the last one, if it is. */
  readonly finish?: "stop" | "length";
}

/** A text that is being continued. */
class Continuation {
  readonly drawn: DrawnToken[] = [];
  readonly seen: number[];
  numDrawn = 0;
  isOver = false;
  failure: { readonly error: unknown } | undefined;
  private wake = () => {};

  constructor(readonly request: TokenRequest) {
    this.seen = [...request.tokens];
  }

  /** Whether the next token is the last, whatever it is. @param maxLength of the text with its prompt */
  isAlmostFull(maxLength: number): boolean {
    return this.numDrawn + 1 >= this.request.maxTokens || this.seen.length + 1 >= maxLength;
  }

  /** How the next token is drawn, or the one after some that were proposed. */
  draw(proposed: readonly number[] = []): Draw {
    const { sampling, seed } = this.request;
    const seen = proposed.length === 0 ? this.seen : [...this.seen, ...proposed];
    return { sampling, seed, index: this.numDrawn + proposed.length, seen };
  }

  /** Whether nobody wants more tokens. */
  get isLeft(): boolean {
    return this.isOver || this.request.signal?.aborted === true;
  }

  push(drawn: DrawnToken): void {
    this.drawn.push(drawn);
    if (drawn.finish) this.isOver = true;
    this.wake();
  }

  end(failure?: { readonly error: unknown }): void {
    this.isOver = true;
    this.failure ??= failure;
    this.wake();
  }

  async *read(): AsyncGenerator<DrawnToken> {
    const onAbort = () => this.end();
    this.request.signal?.addEventListener("abort", onAbort);
    try {
      while (true) {
        const next = this.drawn.shift();
        if (next) yield next;
        else if (this.failure) throw this.failure.error;
        else if (this.isLeft) return;
        else
          await new Promise<void>((resolve) => {
            this.wake = resolve;
          });
      }
    } finally {
      this.isOver = true;
      this.request.signal?.removeEventListener("abort", onAbort);
    }
  }
}

/** Options of {@link TextGenerator}. */
export interface GeneratorOptions extends CachedModelOptions {
  /** A smaller model that proposes tokens, and how many at a time; none by default. */
  readonly draft?: (DraftModel & { readonly count: number }) | undefined;
  /** One more than the largest token that is drawn; the model may have more for padding. */
  readonly vocabSize: number;
}

/** A step that draws the next token of some texts. */
interface Step {
  readonly texts: ReadonlyMap<number, Continuation>;
  readonly drawn: DrawnTokens;
}

/** Continues texts with a model, as many at once as it has slots; others wait. */
export class TextGenerator {
  private readonly model: CachedModel;
  private readonly draft: Draft | undefined;
  private readonly vocabSize: number;
  /** Maximum number of tokens of a text. */
  readonly maxLength: number;
  private waiting: Continuation[] = [];
  /** The text of every slot, and its next token. */
  private readonly active = new Map<number, { readonly text: Continuation; next: number }>();
  /** The step that was started before the tokens of the last one were known. */
  private ahead: Step | undefined;
  private running: Promise<void> | undefined;
  private isClosed = false;

  constructor(model: ModelConfig, params: Variables, { vocabSize, draft, ...options }: GeneratorOptions) {
    if (draft) checkDraft(model, draft.model, vocabSize);
    // Proposals may be longer than what is left of a text.
    const room = { ...options, maxLength: options.maxLength + (draft?.count ?? 0) };
    this.model = new CachedModel(model, params, room);
    this.draft = draft && new Draft(draft, draft.count, { ...room, slots: this.model.slots });
    this.maxLength = options.maxLength;
    this.vocabSize = vocabSize;
  }

  /** The number of texts that are continued, and of those that wait for a slot. */
  get load(): { readonly active: number; readonly waiting: number } {
    return { active: this.active.size, waiting: this.waiting.filter((text) => !text.isLeft).length };
  }

  /** Continues a text; its tokens are computed ahead of the reader. Ending the iteration frees its slot. */
  submit(request: TokenRequest): AsyncGenerator<DrawnToken> {
    const { tokens, maxTokens } = request;
    const { maxLength } = this;
    if (this.isClosed) throw new ValueError("[generate] the generator is closed");
    if (tokens.length === 0) throw new ValueError("[generate] a prompt has no tokens: give at least one");
    if (tokens.length >= maxLength && maxTokens > 0) {
      throw new ValueError(
        `[generate] a prompt has ${tokens.length} tokens, and maxLength is ${maxLength}: use a shorter prompt or a larger maxLength`,
      );
    }
    const wrong = tokens.find((token) => !(Number.isInteger(token) && token >= 0 && token < this.vocabSize));
    if (wrong !== undefined) {
      throw new ValueError(
        `[generate] a prompt has the token ${wrong}: the vocabulary has the tokens 0 to ${this.vocabSize - 1}`,
      );
    }
    const text = new Continuation(request);
    if (maxTokens <= 0) text.end();
    else {
      this.waiting.push(text);
      this.running ??= this.run();
    }
    return text.read();
  }

  /** Ends all texts, and releases what the model holds. */
  async close(): Promise<void> {
    this.isClosed = true;
    for (const text of this.waiting.splice(0)) text.end();
    for (const { text } of this.active.values()) text.end();
    await this.running;
    await this.model.close();
    await this.draft?.close();
  }

  private async run(): Promise<void> {
    try {
      while (this.waiting.length > 0 || this.active.size > 0) {
        await this.admit();
        if (this.active.size === 0) continue;
        if (this.draft) await this.speculate(this.draft);
        else await this.goOn();
        // Timers and sockets have their turn between steps.
        await nextTurn();
      }
    } catch (error) {
      for (const slot of this.active.keys()) this.forget(slot);
      const texts = [...this.waiting.splice(0), ...[...this.active.values()].map(({ text }) => text)];
      this.active.clear();
      for (const text of texts) text.end({ error });
    } finally {
      this.ahead?.drawn.dispose();
      this.ahead = undefined;
      // In the same turn as the last look at the texts that wait, so that none is left behind.
      this.running = undefined;
    }
  }

  /** Frees the slots of texts that are left, and reads the prompts of those that wait. */
  private async admit(): Promise<void> {
    for (const [slot, { text }] of this.active) if (text.isLeft) this.leave(slot);
    this.waiting = this.waiting.filter((text) => !text.isLeft);
    for (const slot of range(this.model.slots)) {
      if (this.active.has(slot)) continue;
      let text = this.waiting.shift();
      while (text?.isLeft) text = this.waiting.shift();
      if (!text) return;
      this.active.set(slot, { text, next: 0 });
      const { tokens } = text.request;
      const { logits, row } = await this.model.read(slot, tokens);
      const draws = range(logits.shape[0] ?? 0).map((i) => (i === row ? text.draw() : undefined));
      this.add(slot, at(await this.drawn(logits, draws).read(), row));
      const place = this.active.get(slot);
      if (place) await this.draft?.begin(slot, tokens, place.next);
    }
  }

  /**
   * One more token of every text. Devices draw it and read it, so that they start the next step before it is known here;
   * of a text that turns out to end with the token, they have read one too many.
   */
  private async goOn(): Promise<void> {
    const step = this.ahead ?? (await this.startStep(this.texts(() => true)));
    this.ahead = undefined;
    const drawn = await this.readStep(step).catch((error: unknown) => {
      step.drawn.dispose();
      throw error;
    });
    for (const [slot, text] of step.texts) {
      if (this.active.get(slot)?.text === text) this.add(slot, at(drawn, slot));
    }
  }

  /** The tokens of a step; the next one is started before they are known. */
  private async readStep({ texts, drawn }: Step): Promise<readonly Drawn[]> {
    // Texts that joined meanwhile wait for the tokens of the others, which only devices know yet.
    const isSame = [...this.active].every(([slot, { text }]) => texts.get(slot) === text);
    const going = this.texts((text) => !text.isLeft && !text.isAlmostFull(this.maxLength));
    if (isSame && going.size > 0) this.ahead = await this.startStep(going, drawn);
    return drawn.read();
  }

  /** Draws a token for each row of logits. @param last tokens that only devices know, which the texts have, too */
  private drawn(logits: Tensor, draws: readonly (Draw | undefined)[], last?: Tensor): DrawnTokens {
    const drawn = this.model.drawer.draw(logits, this.vocabSize, draws, last);
    logits.dispose();
    return drawn;
  }

  /** The texts of slots for which something holds. */
  private texts(holds: (text: Continuation) => boolean): Map<number, Continuation> {
    return new Map([...this.active].flatMap(([slot, { text }]) => (holds(text) ? [[slot, text]] : [])));
  }

  /** Starts a step of some texts. @param after the step before, whose tokens are not known here */
  private async startStep(texts: ReadonlyMap<number, Continuation>, after?: DrawnTokens): Promise<Step> {
    const known = () => this.model.oneEach(new Map([...this.active].map(([slot, { next }]) => [slot, next])));
    const tokens = after?.tokens ?? known();
    const logits = await this.model.next([...texts.keys()], tokens);
    const draws = range(this.model.slots).map((slot) => {
      const draw = texts.get(slot)?.draw();
      return draw && after ? { ...draw, index: draw.index + 1 } : draw;
    });
    return { texts, drawn: this.drawn(logits, draws, tokens) };
  }

  /** As many more tokens of every text as the model agrees with its draft on, and one. */
  private async speculate(draft: Draft): Promise<void> {
    const drawOf = (slot: number, before: readonly number[]) => this.active.get(slot)?.text.draw(before);
    const proposed = await draft.propose([...this.active.keys()], this.vocabSize, drawOf);
    const rows = new Map(
      [...proposed].map(([slot, own]) => [slot, [this.active.get(slot)?.next ?? 0, ...own]]),
    );
    const places = draft.count + 1;
    const logits = await this.model.readTogether(rows, places, "all");
    const draws = range(this.model.slots).flatMap((slot) =>
      range(places).map((i) => drawOf(slot, (proposed.get(slot) ?? []).slice(0, i))),
    );
    const drawn = await this.drawn(logits, draws).read();
    for (const [slot, own] of proposed) {
      let numKept = 0;
      for (const one of drawn.slice(slot * places, (slot + 1) * places)) {
        this.add(slot, one);
        if (this.active.get(slot)?.next !== own[numKept]) break;
        numKept++;
      }
      const place = this.active.get(slot);
      if (!place) continue;
      this.model.forgetLast(slot, draft.count - Math.min(numKept, draft.count));
      draft.keep(slot, own, numKept, place.next);
    }
  }

  private forget(slot: number): void {
    this.model.forget(slot);
    this.draft?.forget(slot);
  }

  private leave(slot: number): void {
    this.forget(slot);
    this.active.delete(slot);
  }

  /** Adds a token to a slot's text. */
  private add(slot: number, { token, logit }: Drawn): void {
    const place = this.active.get(slot);
    if (!place) return;
    const { text } = place;
    const isFull = text.isAlmostFull(this.maxLength);
    try {
      checkLargest(logit);
    } catch (error) {
      // What is wrong with the sampling of one text must not end the others.
      text.end({ error });
      this.leave(slot);
      return;
    }
    text.seen.push(token);
    text.numDrawn++;
    const finish = text.request.stopTokens.has(token) ? "stop" : isFull ? "length" : undefined;
    text.push(finish ? { token, finish } : { token });
    place.next = token;
    if (finish) this.leave(slot);
  }
}
