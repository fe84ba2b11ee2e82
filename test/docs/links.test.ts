import { existsSync, readdirSync, statSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { chapters, readText, titleOf } from "../../scripts/site/pages.js";

const root = fileURLToPath(new URL("../../", import.meta.url));
const written = readdirSync(`${root}docs`, { recursive: true, encoding: "utf8" })
  .filter((path) => path.endsWith(".md"))
  .map((path) => path.replaceAll("\\", "/"));
const pages = [
  "README.md",
  "scripts/site/front.md",
  "CONTRIBUTING.md",
  "CHANGELOG.md",
  ...written.map((path) => `docs/${path}`),
];

const withoutCode = (text: string) => text.replace(/^```[\s\S]*?^```$/gm, "").replace(/`[^`\n]*`/g, "");

/** The anchors that GitHub and the site give to a page's headings. */
function anchorsOf(page: string): Set<string> {
  const headings = [...readText(page).matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => heading);
  return new Set(
    headings.map((heading) =>
      heading
        .toLowerCase()
        .replace(/[^\p{L}\p{N} _-]/gu, "")
        .replaceAll(" ", "-"),
    ),
  );
}

describe("the pages", () => {
  test.each(pages)("%s leads to files and headings that exist", (page) => {
    const targets = [...withoutCode(readText(page)).matchAll(/\]\(([^)\s]+)\)/g)].map(([, to = ""]) => to);
    const lost = targets.filter((target) => {
      if (/^https?:/.test(target)) return false;
      const [path = "", anchor] = target.split("#");
      // The front page is built at the root.
      const file =
        path === ""
          ? page
          : normalize(join(page === "scripts/site/front.md" ? "." : dirname(page), path)).replaceAll(
              "\\",
              "/",
            );
      if (!existsSync(root + file)) return true;
      if (anchor === undefined) return false;
      return statSync(root + file).isDirectory() || !anchorsOf(file).has(anchor);
    });
    expect(lost).toEqual([]);
  });

  test("are all in the site, each under one title of its own, and in the README", () => {
    const listed = chapters.flatMap((chapter) => chapter.pages);
    expect([...listed].sort()).toEqual([...written].sort());
    const titles = listed.map((page) => titleOf(readText(`docs/${page}`)));
    expect(new Set(titles).size).toBe(titles.length);
    expect(titles).not.toContain("");
    const readme = readText("README.md");
    expect(listed.filter((page) => !readme.includes(`(docs/${page})`))).toEqual([]);
  });
});
