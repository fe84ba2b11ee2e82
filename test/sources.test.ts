/** The user's own line comes first in errors and reports, however Node was started and the package was loaded. */
import { execFile } from "node:child_process";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";
import { grad, makeProgram, np, type Program, random, type Tensor } from "shardwise";
import * as nn from "shardwise/nn";
import { adamw, chain, clipByGlobalNorm } from "shardwise/optim";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { bundleForBrowser } from "../scripts/package/browserBundle.mjs";
import { foldersOf, foldStack, pathInLibrary } from "../src/ir/frames.js";
import { forEachEqn } from "../src/ir/program.js";
import { workerPlugin } from "./support/workerPlugin.js";

const repository = fileURLToPath(new URL("..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "shardwise-sources-"));
const installed = join(folder, "node_modules", "shardwise");

/** What a user may write; the lines that are asked for end with a remark. */
const program = `
import { explainSharding, findNonFinite, makeProgram, Mesh, np, P } from "shardwise";

function broken() {
  return np.matmul(np.zeros([2, 3]), np.zeros([2, 3])); // error
}
try {
  broken();
} catch (error) {
  const frames = error.stack.split("\\n").filter((line) => /^ +at /.test(line));
  console.log("error", error.stack.split(":")[0], frames[0].trim(), error.stack.includes("frames of shardwise"));
}
const bad = (x) =>
  np.log(x); // log
console.log("log", makeProgram(bad)(np.zeros([2])).eqns[0].source.text);
const found = await findNonFinite(bad)(np.zeros([2]));
console.log("log", String(found).replaceAll("\\n", " "));
const mesh = Mesh.create({ data: 2 });
const product = (x) =>
  np.matmul(x, np.transpose(x)); // product
const report = explainSharding(product, { mesh, inShardings: [P("data")] })(np.zeros([4, 4]));
console.log("product", String(report).replaceAll("\\n", " "));
`;
const lineOf = (remark: string) => program.split("\n").findIndex((line) => line.endsWith(`// ${remark}`)) + 1;

beforeAll(async () => {
  mkdirSync(installed, { recursive: true });
  cpSync(join(repository, "src"), join(installed, "src"), {
    recursive: true,
    filter: (path) => !path.includes(".test."),
  });
  cpSync(join(repository, "package.json"), join(installed, "package.json"));
  symlinkSync(join(repository, "node_modules", "koffi"), join(folder, "node_modules", "koffi"));
  const sources = readdirSync(join(installed, "src"), { recursive: true, encoding: "utf8" });
  await build({
    absWorkingDir: installed,
    entryPoints: sources.filter((path) => path.endsWith(".ts")).map((path) => join("src", path)),
    outbase: "src",
    outdir: "dist",
    format: "esm",
    platform: "node",
    sourcemap: true,
    plugins: [workerPlugin],
  });
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  writeFileSync(join(folder, "program.js"), program);
}, 120_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function linesOf(args: readonly string[]): Promise<string[]> {
  const { SHARDWISE_STACKS: _, NODE_OPTIONS: __, ...env } = process.env;
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: folder, env });
  return stdout.trim().split("\n");
}

describe("a package that is installed", () => {
  test.each([
    ["plain Node", []],
    ["--enable-source-maps", ["--enable-source-maps"]],
  ])("%s", async (_, flags) => {
    const lines = await linesOf([...flags, join(folder, "program.js")]);
    expect(lines.map((line) => line.split(" ")[0])).toEqual(["error", "log", "log", "product"]);
    for (const line of lines) {
      const [remark = ""] = line.split(" ");
      expect(line).toContain(`program.js:${lineOf(remark)}:`);
      expect(line).not.toContain("node_modules");
    }
    expect(lines[0]).toContain("ShapeError at broken");
    expect(lines[0]).toContain("true");
  });

  test("a program that is compiled as it is loaded", async () => {
    writeFileSync(
      join(folder, "program.ts"),
      program.replaceAll("(x) =>", "(x: any) =>").replaceAll("catch (error)", "catch (error: any)"),
    );
    const hooks = `
      import { registerHooks } from "node:module";
      import { readFileSync } from "node:fs";
      import { createRequire } from "node:module";
      const { transformSync } = createRequire(${JSON.stringify(import.meta.url)})("esbuild");
      process.setSourceMapsEnabled(true);
      registerHooks({
        load(url, context, next) {
          if (!url.endsWith(".ts")) return next(url, context);
          const path = new URL(url).pathname;
          const { code } = transformSync(readFileSync(path, "utf8"), { loader: "ts", sourcemap: "inline", sourcefile: path, minifyWhitespace: true });
          return { format: "module", source: code, shortCircuit: true };
        },
      });
    `;
    // Older versions of Node have no hooks on the thread that runs the program.
    if (!("registerHooks" in (await import("node:module")))) return;
    writeFileSync(join(folder, "hooks.mjs"), hooks);
    const lines = await linesOf(["--import", join(folder, "hooks.mjs"), join(folder, "program.ts")]);
    for (const line of lines) {
      const [remark = ""] = line.split(" ");
      expect(line).toContain(`program.ts:${lineOf(remark)}:`);
      expect(line).not.toContain("node_modules");
    }
  });
});

test("a bundle with the library and a program names no line of its own, and one with the library alone the program's", async () => {
  const code = `
    import { makeProgram, np } from "shardwise";
    const sources = () => makeProgram((x) => np.sin(x))(np.zeros([2])).eqns[0].source.text;
    for (let i = 0; i < 20; i++) if (sources() !== "unknown source") console.log(sources());
    console.log("end");
  `;
  const bundle = (contents: string) =>
    bundleForBrowser({ stdin: { contents, resolveDir: repository }, external: [] });
  const [both, library] = await Promise.all([bundle(code), bundle('export * from "shardwise";')]);
  const write = (name: string, text: string | Uint8Array) => writeFileSync(join(folder, name), text);
  write("both.js", both.outputFiles[0]?.contents ?? "");
  write("library.js", library.outputFiles[0]?.contents ?? "");
  write("own.js", code.replace('"shardwise"', '"./library.js"'));
  expect(await linesOf([join(folder, "both.js")])).toEqual(["end"]);
  const found = await linesOf([join(folder, "own.js")]);
  expect(found).toHaveLength(21);
  for (const line of found.slice(0, -1)) expect(line).toContain("own.js:3:");
});

test("vitest", () => {
  const [eqn] = makeProgram((x: Tensor) => np.sin(x))(np.zeros([2])).eqns;
  expect(eqn?.source?.text).toContain("test/sources.test.ts:");
});

test("all that a function of the library records has the line that called it, derivatives included", () => {
  const solved = (a: Tensor) => np.sum(np.linalg.solve(a, a));
  const drawn = (key: Tensor) => random.normal(key, [2]);
  const lines = (program: Program) => {
    const found = new Set<string | undefined>();
    forEachEqn(program, ({ source }) => found.add(source?.text.replace(/:\d+\)?$/, "")));
    return [...found];
  };
  const [solving] = lines(makeProgram(solved)(np.eye(3)));
  expect(solving).toContain("test/sources.test.ts:");
  for (const program of [makeProgram(solved)(np.eye(3)), makeProgram(grad(solved))(np.eye(3))]) {
    expect(lines(program)).toEqual([solving]);
  }
  const [drawing, ...others] = lines(makeProgram(drawn)(random.key(0)));
  expect(drawing).toContain("test/sources.test.ts:");
  expect(others).toEqual([]);
});

test("what an optimiser records has the line of its update, and a schedule of the user's its own", () => {
  const optimizer = chain(
    clipByGlobalNorm(1),
    adamw({ learningRate: (step) => np.exp(step) }), // the schedule
  );
  const grads = { w: np.ones([2]), b: np.ones([3]) };
  const { eqns } = makeProgram(
    (g: typeof grads) => optimizer.update(g, optimizer.init(g), g), // the update
  )(grads);
  const places = new Map<string | undefined, string[]>();
  for (const { op, source } of eqns) {
    const line = source?.text.match(/sources\.test\.ts:(\d+):/)?.[1];
    places.set(line, [...(places.get(line) ?? []), op]);
  }
  const ownLines = readFileSync(join(repository, "test/sources.test.ts"), "utf8").split("\n");
  const line = (remark: string) => String(ownLines.findIndex((text) => text.endsWith(`// ${remark}`)) + 1);
  expect([...places.keys()].sort()).toEqual([line("the schedule"), line("the update")].sort());
  expect(places.get(line("the schedule"))).toContain("exp");
});

test("layers look their caller up once for all that they compute, which is slow", () => {
  const net = nn.Sequential({ layers: [nn.Dense({ features: 4 }), nn.LayerNorm(), nn.gelu, nn.silu] });
  const x = np.ones([2, 4]);
  const { eqns } = makeProgram((v: nn.Variables) => net.apply(v, x))(net.init(random.key(0), x));
  expect(eqns.length).toBeGreaterThan(20);
  // One for each layer; the statistics of a norm and what is made of them are two.
  expect(new Set(eqns.map(({ source }) => source)).size).toBe(5);
});

test("frames are the library's by its build and by the sources beside it", () => {
  const folders = foldersOf("file:///app/node_modules/shardwise/dist/ir/frames.js");
  expect(pathInLibrary("at f (/app/node_modules/shardwise/src/numpy/x.ts:3:1)", folders)).toBe(
    "numpy/x.ts:3:1)",
  );
  expect(pathInLibrary("at f (file:///app/node_modules/shardwise/dist/nn/y.js:3:1)", folders)).toBe(
    "nn/y.js:3:1)",
  );
  expect(pathInLibrary("at f (/app/src/numpy/x.ts:3:1)", folders)).toBeUndefined();
  const stack =
    "Error: two\n  lines\n    at f (/app/node_modules/shardwise/dist/a/b.js:1:2)\n    at me (/app/me.js:3:4)";
  expect(foldStack(stack, folders)).toBe(
    "Error: two\n  lines\n    at me (/app/me.js:3:4)\n    … 1 frames of shardwise, shown with SHARDWISE_STACKS=all",
  );
  expect(foldStack("Error: no frames", folders)).toBe("Error: no frames");
});
