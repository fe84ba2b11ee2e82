import { readdirSync, readFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { at } from "../src/ir/shape.js";
import { checkedProgram } from "./support/sourceFiles.js";

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

/** What files that know of ops or of equations mention; all others cannot tell one op from another. */
const ofOps = /\b([A-Za-z]*Ops?|Op[A-Z][A-Za-z]*|Eqns?|opFacts|lowerings?)\b/;

/** The files in which the type checker finds something wrong when some of them have another text. */
function filesWithErrors(changes: ReadonlyMap<string, string>): string[] {
  const asked = sources.filter((path) => ofOps.test(changes.get(path) ?? readFileSync(path, "utf8")));
  const program = checkedProgram(asked, changes);
  const diagnostics = asked.flatMap((path) => program.getSemanticDiagnostics(program.getSourceFile(path)));
  return [...new Set(diagnostics.map(({ file }) => relative(root, file?.fileName ?? "?")))].sort();
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
