/** The code of README and `docs/`: every block with its place, and the programs that TypeScript blocks make up. */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chapters, readText } from "./pages.js";

/** A fenced block of a page. */
export interface Block {
  /** The language after the fence; empty for output and drawings. */
  readonly language: string;
  readonly text: string;
  /** The line of its fence, counted from 1. */
  readonly line: number;
  /** Why it is not run, from a comment before it: `<!-- not run: needs a GPU -->`. */
  readonly notRun: string | undefined;
}

/** TypeScript that is run as one module. */
export interface PageProgram {
  /** The page by its path in the repository. */
  readonly page: string;
  readonly line: number;
  readonly code: string;
  /** The output that it promises: the comments after `console.log(…);`. */
  readonly prints: readonly string[];
}

/** The blocks of a page. */
export function blocksOf(page: string): Block[] {
  const text = readText(page);
  const fenced = /(?:<!-- not run: (.*?) -->\n)?^```(\w*)\n([\s\S]*?)^```$/gm;
  return [...text.matchAll(fenced)].map(({ 0: whole, 1: notRun, 2: language = "", 3: code = "", index }) => ({
    language,
    text: code,
    line: text.slice(0, index + whole.indexOf("```")).split("\n").length,
    notRun,
  }));
}

/** The programs of a page: a block that begins with an import begins one, others go on with the one before. */
export function programsOf(page: string): PageProgram[] {
  const programs: { line: number; code: string }[] = [];
  for (const { language, text, line, notRun } of blocksOf(page)) {
    if (language !== "ts" || notRun !== undefined) continue;
    const last = programs.at(-1);
    if (text.startsWith("import ") || !last) programs.push({ line, code: text });
    else last.code += `\n${text}`;
  }
  return programs.map(({ line, code }) => ({ page, line, code, prints: printsOf(code) }));
}

const printsOf = (code: string) =>
  [...code.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)].map(([, text = ""]) => text);

const tests = new URL("../../test/docs/", import.meta.url);
const folder = new URL("extracted/", tests);

/** README and all pages, by their paths in the repository. */
export const allPages: readonly string[] = [
  "README.md",
  "scripts/site/front.md",
  "CONTRIBUTING.md",
  ...chapters.flatMap((chapter) => chapter.pages.map((page) => `docs/${page}`)),
];

/** Pages that quote parts of files instead of programs; their tests compare them with those files. */
const quoting = new Set(["docs/architecture.md", "docs/compiler.md", "docs/engines.md"]);

/** The pages whose blocks make up complete programs, as a reader pastes them. */
export const completePages: readonly string[] = allPages.filter((page) => !quoting.has(page));

/**
 * The pages whose code is run as it is extracted. That of most others stands in a test of its own, which compares it
 * with the page word by word and looks at its results.
 */
export function runnablePages(): string[] {
  const sources = readdirSync(tests)
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => readFileSync(new URL(name, tests), "utf8"));
  const described = sources.flatMap((source) =>
    [...source.matchAll(/describePage\("(.*?)"/g)].map(([, page = ""]) =>
      page.replace(/^(?!\.\.\/)/, "docs/"),
    ),
  );
  // Readers paste the blocks of the guide one by one, so that each of them is also run as a file of its own.
  const elsewhere = new Set(described.map((page) => page.replace("../", "")));
  return completePages.filter((page) => page === "docs/guide.md" || !elsewhere.has(page));
}

/** Writes the programs of pages as files, which the type checker and the tests read; returns their paths. */
export function writePrograms(pages: readonly string[]): Map<PageProgram, string> {
  const paths = new Map<PageProgram, string>();
  mkdirSync(folder, { recursive: true });
  for (const program of pages.flatMap(programsOf)) {
    const name = `${program.page.replace(/\.md$/, "").replaceAll("/", "-")}-${program.line}.ts`;
    const path = fileURLToPath(new URL(name, folder));
    // Lines are counted as on the page, because errors name them.
    writeFileSync(path, `${program.code}${used(program.code)}// ${program.page}, line ${program.line}\n`);
    paths.set(program, path);
  }
  return paths;
}

/** Exports what a program declares, or imports if that is all it does, so that it does not count as unused. */
function used(code: string): string {
  const isImportsAlone = !/^(?!import |$)/m.test(code);
  const declared = isImportsAlone
    ? code.matchAll(/\* as (\w+)|\{([^}]*)\}/g)
    : code.matchAll(/^(?:const|let|function|class) (?:(\w+)|[[{]([^\]}]*)[\]}] =)/gm);
  const names = [...declared].flatMap(([, one, several = ""]) => (one ? [one] : several.split(",")));
  const list = names.map((name) => name.replace(/^.*:/, "").trim()).filter((name) => name !== "");
  return `export { ${[...new Set(list)].join(", ")} };\n`;
}

/** Removes what earlier versions of the pages left behind. */
export function removePrograms(): void {
  rmSync(folder, { recursive: true, force: true });
}
