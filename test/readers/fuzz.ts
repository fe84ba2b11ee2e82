/** Reads changed inputs, and keeps those that reach new places of a reader. */
import { ShardwiseError } from "../../src/ir/errors.js";
import { Random } from "../compiler/randomProgram.js";
import { Coverage } from "./coverage.js";
import { type Envelope, MAX_BYTES, mutate } from "./mutate.js";

/** A reader of files or messages that others may have written. */
export interface Reader {
  readonly name: string;
  readonly envelope: Envelope;
  samples(): readonly Uint8Array[];
  /** Reads an input to the end; throws a `ShardwiseError` if something is wrong with it. */
  read(bytes: Uint8Array): void;
}

/** An input that a reader does not withstand. */
export interface BadInput {
  readonly bytes: Uint8Array;
  readonly error: unknown;
}

export interface Fuzzed {
  readonly numInputs: number;
  /** How many were read without an error. */
  readonly numAccepted: number;
  readonly numKept: number;
  readonly numCovered: number;
  readonly bad: BadInput | undefined;
}

/** Told about every input before it is read, so that one which never ends is known. */
export type Notice = (bytes: Uint8Array) => void;

export interface FuzzOptions {
  readonly seed: number;
  readonly numInputs: number;
  /** When to stop, as `performance.now` counts. */
  readonly until?: number;
  readonly usesCoverage?: boolean;
  readonly notice?: Notice;
}

/** Inputs whose coverage is asked for together: few at first, when many reach something new, because asking takes long. */
const BATCH = { first: 100, most: 2000 };

export function fuzzReader(reader: Reader, options: FuzzOptions): Fuzzed {
  const { seed, until = Infinity, usesCoverage = true, notice = () => {} } = options;
  const random = new Random(seed);
  const corpus = reader.samples().map((sample) => sample.subarray(0, MAX_BYTES));
  const numSamples = corpus.length;
  const coverage = usesCoverage ? new Coverage((url) => /\/src\/|\/readers\//.test(url)) : undefined;
  let [numInputs, numAccepted] = [0, 0];
  let bad: BadInput | undefined;
  const read = (bytes: Uint8Array): void => {
    notice(bytes);
    numInputs++;
    try {
      reader.read(bytes);
      numAccepted++;
    } catch (error) {
      if (!(error instanceof ShardwiseError) || error.code === "internal") bad ??= { bytes, error };
    }
  };
  /** Keeps those of some inputs that reach new places, which all of them together have done. */
  const keepNew = (inputs: readonly Uint8Array[]): void => {
    for (const bytes of inputs) read(bytes);
    if (coverage === undefined || coverage.newPlaces(inputs.length === 1) === 0) return;
    const [only] = inputs;
    if (inputs.length === 1 && only) corpus.push(only);
    else {
      const half = inputs.length >> 1;
      keepNew(inputs.slice(0, half));
      keepNew(inputs.slice(half));
    }
  };
  for (const sample of reader.samples()) read(sample);
  coverage?.newPlaces(true);
  let size = BATCH.first;
  while (numInputs < options.numInputs && performance.now() < until && bad === undefined) {
    const inputs = Array.from({ length: Math.min(size, options.numInputs - numInputs) }, () => {
      // The newest ones are nearest to what was never reached.
      const recent = random.chance(0.3) ? Math.max(0, corpus.length - 20) : 0;
      const base = corpus[recent + random.below(corpus.length - recent)] ?? new Uint8Array();
      return mutate(random, reader.envelope, base, random.pick(corpus)).subarray(0, MAX_BYTES);
    });
    const numKnown = corpus.length;
    keepNew(inputs);
    if (corpus.length === numKnown) size = Math.min(2 * size, BATCH.most);
  }
  coverage?.close();
  return {
    numInputs,
    numAccepted,
    numKept: corpus.length - numSamples,
    numCovered: coverage?.numCovered ?? 0,
    bad,
  };
}
