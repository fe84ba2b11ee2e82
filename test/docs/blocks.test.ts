import { formatWithOptions } from "node:util";
import { describe, expect, test, vi } from "vitest";
import { allPages, blocksOf, runnablePages, writePrograms } from "../../scripts/site/programs.js";

const programs = [...writePrograms(runnablePages())];

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
      const said = new Set(program.prints);
      expect(
        printed.filter((line) => said.has(line)),
        printed.join("\n"),
      ).toEqual(program.prints);
    },
  );

  test("is run, or says why it is not", () => {
    const known = new Set(["", "ts", "sh", "json", "text", "python", "yaml"]);
    for (const page of allPages) {
      for (const { language, line, notRun } of blocksOf(page)) {
        expect(known, `${page}:${line}`).toContain(language);
        if (language === "python" || language === "yaml") expect(notRun, `${page}:${line}`).toBeDefined();
        if (notRun !== undefined) expect(notRun.length, `${page}:${line}`).toBeGreaterThan(10);
      }
    }
  });
});
