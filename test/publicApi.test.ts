import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { describe, expect, test } from "vitest";
import { entryPoints } from "../scripts/site/pages.js";
import * as engines from "../src/engines/index.js";
import * as shardwise from "../src/index.js";
import * as nn from "../src/nn/index.js";
import * as optim from "../src/optim/index.js";
import * as parallel from "../src/parallel/index.js";
import * as random from "../src/random/index.js";
import * as train from "../src/train/index.js";

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const read = (path: string) => readFileSync(at(path), "utf8");

/** The entry points of the package: what each `import` loads, and where its names are listed. */
const entries: Readonly<Record<string, { readonly loaded: object; readonly source: string }>> = {
  ".": { loaded: shardwise, source: "src/index.ts" },
  "./nn": { loaded: nn, source: "src/nn/index.ts" },
  "./parallel": { loaded: parallel, source: "src/parallel/index.ts" },
  "./optim": { loaded: optim, source: "src/optim/index.ts" },
  "./engines": { loaded: engines, source: "src/engines/index.ts" },
  "./train": { loaded: train, source: "src/train/index.ts" },
  "./random": { loaded: random, source: "src/random/index.ts" },
};

/** The namespaces of functions, whose names are frozen like those of entry points. */
const namespaces: typeof entries = {
  np: { loaded: shardwise.np, source: "src/numpy/index.ts" },
  lax: { loaded: shardwise.lax, source: "src/lax/index.ts" },
  "scipy.integrate": { loaded: shardwise.scipy.integrate, source: "src/scipy/solvers/integrate.ts" },
  "scipy.linalg": { loaded: shardwise.scipy.linalg, source: "src/scipy/linalg/linalg.ts" },
  "scipy.ndimage": { loaded: shardwise.scipy.ndimage, source: "src/scipy/signal/ndimage.ts" },
  "scipy.signal": { loaded: shardwise.scipy.signal, source: "src/scipy/signal/signal.ts" },
  "scipy.special": { loaded: shardwise.scipy.special, source: "src/scipy/special/special.ts" },
  "scipy.stats": { loaded: shardwise.scipy.stats, source: "src/scipy/stats/stats.ts" },
};
const all = { ...entries, ...namespaces };

interface Names {
  readonly values: readonly string[];
  readonly types: readonly string[];
}

/** The names that a source exports: its own, those it lists, and all of the files that it exports whole. */
function exportsOf(source: string): Names {
  const [values, types]: [string[], string[]] = [[], []];
  const parsed = ts.createSourceFile(source, read(`../${source}`), ts.ScriptTarget.ES2023);
  for (const node of parsed.statements) {
    if (ts.isExportDeclaration(node)) {
      const clause = node.exportClause;
      if (!clause) {
        const file = (node.moduleSpecifier as ts.StringLiteral).text.replace(/\.js$/, ".ts");
        const whole = exportsOf(join(dirname(source), file));
        values.push(...whole.values);
        types.push(...whole.types);
        continue;
      }
      const names = ts.isNamespaceExport(clause) ? [clause] : clause.elements;
      for (const name of names) {
        const typeOnly = node.isTypeOnly || (ts.isExportSpecifier(name) && name.isTypeOnly);
        (typeOnly ? types : values).push(name.name.text);
      }
    } else if (ts.canHaveModifiers(node) && ts.getModifiers(node)?.some(isExport)) {
      const isType = ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node);
      (isType ? types : values).push(...declaredNames(node));
    }
  }
  // Overloads declare a name several times.
  return { values: [...new Set(values)].sort(), types: [...new Set(types)].sort() };
}

const isExport = ({ kind }: ts.ModifierLike) => kind === ts.SyntaxKind.ExportKeyword;

function declaredNames(node: ts.Node): string[] {
  const named: readonly ts.Node[] = ts.isVariableStatement(node) ? node.declarationList.declarations : [node];
  return named.flatMap((one) => {
    const { name } = one as ts.NamedDeclaration;
    return name && ts.isIdentifier(name) ? [name.text] : [];
  });
}

/**
 * The names of all entry points and namespaces and of tensors, frozen in a file: a new name is added there on purpose (`UPDATE=1` writes it), a
 * missing one breaks somebody's program.
 */
const frozenFile = "./publicApi.json";
const members = [shardwise.Tensor.prototype, shardwise.np.array(1)]
  .flatMap(Object.getOwnPropertyNames)
  .filter((name) => name !== "constructor");
const current: Readonly<Record<string, Names>> = {
  ...Object.fromEntries(Object.entries(all).map(([entry, { source }]) => [entry, exportsOf(source)])),
  Tensor: { values: members.sort(), types: [] },
};
if (process.env.UPDATE) writeFileSync(at(frozenFile), `${JSON.stringify(current, undefined, 2)}\n`);

test.each(Object.keys(current))("the names of %s are those that are frozen and no others", (entry) => {
  expect(current[entry]).toEqual(JSON.parse(read(frozenFile))[entry]);
});

test.each(Object.entries(all))("the names of %s are loaded as the source lists them", (entry, { loaded }) => {
  expect(Object.keys(loaded).sort()).toEqual(current[entry]?.values);
});

describe("the package", () => {
  const manifest = JSON.parse(read("../package.json"));

  test("has the same entry points in its exports and in its reference", () => {
    const folders = Object.keys(entries);
    expect(Object.keys(manifest.exports)).toEqual([...folders, "./package.json"]);
    for (const [entry, { source: listed }] of Object.entries(entries)) {
      // Entry points of floors below what runs programs load that as well, so that each works alone.
      const alone = `src/entries/${entry.slice(2)}.ts`;
      const source = existsSync(at(`../${alone}`)) ? alone : listed;
      const built = source.replace(/^src/, "./dist").replace(/\.ts$/, "");
      expect(manifest.exports[entry]).toMatchObject({ types: `${built}.d.ts`, default: `${built}.js` });
    }
    expect([...entryPoints].sort()).toEqual(
      Object.values(entries)
        .map(({ source }) => source)
        .sort(),
    );
  });

  test("is packed from sources and what is built of them, without tests", () => {
    expect(manifest.files).toEqual([
      "dist",
      "src",
      "!**/*.test.ts",
      "docs",
      "examples",
      "texts",
      "CHANGELOG.md",
    ]);
    const built = ts.readConfigFile(at("../tsconfig.build.json"), (path) =>
      readFileSync(path, "utf8"),
    ).config;
    const { fileNames } = ts.parseJsonConfigFileContent(built, ts.sys, at(".."));
    const outside = fileNames.filter((path) => !path.includes("/src/") || path.endsWith(".test.ts"));
    expect(fileNames.length).toBeGreaterThan(200);
    expect(outside).toEqual([]);
  });
});
