import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
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
  test.each([
    ["src", ".ts"],
    ["docs", ".md"],
  ])("have none that was given up in %s", (folder, ending) => {
    const found = filesOf(folder, ending).flatMap((path) =>
      findGivenUp(path, readFileSync(join(root, path), "utf8")),
    );
    expect(found).toEqual([]);
  });

  test("are found with the line and what to write instead", () => {
    expect(findGivenUp("a.ts", "ok\n/** The how manieth run. */")).toEqual([
      'a.ts:2: "how manieth": write ordinal',
    ]);
    expect(findGivenUp("a.ts", "the whole number of weights")).toEqual([]);
  });
});
