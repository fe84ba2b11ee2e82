import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { formatHelp, formatTable, purposes } from "../../scripts/commandList.js";
import { readText } from "../../scripts/site/pages.js";

describe("the list of scripts", () => {
  const listed = purposes.flatMap(({ scripts }) => Object.keys(scripts));

  test("has every script of package.json once, and no others", () => {
    const { scripts } = JSON.parse(readText("package.json")) as { scripts: Record<string, string> };
    expect([...listed].sort()).toEqual(Object.keys(scripts).sort());
  });

  test("is printed with one line for each script that fits a terminal", () => {
    const lines = formatHelp().split("\n");
    expect(lines.filter((line) => line.startsWith("  npm "))).toHaveLength(listed.length);
    expect(lines.filter((line) => line.length > 120)).toEqual([]);
  });

  // UPDATE=1 writes the table anew.
  test("is the table in CONTRIBUTING.md", () => {
    const page = readText("CONTRIBUTING.md");
    const marked = /(?<=<!-- scripts\/commandList\.ts -->\n\n)[\s\S]*?(?=\n\n<!-- end -->)/;
    const fresh = page.replace(marked, formatTable());
    if (process.env.UPDATE) {
      writeFileSync(fileURLToPath(new URL("../../CONTRIBUTING.md", import.meta.url)), fresh);
    }
    expect(page).toMatch(marked);
    expect(readText("CONTRIBUTING.md")).toBe(fresh);
  });
});
