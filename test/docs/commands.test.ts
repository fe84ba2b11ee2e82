/** Commands on the pages are not run, for they train models: their words are read as the programs read them. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { readRunConfig } from "shardwise/train";
import { expect, test } from "vitest";
import { readText } from "../../scripts/site/pages.js";
import { allPages, blocksOf } from "../../scripts/site/programs.js";
import { argumentsOf } from "../../src/cli/runArguments.js";
import { commands } from "../../src/cli/runCommand.js";

const root = fileURLToPath(new URL("../../", import.meta.url));
const { scripts } = JSON.parse(readText("package.json")) as { scripts: Record<string, string> };

const linesOf = allPages.flatMap((page) =>
  blocksOf(page)
    .filter(({ language }) => language === "sh")
    .flatMap(({ text, line }) =>
      text
        .replaceAll(/\\\n\s*/g, "")
        .split("\n")
        .flatMap((command) => command.replace(/(^|\s)#.*/, "").split("&&"))
        .map((command) => command.trim())
        .filter((command) => command !== "")
        .map((command) => [`${page}:${line}`, command] as const),
    ),
);

/** The words of a command, of which quoted ones may have blanks. */
const wordsOf = (command: string) =>
  [...command.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain = ""]) => quoted ?? plain);

/** Launchers and their settings before the program that they start. */
const isLauncher = /^(mpirun|srun|nsys|npx|[A-Z_]+=\S+)$/;

function checkShardwise([name = "", ...rest]: readonly string[]): void {
  if (/^[<[]|^help$/.test(name)) return;
  const command = commands.find((one) => one.name === name);
  if (!command) throw new Error(`unknown command ${name}`);
  const { settings } = argumentsOf(rest, command);
  const isAboutValue = (problem: string) => settings.some(({ path }) => problem.startsWith(`${path} is "`));
  expect(readRunConfig({}, settings).violations.filter(isAboutValue)).toEqual([]);
}

function check(command: string): void {
  // Without settings, and without the file that takes the output.
  const words = wordsOf(command.replace(/ > \S+$/, "")).filter((word) => !/^[A-Z_]+=/.test(word));
  const start = words.findIndex(
    (word) => /^(shardwise|npm|node|pip|npx|bun|deno|dist\/)/.test(word) && !isLauncher.test(word),
  );
  const [program, ...args] = words.slice(Math.max(start, 0));
  if (program === "shardwise") checkShardwise(args);
  else if (program === "npm" && args[0] === "run") expect(Object.keys(scripts)).toContain(args[1]);
  else if (program === "npm")
    expect(["ci", "create", "test", "start", "install", "init", "pkg"]).toContain(args[0]);
  else
    expect([
      "curl",
      "export",
      "node",
      "pip",
      "npx",
      "mpirun",
      "srun",
      "bun",
      "deno",
      "dist/main",
      "examples/elastic.sh",
    ]).toContain(program);
  for (const word of args) {
    if (/^(test|examples|scripts|bench)\/\S+\.ts$/.test(word))
      expect(existsSync(root + word), word).toBe(true);
  }
}

test.each(linesOf)("%s: %s", (_, command) => check(command));

test("configurations on the pages are right", () => {
  const found = allPages.flatMap((page) => blocksOf(page).filter(({ language }) => language === "json"));
  expect(found.length).toBeGreaterThan(0);
  for (const { text } of found) {
    const json: unknown = JSON.parse(text);
    if (!text.includes("compilerOptions")) expect(readRunConfig(json).violations).toEqual([]);
  }
});
