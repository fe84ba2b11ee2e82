import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Words that were given up, each with the one that stands for it now; docs/glossary.md has all of these. */
const givenUp: readonly (readonly [word: RegExp, instead: string])[] = [
  [/how manieth/i, "ordinal"],
  [/\b(a|no|be) whole numbers?\b|\bwhole numbers\b/i, "integer"],
  [/\bmust be a text\b|\blists? of texts\b/i, "a string, an array of strings"],
  [
    /\b(?<!here )is no (command|index|policy|data type|token|action|address|library|file|JSON)\b/,
    "is not a …",
  ],
  [/\bdevice \S+ is not there\b/, "no device N"],
  [/\bstart again so often\b/, "restart up to N times"],
  [/\bis none of this version\b/, "was written by another version"],
  [/\bgo other ways\b/, "have diverged"],
  [/\bfunctions? of the host\b/i, "host callback"],
  [/\b(dearOps|isKernelOfItsOwn)\b/, "expensiveOps, isSingletonKernel"],
  [/\bdear\b/i, "expensive"],
  [/\bunless it says otherwise\b/, "by default"],
  [/\bwho multiplies\b/i, "which implementation multiplies"],
  [/\bEASY(_[A-Z]+)?\b/, "RECLAIM_THRESHOLD"],
  [
    /\b(Parley|Attendance|Weather|Company|Seats)\b/i,
    "FailureReport, DesyncDetector, MachineLoad, ProcessGroup, DeviceLocations",
  ],
  [/\b(MOST_\w+|most[A-Z]\w+)/, "MAX_…, max…"],
  [/\b(a|of|exactly|every|below|up to) so many\b/i, "`count`, or this many"],
  [/\bis no (u?int|float|bool|complex)\d*\b/, "is not a valid …"],
  [/\bmust be gone\b/, "must not occur"],
  [/\bmay stand only\b/, "may appear only"],
  [/\bcode of one's own\b/, "generated code"],
  [/\b(another|other) \w+ than\b/, "a different … from, … other than"],
  [/\b(Parted|describeParting|findParting)\b/, "Diverged, describeDivergence, findDivergence"],
];

/** One sentence for each line of a text that has a word which was given up. */
function findGivenUp(path: string, text: string): string[] {
  return text.split("\n").flatMap((line, i) =>
    givenUp.flatMap(([word, instead]) => {
      const found = word.exec(line);
      return found === null ? [] : [`${path}:${i + 1}: "${found[0]}": write ${instead}`];
    }),
  );
}

function filesOf(folder: string, ending: string): string[] {
  const all = readdirSync(join(root, folder), { recursive: true, encoding: "utf8" });
  return all.filter((path) => path.endsWith(ending)).map((path) => join(folder, path));
}

describe("the words of sources and pages", () => {
  const pages = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"];
  // This file has them all.
  const tests = () => filesOf("test", ".ts").filter((path) => !path.endsWith("words.test.ts"));
  test.each([
    ["src", () => filesOf("src", ".ts")],
    ["test", tests],
    ["docs", () => filesOf("docs", ".md")],
    ["the first pages", () => pages],
  ])("have none that was given up in %s", (_, files) => {
    // The changelog names what was renamed, as code.
    const textOf = (path: string) => {
      const text = readFileSync(join(root, path), "utf8");
      return path === "CHANGELOG.md" ? text.replace(/`[^`\n]*`/g, "") : text;
    };
    const found = files().flatMap((path) => findGivenUp(path, textOf(path)));
    expect(found).toEqual([]);
  });

  test("are found with the line and what to write instead", () => {
    expect(findGivenUp("a.ts", "ok\n/** The how manieth run. */")).toEqual([
      'a.ts:2: "how manieth": write ordinal',
    ]);
    expect(findGivenUp("a.ts", "the whole number of weights")).toEqual([]);
  });
});

/** Names that several files may use for a type of their own, because readers meet each in its own namespace. */
const sharedNames: Readonly<Record<string, readonly string[]>> = {
  "tables of instructions, one for each instruction set": [
    ...["Condition", "Form", "InstructionName", "OperandKinds", "OperandsOf"],
  ],
  "options of functions that np, lax, scipy and optim have under one name": [
    ...["CholeskyOptions", "EighOptions", "ModeOptions", "QrOptions", "SolveTriangularOptions", "SvdOptions"],
    "TraceOptions",
  ],
  "public names of different entry points": ["Fields", "PipelineLoop", "Schema", "Stage"],
};

/** The exported types of all sources that several files declare, with these files. */
function typesOfOneName(sources: ReadonlyMap<string, string>): string[] {
  const files = new Map<string, Set<string>>();
  for (const [path, text] of sources) {
    for (const [, name = ""] of text.matchAll(/^export (?:abstract )?(?:interface|type|class) (\w+)/gm)) {
      files.set(name, (files.get(name) ?? new Set()).add(path));
    }
  }
  return [...files].flatMap(([name, found]) => (found.size < 2 ? [] : `${name}: ${[...found].join(", ")}`));
}

describe("the names of exported types", () => {
  test("belong to one type each, or say why not", () => {
    const paths = filesOf("src", ".ts").filter((path) => !/\.(test|browser)\.ts$/.test(path));
    const sources = new Map(paths.map((path) => [path, readFileSync(join(root, path), "utf8")]));
    const allowed = Object.values(sharedNames).flat();
    const shared = typesOfOneName(sources);
    expect(shared.filter((line) => !allowed.some((name) => line.startsWith(`${name}:`)))).toEqual([]);
    expect(allowed.filter((name) => !shared.some((line) => line.startsWith(`${name}:`)))).toEqual([]);
  });

  test("are reported with the files that share one", () => {
    const sources = new Map([
      ["a.ts", "export interface Place {}"],
      ["b.ts", "export type Place = number;"],
    ]);
    expect(typesOfOneName(sources)).toEqual(["Place: a.ts, b.ts"]);
  });
});

/** Names that several files may have, because each folder has its own of the same kind. */
const sharedFiles: Readonly<Record<string, readonly string[]>> = {
  "one for each engine": ["buffers", "engine", "executable", "worker", "workerCode"],
  "one for each instruction set": ["assembler", "instructions"],
  "one for each package of functions or set of errors": ["errors", "methods", "operands"],
  "the same family of functions in lax, np, scipy, random, an engine or the text of programs": [
    ...["attention", "bits", "collectives", "continuous", "contraction", "controlFlow", "decompositions"],
    ...["discrete", "elementwise", "fft", "gamma", "indexing", "linalg", "lineSearch", "movement", "ragged"],
    ...["reductions", "schur", "shaping", "sort", "sorting", "special", "windows"],
  ],
  "a thing as data below, and the function or class of it that users call": [
    ...["callback", "checkify", "mesh", "ops", "remat", "scan", "vmap"],
  ],
  "what a command is named after": ["generate", "plan", "trace"],
};

describe("the names of files", () => {
  test("belong to one file each, or say why not", () => {
    const names = filesOf("src", ".ts")
      .filter((path) => !/(\.(test|browser)|\bindex)\.ts$/.test(path))
      .map((path) => basename(path, ".ts"));
    const shared = new Set(names.filter((name, i) => names.indexOf(name) !== i));
    expect([...shared].sort()).toEqual(Object.values(sharedFiles).flat().sort());
  });
});
