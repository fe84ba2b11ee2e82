/** Stands in for a language model with a cache: a text decides its next token, which comes late. */
import { range } from "../../../../src/ir/shape.js";
import type { BatchingRun } from "../batching.js";
import { currentRun } from "../turns.js";

const run = () => currentRun<BatchingRun>();

/** Something that devices do; the plan may let it fail. */
async function step(): Promise<void> {
  const { turns, failsAt } = run();
  if (run().isReleased) run().wrong("a model is used after it was closed");
  const number = ++run().numSteps;
  await turns.moment();
  if (number === failsAt) throw new Error("the model failed");
}

/** Something on the devices, which must be released. */
class OnDevices {
  private isOpen = true;

  constructor(readonly tokens: readonly number[]) {
    run().numOpen++;
  }

  get shape(): readonly number[] {
    return [this.tokens.length];
  }

  /** Tokens by their rows; what was read is released. */
  async read(): Promise<{ readonly token: number; readonly logit: number }[]> {
    await step().finally(() => this.dispose());
    return this.tokens.map((token) => ({ token, logit: 1 }));
  }

  dispose(): void {
    if (this.isOpen) run().numOpen--;
    this.isOpen = false;
  }
}

export class CachedModel {
  readonly slots: number;
  readonly drawer = { draw: ({ tokens }: OnDevices) => new OnDevices(tokens) };
  private readonly texts: number[][];

  constructor(_model: unknown, _params: unknown, { slots }: { readonly slots: number }) {
    this.slots = slots;
    this.texts = range(slots).map(() => []);
    run().texts = this.texts;
  }

  forget(slot: number): void {
    this.texts[slot] = [];
  }

  async read(slot: number, tokens: readonly number[]): Promise<{ logits: OnDevices; row: number }> {
    if (run().isClosing) run().wrong("a text is begun after the generator was closed");
    await step();
    if (this.texts[slot]?.length !== 0) run().wrong(`slot ${slot} is read into before it is empty`);
    return { logits: new OnDevices([this.add(slot, tokens)]), row: 0 };
  }

  /** Tokens that are known here, by slot. */
  oneEach(tokens: ReadonlyMap<number, number>): readonly number[] {
    return range(this.slots).map((slot) => tokens.get(slot) ?? Number.NaN);
  }

  async next(slots: readonly number[], tokens: readonly number[]): Promise<OnDevices> {
    // Devices compute in the order in which they are asked.
    const next = new Map(slots.map((slot) => [slot, this.add(slot, [tokens[slot] ?? Number.NaN])]));
    await step();
    return new OnDevices(range(this.slots).map((slot) => next.get(slot) ?? Number.NaN));
  }

  async close(): Promise<void> {
    run().isReleased = true;
  }

  /** Adds tokens to a text. @returns the next one */
  private add(slot: number, tokens: readonly number[]): number {
    const text = this.texts[slot] ?? [];
    text.push(...tokens);
    // The last token that a text may have is not read.
    if (text.length >= run().plan.maxLength)
      run().wrong(`the text of slot ${slot} has ${text.length} tokens`);
    return run().nextOf(text);
  }
}
