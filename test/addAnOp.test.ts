import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { opsOf } from "../src/ir/opFacts.js";
import * as lax from "../src/lax/index.js";
import * as trace from "../src/trace/ops.js";
import { Overlay } from "./support/overlay.js";
import { unaryPoints } from "./support/unaryOps.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const page = readFileSync(join(root, "docs/add-an-op.md"), "utf8");

/** The paths that a part of the page names. */
const pathsIn = (text: string): string[] =>
  [
    ...new Set([...text.matchAll(/`((?:src|test)\/[\w./]+\.(?:ts|json))`/g)].map(([, path]) => path ?? "")),
  ].sort();

/** A part of the page, from its heading to the next. */
const partOf = (heading: string): string =>
  page.split(/^## /m).find((part) => part.startsWith(heading)) ?? "";

/** The first column of the tables in a part of the page. */
const filesOf = (part: string): string =>
  part
    .split("\n")
    .flatMap((line) => (line.startsWith("| `") ? [line.split(" | ")[0] ?? ""] : []))
    .join("\n");

/** Rows that are added behind a line which stands once in a file. */
const withRows = (line: string, rows: readonly string[]) => (text: string) => {
  const parts = text.split(`${line}\n`);
  expect(parts.length, `"${line}" must stand once`).toBe(2);
  return parts.join([line, ...rows, ""].join("\n"));
};

const run = (folder: string, ...args: readonly string[]) => {
  // One worker loads the sources once; others would only do the same beside it.
  const env = { ...process.env, VITEST_MAX_WORKERS: "1" };
  const { stdout, stderr } = spawnSync(process.execPath, args, { cwd: folder, encoding: "utf8", env });
  return `${stdout}${stderr}`;
};

/**
 * What the type checker says of a copy of the repository: of the library, and of the tests and tools that import the
 * catalogue of ops, because others cannot lack an op.
 */
const complaintsIn = ({ folder }: Overlay): string => {
  const importing = ["src", "test", "examples", "scripts", "bench"].flatMap((name) =>
    readdirSync(join(folder, name), { recursive: true, encoding: "utf8" })
      .map((path) => `${name}/${path.replaceAll(sep, "/")}`)
      .filter((path) => path.endsWith(".ts") && isAboutOps(join(folder, path))),
  );
  const include = ["src/index.ts", "src/*/index.ts", ...importing];
  writeFileSync(join(folder, "tsconfig.ops.json"), JSON.stringify({ extends: "./tsconfig.json", include }));
  // Several threads together take twice the time, because each of them works out the types it meets.
  const options = ["-p", "tsconfig.ops.json", "--noEmit", "--pretty", "false", "--singleThreaded"];
  return run(folder, "node_modules/typescript7/bin/tsc", ...options);
};

const isAboutOps = (path: string) => /\/(ops|opFacts)\.js"/.test(readFileSync(path, "utf8"));

const formatNumber = (x: number) => (Object.is(x, -0) ? "-0" : String(x));

/** A function of each element, in the files of the page: the tangent, which is no op. */
const tangent = new Map<string, (text: string) => string>([
  ["src/ir/ops.ts", withRows("export interface OpParams {", ["tangent: None;"])],
  [
    "src/ir/opFacts.ts",
    withRows("export const opFacts = {", ['tangent: { ...unary, on: "float", price: "heavy" },']),
  ],
  ["src/ir/scalarFunctions.ts", withRows("export const unaryFunctions = {", ["tangent: Math.tan,"])],
  [
    "src/trace/ops.ts",
    withRows('export const neg = unary("neg");', ['export const tangent = unary("tangent");']),
  ],
  [
    "src/transforms/derivatives/vjpRules.ts",
    withRows("export const vjpRules: { readonly [K in OpName]: VjpRule<K> } = {", [
      "tangent: scaled((_, out) => add(mul(out, out), 1)),",
    ]),
  ],
  [
    "src/compiler/kernel/vectorOps.ts",
    withRows('  cbrt: { float: math.cbrt, double: host("cbrt") },', [
      'tangent: { float: (b, x) => b.div(math.sin(b, x), math.cos(b, x)), double: host("tangent") },',
    ]),
  ],
  ["src/engines/xla/stablehlo/elementwise.ts", withRows('  cbrt: wide("cbrt"),', ['tangent: wide("tan"),'])],
  [
    "src/lax/elementwise.ts",
    withRows('export const neg = unary("neg", ops.neg);', [
      'export const tangent = unary("tangent", ops.tangent);',
    ]),
  ],
  ["test/publicApi.json", withName],
  [
    "test/support/unaryOps.ts",
    withRows("export const unaryOps: { readonly [K in UnaryOp]: UnaryRecord } = {", [
      'tangent: { operands: "unit", error: ulps(7), course: "steep", text: "stablehlo.tan",',
      `values: [${unaryPoints.map((x) => formatNumber(Math.tan(Math.fround(x))))}] },`,
    ]),
  ],
]);

/** The frozen names of the public interface with that of the new function. */
function withName(text: string): string {
  const { lax: names, ...others } = JSON.parse(text);
  return JSON.stringify({ ...others, lax: { ...names, values: [...names.values, "tangent"].sort() } });
}

/** The tests that go through the tables of ops: what they say of the new op, and of names. */
const throughTables = [
  "src/ir/infer/infer.test.ts",
  "src/ir/text/parse.test.ts",
  "src/transforms/derivatives/vjpRules.test.ts",
  "src/transforms/batching/vmapRules.test.ts",
  "src/spmd/partition/placement/factors.test.ts",
  "src/engines/reference/elementwise.test.ts",
  "test/compiler/opCases.test.ts",
  "test/xla/stablehlo.test.ts",
  "test/publicApi.test.ts",
];

test("an op of one operand with a derivative works when the ten files of the page have it", () => {
  expect(pathsIn(filesOf(partOf("A unary elementwise op")))).toEqual([...tangent.keys()].sort());
  expect(tangent.size).toBeLessThanOrEqual(11);
  using overlay = new Overlay(tangent);
  const said = run(
    overlay.folder,
    "node_modules/vitest/vitest.mjs",
    "run",
    "-t",
    "tangent|names of",
    ...throughTables,
  );
  expect(said).toMatch(/^\d+ passed, 0 failed$/m);
  for (const path of throughTables) expect(said).toContain(path);
}, 600_000);

test("every op of one operand has a function that records it, and one that users call", () => {
  const named = { not: "bitwiseNot" } as const;
  for (const op of opsOf("unary")) {
    expect(trace, op).toHaveProperty(op);
    expect(lax, op).toHaveProperty(op in named ? named[op as keyof typeof named] : op);
  }
});

test("the type checker names every place where new ops are missing, and the page lists them", () => {
  // The tangent is complete. One op is nowhere but in the catalogue; of the others as much is known as it takes to ask
  // for the rest.
  const toys = new Map([
    [
      "src/ir/ops.ts",
      withRows("tangent: None;", [
        "toy: None;",
        "toyUnary: None;",
        "toyElementwise: None;",
        "toyView: None;",
        "toyControl: { readonly body: Program };",
        "toyCollective: Collective;",
      ]),
    ],
    [
      "src/ir/opFacts.ts",
      withRows("export const opFacts = {", [
        'toyUnary: { ...unary, on: "number", price: "short" },',
        'toyElementwise: { ...elementwise, price: "short" },',
        "toyView: movement,",
        "toyControl: control,",
        "toyCollective: { ...collective, sends: toOne },",
      ]),
    ],
    ["src/compiler/lowering.ts", withRows("export const lowerings = {", ['toyView: "view",'])],
  ]);
  using overlay = new Overlay(tangent, toys);
  const complaints = complaintsIn(overlay);
  // It is the first op of the catalogue, so it would be the first of those that a table lacks.
  expect(complaints).not.toMatch(/Property 'tangent' is missing|from type '.*': tangent\b/);
  const asked = [...complaints.matchAll(/^([\w./]+)\(\d+,\d+\): error/gm)].map(([, path]) => path ?? "");
  const untyped = pathsIn(partOf("What the type checker does not ask for"));
  const places = pathsIn(page).filter((path) => path !== "src/ir/ops.ts" && !untyped.includes(path));
  expect([...new Set(asked)].sort()).toEqual(places);
}, 300_000);
