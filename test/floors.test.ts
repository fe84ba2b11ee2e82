import { readdirSync, readFileSync } from "node:fs";
import { posix } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { describe, expect, test } from "vitest";

const upToSpmd = ["platform", "ir", "trace", "transforms", "spmd"];
const upToRandom = [...upToSpmd, "lax", "numpy", "random"];
const upToTrain = [...upToRandom, "compiler", "engines", "nn", "optim", "parallel", "train"];

/** What each folder of `src/` may import besides itself, from the lowest floor to the highest. */
const floors: Readonly<Record<string, readonly string[]>> = {
  platform: [],
  ir: ["platform"],
  trace: ["platform", "ir"],
  transforms: ["platform", "ir", "trace"],
  // Meshes and calls without one know the engine they run on by default.
  spmd: ["platform", "ir", "trace", "transforms", "engines"],
  lax: upToSpmd,
  numpy: [...upToSpmd, "lax"],
  random: [...upToSpmd, "lax", "numpy"],
  compiler: ["platform", "ir"],
  engines: ["platform", "ir", "compiler"],
  nn: upToRandom,
  scipy: [...upToRandom, "nn"],
  optim: [...upToRandom, "nn"],
  parallel: [...upToRandom, "nn"],
  train: upToTrain,
  entries: upToTrain,
  cli: [...upToTrain, "index.ts"],
  "index.ts": [...upToTrain, "scipy", "cli"],
};

/** The files of `src/ir` that say what a program is. */
const programs = ["dtype.ts", "mesh.ts", "ops.ts", "opFacts.ts", "program.ts", "shape.ts"];

/**
 * The rooms of large folders, and what each may import of its own folder besides itself, lowest first. The files
 * that stand directly in the folder may import every room of it, and are loaded by no room unless listed here.
 */
const rooms: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  ir: {
    infer: ["describe.ts", "errors.ts", ...programs],
    text: [
      "arguments.ts",
      "callbacks.ts",
      "checkProgram.ts",
      "collections.ts",
      "errors.ts",
      "schema.ts",
      ...programs,
      "infer",
    ],
    expansions: ["collections.ts", "scalarFunctions.ts", ...programs, "infer"],
  },
  transforms: {
    rewrite: [],
    control: [],
    checks: ["rewrite"],
    batching: ["rewrite", "checks"],
    derivatives: ["rewrite", "control", "batching"],
  },
  "spmd/partition": {
    placement: [],
    blocks: ["placement"],
    moves: ["placement", "blocks"],
    passes: [],
  },
  spmd: {
    partition: [],
    mesh: ["partition"],
    run: ["mesh", "partition"],
    inspect: ["mesh", "partition", "run"],
  },
  compiler: {
    wasm: [],
    gemm: ["wasm"],
    attention: ["wasm", "gemm"],
    kernel: ["steps.ts", "stepTree.ts", "identities.ts", "lowering.ts", "wasm", "attention"],
    native: ["steps.ts", "identities.ts", "wasm", "attention", "kernel"],
    wgsl: ["steps.ts", "wasm", "attention", "kernel"],
    normalise: ["identities.ts"],
    fuse: ["lowering.ts"],
    plan: ["steps.ts", "stepTree.ts", "lowering.ts", "wasm", "attention", "kernel", "native", "fuse"],
    lower: [
      "steps.ts",
      "stepTree.ts",
      "identities.ts",
      "lowering.ts",
      "wasm",
      "attention",
      "kernel",
      "normalise",
      "fuse",
      "plan",
    ],
  },
  "compiler/native": {
    x64: ["code.ts"],
    a64: ["code.ts"],
    gemm: ["code.ts", "x64", "a64"],
    kernels: ["code.ts", "x64"],
    attention: ["code.ts", "x64", "gemm", "kernels"],
  },
  engines: {
    system: ["errors.ts"],
    protocol: [],
    flight: ["errors.ts", "protocol"],
    memory: ["errors.ts", "shell.ts", "system"],
    products: ["system", "protocol"],
    kernels: ["system"],
    collectives: ["flight", "system", "memory", "protocol"],
    devices: [
      "collector.ts",
      "errors.ts",
      "loopLimit.ts",
      "flight",
      "system",
      "memory",
      "protocol",
      "products",
      "kernels",
      "collectives",
    ],
    workers: [
      "sizeChecks.ts",
      "errors.ts",
      "settings.ts",
      "shell.ts",
      "flight",
      "system",
      "memory",
      "protocol",
      "products",
      "kernels",
      "collectives",
      "devices",
    ],
    reference: ["sizeChecks.ts", "localEngine.ts", "loopLimit.ts"],
    inline: [
      "shell.ts",
      "localEngine.ts",
      "loopLimit.ts",
      "system",
      "memory",
      "products",
      "kernels",
      "devices",
      "reference",
    ],
    oneThread: [
      "errors.ts",
      "localEngine.ts",
      "loopLimit.ts",
      "settings.ts",
      "shell.ts",
      "sizeChecks.ts",
      "flight",
      "system",
      "products",
      "kernels",
      "collectives",
      "devices",
      "inline",
    ],
    threads: ["sizeChecks.ts", "system", "products", "protocol", "devices", "workers"],
    mpi: [
      "errors.ts",
      "launch.ts",
      "settings.ts",
      "shell.ts",
      "flight",
      "system",
      "memory",
      "protocol",
      "products",
      "collectives",
      "devices",
      "workers",
    ],
    xla: ["errors.ts", "launch.ts", "shell.ts", "system"],
    webgpu: ["sizeChecks.ts", "errors.ts", "loopLimit.ts", "shell.ts", "memory"],
  },
  "engines/mpi": {
    library: [],
    exchange: ["library"],
    collectives: ["library", "exchange"],
  },
  numpy: {
    elementwise: ["operands.ts"],
    arrays: ["operands.ts", "elementwise"],
    indexing: ["operands.ts", "elementwise", "arrays"],
    reductions: ["operands.ts", "elementwise"],
    linalg: ["operands.ts", "elementwise", "arrays", "reductions"],
    statistics: ["operands.ts", "elementwise", "arrays", "indexing", "reductions", "linalg"],
    composed: ["operands.ts", "elementwise", "arrays", "indexing", "reductions", "linalg", "statistics"],
    fft: ["operands.ts", "elementwise", "arrays"],
  },
  nn: {
    modules: [],
    functions: [],
    lift: ["modules"],
    layers: ["modules", "functions", "lift"],
  },
  scipy: {
    special: ["operands.ts", "rules.ts"],
    linalg: [],
    signal: [],
    solvers: [],
    stats: ["operands.ts", "special"],
  },
  optim: {
    transformations: ["schedules.ts"],
    wrappers: ["schedules.ts", "transformations"],
    optimizers: ["schedules.ts", "transformations", "wrappers"],
    losses: [],
  },
  train: {
    files: [],
    data: ["files"],
    models: ["files", "data"],
    generation: ["data", "models"],
    step: ["files", "data", "models"],
    pretrained: ["files", "data", "models", "step"],
    config: ["files", "models", "step", "data", "pretrained"],
    report: ["files", "data", "models", "step", "config"],
    folder: ["files", "models", "step", "config", "report", "pretrained"],
    run: ["files", "data", "models", "generation", "step", "config", "report", "folder", "pretrained"],
    plan: ["files", "models", "step", "config", "report"],
    serve: ["files", "data", "models", "generation"],
  },
  "train/files": {
    disk: [],
    safetensors: ["disk"],
    checkpoints: ["disk", "safetensors"],
  },
  "train/data": {
    tokenizers: [],
    chat: ["tokenizers"],
    sources: ["chat"],
    tokens: ["tokenizers", "chat", "sources"],
    batches: ["tokenizers", "chat", "sources", "tokens"],
  },
};

/** Sources by path, such as `src/ir/shape.ts`. */
type Sources = ReadonlyMap<string, string>;

interface Import {
  /** The specifier as it is written. */
  readonly specifier: string;
  /** The path of the imported file. */
  readonly target: string;
  /** Whether the compiler erases it, so that nothing is loaded at run time. */
  readonly typeOnly: boolean;
}

/** The path of the source a specifier means, or undefined for packages and Node's own modules. */
function resolveSpecifier(from: string, specifier: string): string | undefined {
  if (specifier.startsWith(".")) {
    return posix.join(posix.dirname(from), specifier).replace(/\.js$/, ".ts");
  }
  if (specifier.startsWith("#")) return `src/${specifier.slice(1)}.ts`;
  if (specifier === "shardwise") return "src/index.ts";
  if (specifier.startsWith("shardwise/")) return `src/${specifier.slice("shardwise/".length)}/index.ts`;
  return undefined;
}

const parsed = new Map<string, ts.SourceFile>();

/** The syntax of a source, which several checks look at. */
function parse(path: string, text: string): ts.SourceFile {
  const key = `${path}\n${text}`;
  const source = parsed.get(key) ?? ts.createSourceFile(path, text, ts.ScriptTarget.ES2023);
  parsed.set(key, source);
  return source;
}

function importsOf(path: string, text: string): Import[] {
  const found: Import[] = [];
  const source = parse(path, text);
  // All others are statements of the file itself, and most files have no others.
  const hasCalls = /\bimport\s*\(/.test(text);
  const add = (node: ts.Node | undefined, typeOnly: boolean) => {
    if (node === undefined || !ts.isStringLiteralLike(node)) return;
    const target = resolveSpecifier(path, node.text);
    if (target !== undefined) found.push({ specifier: node.text, target, typeOnly });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) {
      // `import { type A }` still loads the file under verbatimModuleSyntax; only `import type` does not.
      add(node.moduleSpecifier, node.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword);
    } else if (ts.isExportDeclaration(node)) {
      add(node.moduleSpecifier, node.isTypeOnly);
    } else if (ts.isImportTypeNode(node)) {
      add(ts.isLiteralTypeNode(node.argument) ? node.argument.literal : undefined, true);
    } else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      add(node.arguments[0], false);
    }
    if (hasCalls || node === source) ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/** What a function may have at most, from its first line to its last. */
const maxLines = 60;

/** One sentence for each function that is too long. */
function findLongFunctions(sources: Sources): string[] {
  const found: string[] = [];
  for (const [path, text] of sources) {
    const source = parse(path, text);
    const lineAt = (position: number) => source.getLineAndCharacterOfPosition(position).line;
    const visit = (node: ts.Node, owner: ts.Node): void => {
      if (ts.isFunctionLike(node) && "body" in node && node.body) {
        const lines = lineAt(node.end) - lineAt(node.getStart(source)) + 1;
        const name = (ts.isVariableDeclaration(owner) ? owner : node).name?.getText(source) ?? "a function";
        if (lines > maxLines)
          found.push(`${path}: ${name} has ${lines} lines: find the seam, the maximum is ${maxLines}`);
      }
      ts.forEachChild(node, (child) => visit(child, node));
    };
    visit(source, source);
  }
  return found;
}

/** Variables of modules that are no ambient state, each with the reason. */
const ownVariables: Readonly<Record<string, string>> = {
  "src/ir/ambient.ts: level": "the registry of ambient state itself",
  "src/ir/ambient.ts: outermostRead": "the registry of ambient state itself",
  "src/ir/ambient.ts: joined": "the registry of ambient state itself",
  "src/trace/source.ts: usual":
    "how far the last search for the user's line went: only its speed depends on it",
  "src/trace/source.ts: misses":
    "whether a search for the user's line can succeed: in a bundle, where nobody is told anything else",
};

/** Every variable of a module, and every field of a class itself, that can be given another value. */
function findModuleVariables(sources: Sources): string[] {
  const found: string[] = [];
  for (const [path, text] of sources) {
    for (const statement of parse(path, text).statements) {
      if (ts.isVariableStatement(statement) && !(statement.declarationList.flags & ts.NodeFlags.Const)) {
        found.push(...statement.declarationList.declarations.map(({ name }) => `${path}: ${nameText(name)}`));
      }
      if (!ts.isClassDeclaration(statement)) continue;
      for (const member of statement.members.filter(ts.isPropertyDeclaration)) {
        const kinds = new Set(member.modifiers?.map(({ kind }) => kind));
        const isState = kinds.has(ts.SyntaxKind.StaticKeyword) && !kinds.has(ts.SyntaxKind.ReadonlyKeyword);
        if (isState) found.push(`${path}: ${statement.name?.text}.${nameText(member.name)}`);
      }
    }
  }
  return found;
}

const nameText = (name: ts.PropertyName | ts.BindingName) =>
  ts.isIdentifier(name) ? name.text : "a pattern";

/** The floor a file stands on: its folder below `src/`, or its own name when it is directly there. */
function floorOf(path: string): string {
  return path.split("/")[1] ?? path;
}

/** One sentence for an import within a folder that has rooms which does not point down to a lower one. */
function roomViolation(path: string, { specifier, target }: Import): string | undefined {
  for (const [folder, table] of Object.entries(rooms)) {
    const inside = `src/${folder}/`;
    if (!path.startsWith(inside) || !target.startsWith(inside)) continue;
    const [from = path, to = target] = [path, target].map((file) => file.slice(inside.length).split("/")[0]);
    if (from === to || from.endsWith(".ts")) continue;
    const allowed = table[from];
    if (allowed === undefined) return `${path}: "${from}" is no room of ${folder}`;
    if (allowed.includes(to)) continue;
    const list = allowed.length === 0 ? "nothing but itself" : `itself, ${allowed.join(", ")}`;
    return `${path} imports "${specifier}" (${to}), but the room ${from} may import ${list}`;
  }
  return undefined;
}

function describeRule(floor: string): string {
  const allowed = floors[floor] ?? [];
  return `${floor} may import ${allowed.length === 0 ? "nothing but itself" : `itself, ${allowed.join(", ")}`}`;
}

/** One sentence for each import that does not point down, and for each file that stands on no floor. */
function findFloorViolations(sources: Sources): string[] {
  const violations: string[] = [];
  for (const [path, text] of sources) {
    const floor = floorOf(path);
    const allowed = floors[floor];
    if (allowed === undefined) {
      violations.push(
        `${path}: "${floor}" is no floor; move the file, or give "${floor}" a row in the table`,
      );
      continue;
    }
    for (const found of importsOf(path, text)) {
      const { specifier, target } = found;
      const targetFloor = floorOf(target);
      const outside = !target.startsWith("src/");
      if (outside || (targetFloor !== floor && !allowed.includes(targetFloor))) {
        const where = outside ? "outside src" : targetFloor;
        violations.push(`${path} imports "${specifier}" (${where}), but ${describeRule(floor)}`);
      } else if (targetFloor === floor) {
        const violation = roomViolation(path, found);
        if (violation !== undefined) violations.push(violation);
      }
    }
  }
  return violations;
}

/** Where files know nothing of each other in a circle, not even their types. */
const strict = "src/engines/";

/**
 * Every group of files that load each other in a circle, written as one such circle; inside of {@link strict} also
 * those whose circle is closed by a type.
 */
function findCycles(sources: Sources): string[] {
  const edges = new Map<string, readonly string[]>();
  for (const [path, text] of sources) {
    const counts = ({ target, typeOnly }: Import) =>
      sources.has(target) && (!typeOnly || (path.startsWith(strict) && target.startsWith(strict)));
    edges.set(
      path,
      importsOf(path, text)
        .filter(counts)
        .map(({ target }) => target),
    );
  }
  const cycles: string[] = [];
  const finished = new Set<string>();
  const trail: string[] = [];
  const visit = (path: string): void => {
    const start = trail.indexOf(path);
    if (start >= 0) {
      const circle = [...trail.slice(start), path].join(" -> ");
      cycles.push(
        `${circle}: no file may ${circle.startsWith(strict) ? "know" : "load"} itself through others`,
      );
      return;
    }
    if (finished.has(path)) return;
    trail.push(path);
    for (const target of edges.get(path) ?? []) visit(target);
    trail.pop();
    finished.add(path);
  };
  for (const path of sources.keys()) visit(path);
  return cycles;
}

/** The sources of the package without its tests, which may import what they like. */
function readSources(): Sources {
  const root = fileURLToPath(new URL("../src/", import.meta.url));
  const paths = readdirSync(root, { recursive: true, encoding: "utf8" });
  const sources = paths.filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts")).sort();
  return new Map(
    sources.map((path) => [posix.join("src", path.replaceAll("\\", "/")), readFileSync(root + path, "utf8")]),
  );
}

describe("the sources", () => {
  const sources = readSources();

  test("import only from the floors below", () => {
    expect(findFloorViolations(sources)).toEqual([]);
  });

  test("have no function over 60 lines", () => {
    expect(findLongFunctions(sources)).toEqual([]);
  });

  test("keep ambient state in its registry (src/ir/ambient.ts), not in variables of modules", () => {
    expect(findModuleVariables(sources).sort()).toEqual(Object.keys(ownVariables).sort());
  });

  test.each(["CONTRIBUTING.md", "docs/architecture.md"])("have all their floors and rooms in %s", (page) => {
    const text = readFileSync(fileURLToPath(new URL(`../${page}`, import.meta.url)), "utf8");
    const folders = [...Object.keys(floors), ...Object.values(rooms).flatMap((table) => Object.keys(table))];
    const isFolder = (name: string) => name !== "entries" && !name.endsWith(".ts");
    expect(folders.filter((name) => isFolder(name) && !text.includes(`\`${name}\``))).toEqual([]);
  });

  test("have no import cycle between files", () => {
    expect(findCycles(sources)).toEqual([]);
  });
});

describe("the check of lengths", () => {
  test("counts a function from its first line to its last", () => {
    const body = (lines: number) => "  work();\n".repeat(lines);
    const of = (text: string) => findLongFunctions(new Map([["src/ir/a.ts", text]]));
    expect(of(`const f = () => {\n${body(59)}};`)).toEqual([
      "src/ir/a.ts: f has 61 lines: find the seam, the maximum is 60",
    ]);
    expect(of(`/** Says why. */\nfunction f() {\n${body(58)}}`)).toEqual([]);
  });
});

describe("the check of module variables", () => {
  test("sees variables and static fields that can change, at the top of a file only", () => {
    const text = `
      let a = 0;
      export let b: number | undefined, c = 1;
      var d;
      const e = 0;
      function f() { let g = 0; return g; }
      class H { static i = 0; static readonly j = 0; k = 0; }
    `;
    const found = findModuleVariables(new Map([["src/ir/a.ts", text]]));
    expect(found).toEqual(["a", "b", "c", "d", "H.i"].map((name) => `src/ir/a.ts: ${name}`));
  });
});

describe("the check of the floors", () => {
  const violationsOf = (path: string, text: string) => findFloorViolations(new Map([[path, text]]));

  test("names the file, the import and the rule", () => {
    expect(violationsOf("src/trace/tensor.ts", 'import { vjp } from "../transforms/vjp.js";')).toEqual([
      'src/trace/tensor.ts imports "../transforms/vjp.js" (transforms), but trace may import itself, platform, ir',
    ]);
    expect(violationsOf("src/ir/shape.ts", 'import { x } from "../trace/x.js";')).toEqual([
      'src/ir/shape.ts imports "../trace/x.js" (trace), but ir may import itself, platform',
    ]);
  });

  test.each([
    ['import type { Nn } from "../nn/module.js";'],
    ['export * from "../nn/module.js";'],
    ['export type { Nn } from "../nn/module.js";'],
    ['type Nn = import("../nn/module.js").Nn;'],
    ['const nn = await import("../nn/module.js");'],
    ['import { Nn } from "shardwise/nn";'],
    ['import { everything } from "shardwise";'],
    ['import { helper } from "../../test/helper.js";'],
  ])("sees through %s", (text) => {
    expect(violationsOf("src/spmd/mesh.ts", text)).toHaveLength(1);
  });

  test("lets packages, the own floor and lower floors pass", () => {
    const text = 'import "node:fs"; import koffi from "koffi"; import "./a.js"; import "../ir/b.js";';
    expect(violationsOf("src/engines/engine.ts", text)).toEqual([]);
  });

  test("knows the rooms of the large floors", () => {
    expect(
      violationsOf("src/train/data/tokenizers/bpe.ts", 'import { train } from "../../run/trainRun.js";'),
    ).toEqual([
      'src/train/data/tokenizers/bpe.ts imports "../../run/trainRun.js" (run), but the room data may import itself, files',
    ]);
    expect(violationsOf("src/spmd/misc/a.ts", 'import { Mesh } from "../mesh/mesh.js";')).toEqual([
      'src/spmd/misc/a.ts: "misc" is no room of spmd',
    ]);
    expect(violationsOf("src/compiler/native/x64/assembler.ts", 'import "../kernels/x64Kernel.js";')).toEqual(
      [
        'src/compiler/native/x64/assembler.ts imports "../kernels/x64Kernel.js" (kernels), but the room x64 may import itself, code.ts',
      ],
    );
    expect(violationsOf("src/train/index.ts", 'export { train } from "./run/trainRun.js";')).toEqual([]);
  });

  test("refuses a folder that has no floor", () => {
    expect(violationsOf("src/utils/misc.ts", "")).toEqual([
      'src/utils/misc.ts: "utils" is no floor; move the file, or give "utils" a row in the table',
    ]);
  });

  test("reports a cycle of files, and none where the circle is closed by a type", () => {
    const circle = (last: string) =>
      findCycles(
        new Map([
          ["src/ir/a.ts", 'import { b } from "./b.js";'],
          ["src/ir/b.ts", 'export { c } from "./c.js";'],
          ["src/ir/c.ts", last],
        ]),
      );
    expect(circle('import { type A } from "./a.js";')).toEqual([
      "src/ir/a.ts -> src/ir/b.ts -> src/ir/c.ts -> src/ir/a.ts: no file may load itself through others",
    ]);
    expect(circle('import type { A } from "./a.js";')).toEqual([]);
  });

  test("reports a circle of types among the engines", () => {
    const files = new Map([
      ["src/engines/a.ts", 'import { b } from "./b.js";'],
      ["src/engines/b.ts", 'import type { A } from "./a.js";'],
    ]);
    expect(findCycles(files)).toEqual([
      "src/engines/a.ts -> src/engines/b.ts -> src/engines/a.ts: no file may know itself through others",
    ]);
  });
});
