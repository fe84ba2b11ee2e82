import { describe } from "../../../ir/describe.js";
import { ValueError } from "../../../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../../../ir/schema.js";
import { at } from "../../../ir/shape.js";
import { type BpeModel, BpeTokenizer, type Cut, cut } from "./bpe.js";
import { byteCharacters, gpt2Pattern, translatePattern } from "./byteLevel.js";

const trainBpeOptions = schema({
  /** The number of tokens, bytes and special tokens included. */
  vocabSize: required("number"),
  /** Markers that are tokens of their own; `<|endoftext|>` by default. */
  specialTokens: optional("strings", ["<|endoftext|>"]),
  /** Rarer pairs are not merged; 2 by default. */
  minFrequency: 2,
});

/** Options of {@link trainBpe}. */
export interface TrainBpeOptions extends OptionsOf<typeof trainBpeOptions> {}

/** A word of the text as a list of tokens, and how often it occurs. */
interface Word {
  symbols: number[];
  readonly count: number;
}

/**
 * Trains a byte-level BPE tokeniser, repeatedly merging the most frequent pair of tokens. Of equally frequent pairs the
 * one with the smaller tokens comes first, as in the reference implementation.
 *
 * @example
 * ```ts
 * const tokenizer = train.trainBpe("low lower lowest", { vocabSize: 260 });
 * tokenizer.decode(tokenizer.encode("low")); // "low"
 * ```
 */
export function trainBpe(text: string | Iterable<string>, options: TrainBpeOptions): BpeTokenizer {
  const { vocabSize, specialTokens, minFrequency } = trainBpeOptions.read(options, "trainBpe");
  const least = 256 + specialTokens.length;
  if (!Number.isInteger(vocabSize) || vocabSize < least || vocabSize > maxVocabSize) {
    throw new ValueError(
      `[trainBpe] vocabSize must be an integer from ${least} (256 bytes and ${specialTokens.length} special tokens) to ${maxVocabSize}, got ${describe(vocabSize)}`,
    );
  }
  const alphabet = [...byteCharacters].sort();
  const vocab = [...specialTokens, ...alphabet];
  const tokenOf = new Map(alphabet.map((character, i) => [character, specialTokens.length + i]));
  const byteToken = byteCharacters.map((character) => tokenOf.get(character) ?? 0);
  const cuts = [translatePattern(gpt2Pattern)];
  const words = countWords(text, cuts).map(([word, count]): Word => {
    const bytes = new TextEncoder().encode(word);
    return { symbols: Array.from(bytes, (byte) => at(byteToken, byte)), count };
  });
  const merges = learnMerges(words, vocab, vocabSize, minFrequency);
  const addedTokens = specialTokens.map((content, id) => ({ id, content, special: true }));
  const model: BpeModel = { vocab, merges, addedTokens, cuts };
  return new BpeTokenizer(model);
}

/** A pair of tokens is encoded as left · 2²⁰ + right. */
const maxVocabSize = 2 ** 20;

function countWords(text: string | Iterable<string>, cuts: readonly Cut[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const part of typeof text === "string" ? [text] : text) {
    for (const word of cut(part, cuts)) counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return [...counts];
}

function learnMerges(words: readonly Word[], vocab: string[], vocabSize: number, minFrequency: number) {
  const pairs = new PairCounts(words);
  const queue = new PairQueue();
  for (const [pair, count] of pairs.counts) queue.push(pair, count);
  // Tokens with the same text are one token, whichever pair they were merged from.
  const tokens = new Map(vocab.map((token, id) => [token, id]));
  const merges: [number, number, number][] = [];
  while (vocab.length < vocabSize) {
    const top = queue.pop();
    if (!top) break;
    const current = pairs.counts.get(top.pair) ?? 0;
    if (current !== top.count) {
      // The count has decreased since; the pair is queued again.
      queue.push(top.pair, current);
      continue;
    }
    if (current < Math.max(1, minFrequency)) break;
    const left = Math.floor(top.pair / maxVocabSize);
    const right = top.pair % maxVocabSize;
    const text = at(vocab, left) + at(vocab, right);
    const joined = tokens.get(text) ?? vocab.length;
    if (joined === vocab.length) {
      vocab.push(text);
      tokens.set(text, joined);
    }
    merges.push([left, right, joined]);
    for (const pair of pairs.join(left, right, joined)) queue.push(pair, pairs.counts.get(pair) ?? 0);
  }
  return merges;
}

/** How often every pair of tokens occurs, and in which words. */
class PairCounts {
  readonly counts = new Map<number, number>();
  private readonly places = new Map<number, Set<number>>();
  private readonly words: readonly Word[];

  constructor(words: readonly Word[]) {
    this.words = words;
    words.forEach(({ symbols, count }, w) => {
      for (let i = 0; i + 1 < symbols.length; i++) this.change(at(symbols, i), at(symbols, i + 1), count, w);
    });
  }

  /** Merges a pair to one token wherever it occurs. @returns the pairs that became more frequent */
  join(left: number, right: number, joined: number): ReadonlySet<number> {
    const pair = left * maxVocabSize + right;
    const raised = new Set<number>();
    for (const w of this.places.get(pair) ?? []) this.joinIn(w, left, right, joined, raised);
    this.counts.delete(pair);
    this.places.delete(pair);
    return raised;
  }

  private joinIn(w: number, left: number, right: number, joined: number, raised: Set<number>): void {
    const word = at(this.words, w);
    const { symbols, count } = word;
    const result: number[] = [];
    for (let i = 0; i < symbols.length; i++) {
      const symbol = at(symbols, i);
      if (symbol !== left || symbols[i + 1] !== right) {
        result.push(symbol);
        continue;
      }
      const before = result.at(-1);
      if (before !== undefined) {
        this.change(before, left, -count, w);
        this.change(before, joined, count, w);
        raised.add(before * maxVocabSize + joined);
      }
      const after = symbols[i + 2];
      if (after !== undefined) {
        this.change(right, after, -count, w);
        this.change(joined, after, count, w);
        raised.add(joined * maxVocabSize + after);
      }
      result.push(joined);
      i++;
    }
    word.symbols = result;
  }

  private change(left: number, right: number, by: number, word: number): void {
    const pair = left * maxVocabSize + right;
    this.counts.set(pair, (this.counts.get(pair) ?? 0) + by);
    if (by <= 0) return;
    const where = this.places.get(pair);
    if (where) where.add(word);
    else this.places.set(pair, new Set([word]));
  }
}

/** Pairs by count, the most frequent first, then by their tokens. */
class PairQueue {
  private readonly pairs: number[] = [];
  private readonly counts: number[] = [];

  push(pair: number, count: number): void {
    if (count <= 0) return;
    let i = this.pairs.length;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (!this.isFirst(pair, count, parent)) break;
      this.move(parent, i);
      i = parent;
    }
    this.pairs[i] = pair;
    this.counts[i] = count;
  }

  pop(): { readonly pair: number; readonly count: number } | undefined {
    const [pair] = this.pairs;
    const [count] = this.counts;
    if (pair === undefined || count === undefined) return undefined;
    const lastPair = this.pairs.pop() ?? 0;
    const lastCount = this.counts.pop() ?? 0;
    const n = this.pairs.length;
    if (n === 0) return { pair, count };
    let i = 0;
    for (let child = 1; child < n; child = 2 * i + 1) {
      if (child + 1 < n && this.isFirst(at(this.pairs, child + 1), at(this.counts, child + 1), child))
        child++;
      if (this.isFirst(lastPair, lastCount, child)) break;
      this.move(child, i);
      i = child;
    }
    this.pairs[i] = lastPair;
    this.counts[i] = lastCount;
    return { pair, count };
  }

  private isFirst(pair: number, count: number, other: number): boolean {
    const than = at(this.counts, other);
    return count > than || (count === than && pair < at(this.pairs, other));
  }

  private move(from: number, to: number): void {
    this.pairs[to] = at(this.pairs, from);
    this.counts[to] = at(this.counts, from);
  }
}
