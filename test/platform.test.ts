/** Node and browsers differ in one room, and in pairs of files `x.ts` (Node) and `x.browser.ts`; nothing else names either. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { describe, expect, test } from "vitest";

/** Rooms and files that only Node loads, each with the reason. */
const nodeOnly: Readonly<Record<string, string>> = {
  "src/cli/": "the command line",
  "src/engines/mpi/": "MPI joins processes",
  "src/engines/xla/": "XLA is a library of the system",
  "src/engines/system/": "what the system is asked for beyond JavaScript; pages have their own versions",
  "src/engines/kernels/kernelTest.ts": "tests machine code",
  "src/engines/products/blasCore.ts": "a BLAS library",
  "src/train/": "runs are folders of files",
};

/** Global names that only one of them has. */
const globals = new Set([
  ...["process", "Buffer", "setImmediate", "__dirname", "require"],
  ...["navigator", "document", "window", "self", "location", "localStorage", "indexedDB"],
]);

const mayMatter = new RegExp(`node:|\\b(${[...globals].join("|")})\\b`);

/** What a source names of Node or of browsers. */
function findNames(path: string, text: string): string[] {
  if (!mayMatter.test(text)) return [];
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.ES2023);
  const declared = new Set<string>();
  const found = new Set<string>();
  const visit = (node: ts.Node): void => {
    // Types are erased.
    if (ts.isTypeNode(node) || ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) return;
    const named = node as { readonly name?: ts.Node };
    if (ts.isPropertyAccessExpression(node)) {
      visit(node.expression);
      return;
    }
    // `{ window: [before, after] }` names a property.
    if (ts.isBindingElement(node) && node.propertyName) {
      ts.forEachChild(node, (child) => child !== node.propertyName && visit(child));
      return;
    }
    if (named.name && ts.isIdentifier(named.name)) declared.add(named.name.text);
    if (ts.isIdentifier(node) && globals.has(node.text)) found.add(node.text);
    ts.forEachChild(node, visit);
  };
  visit(source);
  const modules = ts.preProcessFile(text).importedFiles.map(({ fileName }) => fileName);
  return [...found]
    .filter((name) => !declared.has(name))
    .concat(modules.filter((name) => name.startsWith("node:")))
    .sort();
}

const root = fileURLToPath(new URL("../", import.meta.url));
const paths = readdirSync(`${root}src`, { recursive: true, encoding: "utf8" })
  .map((path) => `src/${path.replaceAll("\\", "/")}`)
  .filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts"))
  .sort();
const hasPage = (path: string) => existsSync(root + path.replace(/\.ts$/, ".browser.ts"));

describe("the sources outside of the platform", () => {
  const isChecked = (path: string) =>
    !path.startsWith("src/platform/") &&
    !path.endsWith(".browser.ts") &&
    !hasPage(path) &&
    !Object.keys(nodeOnly).some((prefix) => path.startsWith(prefix));

  test("name neither Node's modules nor what only browsers have", () => {
    const violations = paths.filter(isChecked).flatMap((path) => {
      const names = findNames(path, readFileSync(root + path, "utf8"));
      return names.length === 0 ? [] : [`${path} names ${names.join(", ")}`];
    });
    expect(violations).toEqual([]);
  });

  test("reach files of which there are two only by the name that means the right one", () => {
    // Pages load a part of `src/train/`, too.
    const reaches = (path: string) =>
      isChecked(path) || (path.startsWith("src/train/") && !path.endsWith(".browser.ts") && !hasPage(path));
    const violations = paths.filter(reaches).flatMap((path) => {
      const { importedFiles } = ts.preProcessFile(readFileSync(root + path, "utf8"));
      const wrong = importedFiles
        .map(({ fileName }) => fileName)
        .filter(
          (name) =>
            name.startsWith(".") &&
            hasPage(new URL(name.replace(/\.js$/, ".ts"), `file:///${path}`).pathname.slice(1)),
        );
      return wrong.filter((name) => !importsTypesOnly(path, name)).map((name) => `${path} imports "${name}"`);
    });
    expect(violations).toEqual([]);
  });

  test("have a version for Node of everything that they have for browsers", () => {
    const alone = paths
      .filter((path) => path.endsWith(".browser.ts"))
      .filter((path) => !existsSync(root + path.replace(".browser.ts", ".ts")));
    expect(alone).toEqual([]);
  });
});

/** Whether all imports of a module are erased. */
function importsTypesOnly(path: string, name: string): boolean {
  const source = ts.createSourceFile(path, readFileSync(root + path, "utf8"), ts.ScriptTarget.ES2023);
  return source.statements.every((statement) => {
    if (!ts.isImportDeclaration(statement) && !ts.isExportDeclaration(statement)) return true;
    const { moduleSpecifier } = statement;
    if (!moduleSpecifier || !ts.isStringLiteral(moduleSpecifier) || moduleSpecifier.text !== name)
      return true;
    return ts.isExportDeclaration(statement)
      ? statement.isTypeOnly
      : statement.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword;
  });
}

describe("the check of names", () => {
  test("sees globals and modules, and leaves properties, types and local names alone", () => {
    const names = (text: string) => findNames("src/ir/a.ts", text);
    expect(names('import { x } from "node:fs"; process.env.A; navigator.gpu;')).toEqual([
      "navigator",
      "node:fs",
      "process",
    ]);
    expect(
      names("const f = ({ process }) => process.pid; a.process; const b = { self: 1 }; type C = Document;"),
    ).toEqual([]);
    expect(names('const isOwn = line.includes("node:");')).toEqual([]);
  });
});
