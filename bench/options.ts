/** The command line: names of benchmarks, and options with one value each. */

const words = process.argv.slice(2);

/** The options that benchmarks know, with what they mean. */
const known = {
  json: "a file that gets the tables as JSON",
  devices:
    "how many devices, such as 1,2,8,16 (lm, profile, collectives, context, moe, checkpoint, growth), or stages (bubbles)",
  dtype: "what is multiplied: float32, or bfloat16 beside it (matmul, generate)",
  engine:
    "what computes: threads (lm, dispatch), mpi for several processes (lm, collectives), xla for GPUs (lm, dispatch, generate, checkpoint), or webgpu (lm)",
  processes: "how many processes of one device each; 2 by default (lm and collectives with --engine mpi)",
  sizes:
    "which models, such as d32,d256,d512,d1024, or 103M,350M,1.3B on GPUs (lm, profile), or 25M,130M,1B (generate); KiB of tensors, such as 64,1024 (collectives with --engine mpi), or GB, such as 2,4 (checkpoint)",
  parallel: "which kinds of parallelism, such as data,fsdp,tensor,async,gpipe,circular (lm)",
  parts:
    "which parts: products, kernels, decoder, others, otherDecoders (webgpu); isolated, plain, pauses (browser)",
  precision:
    "the factors of products with weights: float32, or bfloat16 beside it (lm, profile); bfloat16, or float8 beside it (lm on GPUs)",
  remat: "what the way back does not compute again: full, named, dots, factors or none (lm on GPUs)",
  lengths: "how many tokens, such as 256,8192 (attention, context)",
  seconds: "how many seconds a step is repeated, but at least twice; 6 by default (lm)",
  threads: "how many threads share the steps of a device, such as 1,16 (lm, attention)",
} as const;

/** The name of an option. */
export type OptionName = keyof typeof known;

/** The arguments that are not options. */
export function benchmarkNames(): string[] {
  return words.filter((word, i) => !word.startsWith("--") && !words[i - 1]?.startsWith("--"));
}

/** The value of an option, if it is given. */
export function option(name: OptionName): string | undefined {
  const place = words.indexOf(`--${name}`);
  return place < 0 ? undefined : words[place + 1];
}

/** The parts of an option's value, or a default. */
export function listOption<T extends string>(
  name: OptionName,
  otherwise: readonly T[],
  all: readonly T[],
): T[] {
  const given = option(name)?.split(",") ?? otherwise;
  return given.map((value) => {
    const found = all.find((one) => one === value);
    if (found === undefined) fail(`--${name} ${value}: choose from ${all.join(", ")}`);
    return found;
  });
}

/** The positive number that is an option's value, or a default. */
export function numberOption(name: OptionName, otherwise: number): number {
  const value = Number(option(name) ?? otherwise);
  if (!(value > 0)) fail(`--${name} ${option(name)}: use a number above 0`);
  return value;
}

/** The integers of an option's value, or a default. */
export function countsOption(name: OptionName, otherwise: readonly number[]): number[] {
  const given = option(name)?.split(",").map(Number) ?? otherwise;
  return given.map((value) => {
    if (!Number.isInteger(value) || value < 1) fail(`--${name} ${value}: use integers from 1`);
    return value;
  });
}

/** Ends with a message when an option is not known or has no value. */
export function checkOptions(): void {
  words.forEach((word, i) => {
    if (!word.startsWith("--")) return;
    const lines = Object.entries(known).map(([name, what]) => `  --${name}  ${what}`);
    if (!(word.slice(2) in known)) fail(`unknown option ${word}; there are\n${lines.join("\n")}`);
    if (words[i + 1] === undefined || words[i + 1]?.startsWith("--")) fail(`${word} needs a value`);
  });
}

function fail(text: string): never {
  console.error(text);
  process.exit(2);
}
