/**
 * Keeps the code of a page of `docs/` true: every block of code stands in a test that runs it, and every block of
 * output is what the code prints.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const flush = (text: string) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")
    .join("\n");

// A page is checked to import what it uses by the types of its extracted programs.
const withoutImports = (text: string) => text.replace(/^import [^;]*;$\n?/gm, "");

/** What a page shows as printed, by the names in the comments before the blocks: `<!-- printed: cost -->`. */
export type Printed = Readonly<Record<string, () => string>>;

/**
 * Compares a page with the test that runs its code; `UPDATE=1` writes what is printed into the page.
 *
 * @param page the path below `docs/`
 * @param testUrl the test's `import.meta.url`
 */
export function describePage(page: string, testUrl: string, printed: Printed): void {
  const path = fileURLToPath(new URL(`../../docs/${page}`, import.meta.url));
  const block = (name: string) => new RegExp(`(<!-- printed: ${name} -->\n\`\`\`\n)([^\`]*)(\`\`\`)`);
  const read = () => readFileSync(path, "utf8");

  describe(`docs/${page}`, () => {
    test("shows only code that this test runs", () => {
      const code = [...read().matchAll(/```ts\n([^`]*)```/g)].map(([, text = ""]) => flush(text));
      expect(code.length).toBeGreaterThan(0);
      const source = flush(readFileSync(fileURLToPath(testUrl), "utf8"));
      for (const text of code) expect(withoutImports(source)).toContain(withoutImports(text));
    });

    test.each(Object.keys(printed))("shows %s as it is printed", (name) => {
      const text = printed[name]?.() ?? "";
      if (process.env.UPDATE) writeFileSync(path, read().replace(block(name), `$1${text}\n$3`));
      else expect(block(name).exec(read())?.[2]?.trimEnd()).toBe(text);
    });

    test("shows nothing as printed that is not checked", () => {
      const shown = [...read().matchAll(/<!-- printed: (\w+) -->/g)].map(([, name]) => name);
      expect(shown).toEqual(Object.keys(printed));
    });
  });
}
