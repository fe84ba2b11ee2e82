/**
 * `npm run test:package`: the package as a user meets it. It is packed, installed into an empty strict project, its
 * examples are checked there by TypeScript and run to their targets, and `npx shardwise train` trains on the text that
 * comes with it. Declarations are checked by several versions of TypeScript (`types` does only that). Needs npm's registry
 * or cache for the one dependency and the compilers.
 */
import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "shardwise-try-"));
// The project has its own settings: what this repository sets for its tests is not among them.
const environment = { ...process.env, SHARDWISE_ENGINE: "threads", STEPS: undefined, TARGET: undefined };

/** TypeScript's strictest settings, without the DOM. */
const compilerOptions = {
  target: "es2023",
  lib: ["es2023", "esnext.disposable"],
  module: "nodenext",
  strict: true,
  noUncheckedIndexedAccess: true,
  exactOptionalPropertyTypes: true,
  verbatimModuleSyntax: true,
  noUnusedLocals: true,
  noUnusedParameters: true,
  types: ["node"],
  typeRoots: [join(root, "node_modules", "@types")],
  skipLibCheck: true,
  rootDir: "examples",
  outDir: "built",
};

/** Runs a program in the project and returns its output; ends everything when it fails. */
function run(program: string, args: readonly string[], cwd = folder): string {
  const begin = performance.now();
  const isCommand = program === "npm" || program === "npx";
  const ended = spawnSync(program, args, {
    cwd,
    env: environment,
    encoding: "utf8",
    shell: isCommand && process.platform === "win32",
  });
  const seconds = ((performance.now() - begin) / 1000).toFixed(1);
  if (ended.status !== 0) {
    throw new Error(
      `${program} ${args.join(" ")} failed after ${seconds} s:\n${ended.stdout}\n${ended.stderr}`,
    );
  }
  console.log(`${program.split("/").at(-1)} ${args.join(" ")}: ${seconds} s`);
  return ended.stdout;
}

/** An empty project with the packed package in it, and TypeScript's strictest settings. */
function makeProject(): void {
  run("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", folder], root);
  const file = readdirSync(folder).find((name) => name.endsWith(".tgz"));
  if (file === undefined) throw new Error("npm pack left no file");
  writeFileSync(
    join(folder, "package.json"),
    JSON.stringify({ name: "empty", private: true, type: "module" }),
  );
  run("npm", ["install", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts", `./${file}`]);
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["examples"] }));
  mkdirSync(join(folder, "examples"));
  const packed = join(folder, "node_modules", "shardwise", "examples");
  for (const name of readdirSync(packed)) copyFileSync(join(packed, name), join(folder, "examples", name));
}

/** The versions of TypeScript under which the declarations are checked, the oldest and the newest among them. */
const compilers = ["5.5", "5.9", "6.0", "7.0"];

/** Checks all declarations that users import, those of dependencies too, by every compiler and without the DOM. */
function checkDeclarations(): void {
  const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    readonly exports: Readonly<Record<string, unknown>>;
  };
  const entries = Object.keys(exports).filter((entry) => !entry.endsWith(".json"));
  const lines = entries.map((entry, i) => `export * as entry${i} from "shardwise${entry.slice(1)}";\n`);
  const checked = join(folder, "declarations");
  mkdirSync(checked);
  writeFileSync(join(checked, "all.ts"), lines.join(""));
  const { rootDir, outDir, ...shared } = compilerOptions;
  const options = { ...shared, skipLibCheck: false, noEmit: true };
  writeFileSync(
    join(checked, "tsconfig.json"),
    JSON.stringify({ compilerOptions: options, files: ["all.ts"] }),
  );
  const aliases = compilers.map((version) => `typescript-${version}@npm:typescript@~${version}.0`);
  writeFileSync(join(checked, "package.json"), JSON.stringify({ private: true, type: "module" }));
  run(
    "npm",
    ["install", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts", ...aliases],
    checked,
  );
  for (const version of compilers) {
    const compiler = join("node_modules", `typescript-${version}`, "bin", "tsc");
    run(process.execPath, [compiler, "-p", "."], checked);
  }
}

function main(names: readonly string[]): void {
  try {
    makeProject();
    if (names.length === 0 || names.includes("types")) checkDeclarations();
    if (names.join() === "types") return;
    run(process.execPath, [join(root, "node_modules", "typescript", "bin", "tsc"), "-p", "."]);
    const examples = readdirSync(join(folder, "built")).filter((name) => name.endsWith(".js"));
    for (const name of examples) {
      if (names.length > 0 && !names.includes(name.replace(".js", ""))) continue;
      const lines = run(process.execPath, [join("built", name)])
        .trimEnd()
        .split("\n");
      console.log(`  ${lines.at(-1)}`);
    }
    if (names.length > 0) return;
    run("npx", ["shardwise", "train", "--steps", "20", "--sample", "20", "--out", "run"]);
    if (!existsSync(join(folder, "run", "report.html"))) throw new Error("the run left no report");
    console.log("everything reached its target");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

main(process.argv.slice(2));
