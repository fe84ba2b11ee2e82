import { formatWithOptions } from "node:util";
import { describe, expect, test, vi } from "vitest";
import {
  allPages,
  blocksOf,
  completePages,
  runnablePages,
  writePrograms,
} from "../../scripts/site/programs.js";

const programs = [...writePrograms(runnablePages())];

/** A line without the name of the file that it mentions, which is the reader's own. */
const withoutFile = (line: string) => line.replace(/\([^\s()]+\.ts:(\d+:\d+)\)/, "(file.ts:$1)");

describe("the code of the pages", () => {
  test.each(programs.map(([program, path]) => [`${program.page}:${program.line}`, program, path] as const))(
    "%s runs and prints what it says",
    async (_, program, path) => {
      const printed: string[] = [];
      const log = vi.spyOn(console, "log").mockImplementation((...values) => {
        printed.push(
          formatWithOptions({ colors: false, compact: 3, breakLength: Number.POSITIVE_INFINITY }, ...values),
        );
      });
      try {
        await import(path);
      } finally {
        log.mockRestore();
      }
      // What is printed without saying so is not compared.
      const said = program.prints.map(withoutFile);
      expect(
        printed.map(withoutFile).filter((line) => said.includes(line)),
        printed.join("\n"),
      ).toEqual(said);
    },
  );

  test("imports what it uses, from the first block of each page and in every block of the guide", () => {
    const incomplete = completePages.flatMap((page) => {
      const blocks = blocksOf(page).filter(
        ({ language, notRun }) => language === "ts" && notRun === undefined,
      );
      const alone = page === "docs/guide.md" ? blocks : blocks.slice(0, 1);
      return alone.filter(({ text }) => !text.startsWith("import ")).map(({ line }) => `${page}:${line}`);
    });
    expect(incomplete).toEqual([]);
  });

  test("is not cut off on the front page", () => {
    const lines = blocksOf("scripts/site/front.md").flatMap(({ text }) => text.split("\n"));
    // scripts/site/style.css has room for so many characters, on a screen of 1280 pixels and on a phone.
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(48);
  });

  test("is run, or says why it is not", () => {
    const known = new Set(["", "ts", "sh", "json", "text", "python", "yaml", "js", "html"]);
    for (const page of allPages) {
      for (const { language, line, notRun } of blocksOf(page)) {
        expect(known, `${page}:${line}`).toContain(language);
        if (language === "python" || language === "yaml") expect(notRun, `${page}:${line}`).toBeDefined();
        if (notRun !== undefined) expect(notRun.length, `${page}:${line}`).toBeGreaterThan(10);
      }
    }
  });
});
