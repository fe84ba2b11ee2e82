/** What a source of data holds: counts, lengths, samples and duplicates. */
import { need } from "../../../ir/arguments.js";
import { type OptionsOf, optional, schema } from "../../../ir/schema.js";
import type { FileError } from "../../files/disk/fileError.js";
import {
  type Example,
  type ExampleFields,
  type ExampleKind,
  kindOfExample,
  placedExamples,
  textOf,
} from "../sources/examples.js";
import type { DataSource } from "../sources/records.js";
import type { Tokenizer } from "../tokenizers/tokenizer.js";
import { NearDuplicates } from "./nearDuplicates.js";
import { mix } from "./permute.js";

/** How lengths are distributed. */
export interface Lengths {
  readonly total: number;
  readonly mean: number;
  readonly min: number;
  readonly median: number;
  readonly p95: number;
  readonly max: number;
  /** The number of examples from one power of two up to the next; the first is of length 0. */
  readonly histogram: readonly { readonly from: number; readonly to: number; readonly count: number }[];
}

/** An example, where it is, and the beginning of its text. */
export interface SampledExample {
  readonly file: string;
  readonly line: number;
  readonly text: string;
}

/** Two examples that are equal or nearly so. */
export interface DuplicatePair {
  readonly first: { readonly file: string; readonly line: number };
  readonly second: { readonly file: string; readonly line: number };
  /** What they have in common: 1 if they are equal. */
  readonly share: number;
}

/** What a source holds. */
export interface DataStatistics {
  readonly kinds: Readonly<Partial<Record<ExampleKind, number>>>;
  readonly numExamples: number;
  readonly files: readonly {
    readonly file: string;
    readonly numExamples: number;
    readonly characters: number;
  }[];
  readonly characters: Lengths;
  /** The tokens of the texts, if there is a tokeniser. */
  readonly tokens?: Lengths;
  readonly duplicates: {
    /** Examples whose text is that of an earlier one. */
    readonly exact: number;
    /** Examples whose text is nearly that of an earlier one. */
    readonly near: number;
    /** The number of examples that were compared for near duplicates. */
    readonly numCompared: number;
    /** Some of them. */
    readonly pairs: readonly DuplicatePair[];
  };
  readonly samples: readonly SampledExample[];
  /** The number of records that could not be read, and what was wrong with the first of them. */
  readonly numUnreadable: number;
  readonly problems: readonly string[];
}

const statisticsOptions = schema({
  /** The names of the fields, as in `readExamples`. */
  fields: optional<ExampleFields>("object", {}),
  /** Counts tokens. */
  tokenizer: optional<Tokenizer>("object"),
  /** The number of samples; 5 by default. */
  samples: optional("integer", 5),
  /** Seed of the samples; 0 by default. */
  seed: optional("integer", 0),
  /** Whether a record that cannot be read ends it; by default such records are counted. */
  stopOnError: false,
});

/** Options of {@link dataStatistics}. */
export interface DataStatisticsOptions extends OptionsOf<typeof statisticsOptions> {}

/** More examples are not compared for near duplicates, because their signatures are kept in memory. */
const maxCompared = 200_000;
const maxListed = 20;
const sampleChars = 600;

/**
 * Reads a source and describes it. Near duplicates have at least 80 % of their runs of five words in common, as estimated
 * by MinHash.
 *
 * @example
 * ```ts
 * const file = new File(['{"text": "one"}\n{"text": "one"}\n'], "some.jsonl");
 * const { numExamples, duplicates } = await train.dataStatistics(file);
 * [numExamples, duplicates.exact]; // [2, 1]
 * ```
 */
export async function dataStatistics(
  source: DataSource,
  options: DataStatisticsOptions = {},
): Promise<DataStatistics> {
  need("object", options, "the options", "dataStatistics");
  const { fields, tokenizer, samples, seed, stopOnError } = statisticsOptions.read(options, "dataStatistics");
  const problems: string[] = [];
  let numUnreadable = 0;
  const tell = (error: FileError) => {
    numUnreadable++;
    if (problems.length < maxListed) problems.push(error.message);
  };
  const counts = new ExampleCounts(tokenizer, samples, seed);
  for await (const batch of placedExamples(source, { fields, onError: stopOnError ? "stop" : tell })) {
    for (const { file, line, example } of batch) counts.add(example, { file, line });
  }
  return { ...counts.result(), numUnreadable, problems };
}

/** Counts examples as they come. */
class ExampleCounts {
  private readonly kinds: Partial<Record<ExampleKind, number>> = {};
  private readonly files = new Map<string, { numExamples: number; characters: number }>();
  private readonly characters: number[] = [];
  private readonly tokens: number[] = [];
  private readonly places: { readonly file: string; readonly line: number }[] = [];
  private readonly known = new Map<number, number>();
  private readonly nearby = new NearDuplicates();
  private readonly pairs: DuplicatePair[] = [];
  private readonly samples: SampledExample[] = [];
  private exact = 0;
  private near = 0;

  constructor(
    private readonly tokenizer: Tokenizer | undefined,
    private readonly numSamples: number,
    private readonly seed: number,
  ) {}

  add(example: Example, place: { readonly file: string; readonly line: number }): void {
    const text = textOf(example);
    const index = this.places.push(place) - 1;
    const kind = kindOfExample(example);
    this.kinds[kind] = (this.kinds[kind] ?? 0) + 1;
    const file = this.files.get(place.file) ?? { numExamples: 0, characters: 0 };
    this.files.set(place.file, {
      numExamples: file.numExamples + 1,
      characters: file.characters + text.length,
    });
    this.characters.push(text.length);
    if (this.tokenizer) this.tokens.push(this.tokenizer.encode(text).length);
    this.sample(index, {
      ...place,
      text: text.length > sampleChars ? `${text.slice(0, sampleChars)}…` : text,
    });
    this.compare(index, text);
  }

  /** Keeps each example with the same probability (reservoir sampling). */
  private sample(index: number, example: SampledExample): void {
    if (index < this.numSamples) this.samples.push(example);
    else {
      const slot = mix(mix(this.seed) ^ index) % (index + 1);
      if (slot < this.numSamples) this.samples[slot] = example;
    }
  }

  private compare(index: number, text: string): void {
    const hash = wideHash(text);
    const equal = this.known.get(hash);
    if (equal !== undefined) {
      this.exact++;
      this.list(equal, index, 1);
    } else this.known.set(hash, index);
    if (index >= maxCompared) return;
    // Equal texts are added without words, so that they are not counted twice.
    const found = this.nearby.add(equal === undefined ? text : "");
    if (!found) return;
    this.near++;
    this.list(found.of, index, found.share);
  }

  private list(first: number, second: number, share: number): void {
    const [a, b] = [this.places[first], this.places[second]];
    if (a && b && this.pairs.length < maxListed) this.pairs.push({ first: a, second: b, share });
  }

  result(): Omit<DataStatistics, "numUnreadable" | "problems"> {
    const numExamples = this.places.length;
    return {
      kinds: this.kinds,
      numExamples,
      files: [...this.files].map(([file, counts]) => ({ file, ...counts })),
      characters: lengthsOf(this.characters),
      ...(this.tokenizer && { tokens: lengthsOf(this.tokens) }),
      duplicates: {
        exact: this.exact,
        near: this.near,
        numCompared: Math.min(numExamples, maxCompared),
        pairs: this.pairs,
      },
      samples: this.samples,
    };
  }
}

/** A hash of 53 bits, which no two of a few million texts share by chance. */
function wideHash(text: string): number {
  let [a, b] = [0xdeadbeef, 0x41c6ce57];
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    a = Math.imul(a ^ code, 2654435761);
    b = Math.imul(b ^ code, 1597334677);
  }
  return (mix(b) & 0x1fffff) * 2 ** 32 + mix(a);
}

function lengthsOf(values: readonly number[]): Lengths {
  const sorted = Float64Array.from(values).sort();
  const total = sorted.reduce((sum, n) => sum + n, 0);
  const quantile = (q: number) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0;
  const binOf = (n: number) => (n < 1 ? 0 : Math.floor(Math.log2(n)) + 1);
  const counts: number[] = [];
  for (const n of sorted) counts[binOf(n)] = (counts[binOf(n)] ?? 0) + 1;
  const histogram = Array.from(counts, (count = 0, bin) => ({
    from: bin === 0 ? 0 : 2 ** (bin - 1),
    to: bin === 0 ? 0 : 2 ** bin - 1,
    count,
  }));
  const first = histogram.findIndex(({ count }) => count > 0);
  return {
    total,
    mean: sorted.length === 0 ? 0 : total / sorted.length,
    min: sorted[0] ?? 0,
    median: quantile(0.5),
    p95: quantile(0.95),
    max: sorted.at(-1) ?? 0,
    histogram: first < 0 ? [] : histogram.slice(first),
  };
}
