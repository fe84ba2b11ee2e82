/** Reads changed inputs, and keeps those that reach new places of a reader. */
import { setImmediate as nextTurn } from "node:timers/promises";
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
  read(bytes: Uint8Array): void | Promise<void>;
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
  /** When to stop, as `performance.now` counts, but not before `atLeast` inputs. */
  readonly until?: number;
  readonly atLeast?: number;
  readonly usesCoverage?: boolean;
  readonly notice?: Notice;
}

/** Inputs whose coverage is asked for together: few at first, when many reach something new, because asking takes long. */
const BATCH = { first: 100, most: 2000 };

/** Milliseconds after which a batch is long enough: slow readers would take half a minute for the largest. */
const LONG_BATCH_MS = 500;

export async function fuzzReader(reader: Reader, options: FuzzOptions): Promise<Fuzzed> {
  // Nobody reads where an error of a sound reader came from, and to say so takes longer than reading.
  const { prepareStackTrace } = Error;
  Error.prepareStackTrace = String;
  try {
    return await fuzz(reader, options);
  } finally {
    Error.prepareStackTrace = prepareStackTrace;
  }
}

async function fuzz(reader: Reader, options: FuzzOptions): Promise<Fuzzed> {
  const { seed, until = Infinity, atLeast = 0, usesCoverage = true, notice = () => {} } = options;
  const random = new Random(seed);
  const corpus = reader.samples().map((sample) => sample.subarray(0, MAX_BYTES));
  const numSamples = corpus.length;
  const coverage = usesCoverage ? new Coverage((url) => /\/src\/|\/readers\//.test(url)) : undefined;
  let [numInputs, numAccepted] = [0, 0];
  let bad: BadInput | undefined;
  let current: Uint8Array | undefined;
  const read = async (bytes: Uint8Array): Promise<void> => {
    notice(bytes);
    current = bytes;
    numInputs++;
    try {
      const reading = reader.read(bytes);
      // A rejection that nobody handles is known one turn later.
      if (reading !== undefined) await reading.finally(() => nextTurn());
      numAccepted++;
    } catch (error) {
      if (!(error instanceof ShardwiseError) || error.code === "internal") bad ??= { bytes, error };
    }
  };
  /** Keeps those of some inputs that reach new places, which all of them together have done. */
  const keepNew = async (inputs: readonly Uint8Array[]): Promise<void> => {
    for (const bytes of inputs) await read(bytes);
    if (coverage === undefined || coverage.newPlaces(inputs.length === 1) === 0) return;
    const [only] = inputs;
    if (inputs.length === 1 && only) corpus.push(only);
    else {
      const half = inputs.length >> 1;
      await keepNew(inputs.slice(0, half));
      await keepNew(inputs.slice(half));
    }
  };
  const leak = (error: unknown) => {
    if (current) bad ??= { bytes: current, error };
  };
  process.on("unhandledRejection", leak);
  for (const sample of reader.samples()) await read(sample);
  coverage?.newPlaces(true);
  let size = BATCH.first;
  const isDue = () => numInputs < atLeast || performance.now() < until;
  while (numInputs < options.numInputs && isDue() && bad === undefined) {
    const since = performance.now();
    const inputs = Array.from({ length: Math.min(size, options.numInputs - numInputs) }, () => {
      // The newest ones are nearest to what was never reached.
      const recent = random.chance(0.3) ? Math.max(0, corpus.length - 20) : 0;
      const base = corpus[recent + random.below(corpus.length - recent)] ?? new Uint8Array();
      return mutate(random, reader.envelope, base, random.pick(corpus)).subarray(0, MAX_BYTES);
    });
    const numKnown = corpus.length;
    await keepNew(inputs);
    if (performance.now() - since > LONG_BATCH_MS) size = Math.max(size >> 1, BATCH.first);
    else if (corpus.length === numKnown) size = Math.min(2 * size, BATCH.most);
  }
  process.off("unhandledRejection", leak);
  coverage?.close();
  return {
    numInputs,
    numAccepted,
    numKept: corpus.length - numSamples,
    numCovered: coverage?.numCovered ?? 0,
    bad,
  };
}
