import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { at } from "../src/ir/shape.js";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Everything that is shipped, and the tables of cases that the tests of all ops run through. */
const sources = [
  ...readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts"))
    .map((path) => join(root, "src", path)),
  join(root, "test/support/opCases.ts"),
  join(root, "test/conformance/engine/opCases.ts"),
];

/** The text of a file with rows added where a table begins. */
function withRows(path: string, tableStart: string, rows: readonly string[]): [string, string] {
  const file = resolve(root, path);
  const parts = readFileSync(file, "utf8").split(tableStart);
  expect(parts.length, `"${tableStart}" must stand once in ${path}`).toBe(2);
  return [file, [`${at(parts, 0)}${tableStart}`, ...rows, at(parts, 1)].join("\n")];
}

/** The files in which the type checker finds something wrong when some of them have another text. */
function filesWithErrors(changes: ReadonlyMap<string, string>): string[] {
  const copy = realpathSync(mkdtempSync(join(tmpdir(), "shardwise-add-an-op-")));
  try {
    for (const folder of ["src", "test/support", "test/conformance"])
      cpSync(join(root, folder), join(copy, folder), { recursive: true, filter: isSource });
    copyFileSync(join(root, "package.json"), join(copy, "package.json"));
    symlinkSync(join(root, "node_modules"), join(copy, "node_modules"), "junction");
    for (const [path, text] of changes) writeFileSync(join(copy, relative(root, path)), text);
    const project = {
      extends: join(root, "tsconfig.json"),
      compilerOptions: { rootDir: copy, paths: {}, incremental: false },
      files: sources.map((path) => relative(root, path)),
      include: [],
    };
    writeFileSync(join(copy, "tsconfig.json"), JSON.stringify(project));
    const checker = [join(root, "node_modules/typescript7/bin/tsc"), "--noEmit", "--pretty", "false"];
    const { stdout } = spawnSync(process.execPath, checker, { cwd: copy, encoding: "utf8" });
    const files = [...stdout.matchAll(/^(\S.*)\(\d+,\d+\): error /gm)].map((match) => match[1] ?? "");
    return [...new Set(files)].sort();
  } finally {
    rmSync(copy, { recursive: true });
  }
}

/** Whether a file or a folder belongs to what is checked. */
function isSource(path: string): boolean {
  return !/\.\w+$/.test(path) || (path.endsWith(".ts") && !path.endsWith(".test.ts"));
}

test("the type checker names every place where new ops are missing, and docs/add-an-op.md lists them", () => {
  // One op is nowhere but in the catalogue; of the others as much is known as it takes to ask for the rest.
  const changes = new Map([
    withRows("src/ir/ops.ts", "export interface OpParams {", [
      "toy: None;",
      "toyElementwise: None;",
      "toyView: None;",
      "toyControl: { readonly body: Program };",
      "toyCollective: Collective;",
    ]),
    withRows("src/ir/opFacts.ts", "export const opFacts = {", [
      'toyElementwise: { ...unary, on: "number", price: "short" },',
      "toyView: movement,",
      "toyControl: control,",
      "toyCollective: { ...collective, sends: toOne },",
    ]),
    withRows("src/compiler/lowering.ts", "export const lowerings = {", [
      'toyElementwise: "fused",',
      'toyView: "view",',
      'toyControl: "control",',
      'toyCollective: "collective",',
    ]),
  ]);
  const page = readFileSync(join(root, "docs/add-an-op.md"), "utf8");
  const listed = [...page.matchAll(/`((?:src|test)\/[\w./]+\.ts)`/g)].map((match) => match[1] ?? "");
  const places = [...new Set(listed)].filter((path) => path !== "src/ir/ops.ts").sort();
  expect(filesWithErrors(changes)).toEqual(places);
}, 300_000);
