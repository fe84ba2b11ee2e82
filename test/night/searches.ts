/** A command of package.json that looks for failures by seed. */
export interface Search {
  readonly name: string;
  /** Its arguments after `npm run`. */
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** The first and the last of the seeds that it tries, if it has any. */
  readonly seeds?: Span;
}

export type Span = readonly [first: number, last: number];

/** Two cores take about so long for a turn. */
export const TURN_MINUTES = 60;

/**
 * What is searched in a turn; every turn has seeds of its own.
 *
 * @param engines those that programs are compared on
 * @param size a night that is shorter than a turn takes so much less of everything
 */
export function searches(turn: number, engines: readonly string[], size = 1): Search[] {
  const sized = (count: number) => Math.max(1, Math.ceil(count * size));
  const from = (count: number) => (turn - 1) * count + 1;
  const span = (count: number): Span => [from(count), from(count) + count - 1];
  const compared = engines.map((engine): Search => {
    const count = sized(engine === "threads" || engine === "inline" ? 400 : 60);
    const options = ["--engine", engine, "--seed", String(from(count)), "--programs", String(count)];
    return {
      name: `random programs on ${engine}`,
      command: ["compare", "--", ...options],
      env: {},
      seeds: span(count),
    };
  });
  const fuzzer = (
    name: string,
    command: string,
    variable: string,
    count: number,
    numSeeds = sized(count),
  ): Search => ({
    name,
    command: [command],
    env: { [variable]: String(sized(count)), SEED: String(from(numSeeds)) },
    seeds: span(numSeeds),
  });
  const explorer = (name: string, command: string, most: number, ...more: readonly string[]): Search => {
    const count = sized(most);
    return {
      name,
      command: [command, "--", "--from", String(from(count)), "--seeds", String(count), ...more],
      env: {},
      seeds: span(count),
    };
  };
  return [
    ...compared,
    explorer("schedules of threads", "explore", 100, "--seconds", turn === 1 ? String(sized(60)) : "0"),
    explorer("simulated clusters", "explore:cluster", 25),
    explorer("simulated key-value stores", "explore:store", 500),
    explorer("simulated pages with one worker", "explore:oneThread", 500),
    explorer("texts and compilers in any order", "explore:turns", 5000),
    {
      name: "memory order of threads",
      command: ["litmus", "--", "--seconds", String(2 * size)],
      env: {},
    },
    fuzzer("compiled programs", "fuzz", "FUZZ_PROGRAMS", 400),
    fuzzer("kernels", "fuzz:kernels", "FUZZ_KERNELS", 1000),
    fuzzer("attention", "fuzz:attention", "FUZZ_ATTENTION", 60, 1),
    fuzzer("products", "fuzz:products", "FUZZ_PRODUCTS", 60, 1),
    fuzzer("partitioned programs", "fuzz:partition", "RUNS", 100, 1),
    fuzzer("every exported function, called with anything", "fuzz:surface", "SURFACE_CALLS", 20, 1),
    {
      name: "changed files and messages",
      command: ["fuzz:readers", "--", "--inputs", String(sized(300_000)), "--seed", String(turn)],
      env: {},
      seeds: [turn, turn],
    },
  ];
}

/** The numbers of things that a search says it has tried, added up. */
export function countsIn(text: string): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const [, number = "", what = ""] of text.matchAll(
    /(?<![\d.])(\d[\d,]*) (programs|schedules|states|inputs|iterations)\b/g,
  )) {
    counts[what] = (counts[what] ?? 0) + Number(number.replaceAll(",", ""));
  }
  // A search of readers that was interrupted has said what each of them was given, and no sum.
  const tried = [...text.matchAll(/: ([\d,]+) tried at /g)].map(([, number = ""]) =>
    number.replaceAll(",", ""),
  );
  if (tried.length > 0) counts.inputs ??= tried.reduce((sum, number) => sum + Number(number), 0);
  const [, passed, failed] = /^(\d+) passed, (\d+) failed$/m.exec(text) ?? [];
  if (passed !== undefined) counts.tests = Number(passed) + Number(failed);
  return counts;
}

/** What a search says of its coverage. */
export function coverageIn(text: string): string {
  return /^coverage: (.*)$/m.exec(text)?.[1] ?? "";
}

/** The command line that repeats a search. */
export function commandLine({ command, env }: Pick<Search, "command" | "env">): string {
  const settings = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  return [...settings, "npm", "run", ...command].join(" ");
}
