/**
 * `npm run test:package`: the package as a user sees it. It is packed, installed into an empty strict project, its
 * examples are checked there by TypeScript and run to their targets, and `npx shardwise train` trains on the text that
 * comes with it. Declarations are checked by several versions of TypeScript (`types` does only that, and ends with
 * `N passed, M failed`). Needs npm's registry or cache for the one dependency and older compilers: ends with 3 where they
 * could not be fetched.
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
// The project has its own settings, without those that this repository uses for its tests.
const environment = { ...process.env, SHARDWISE_ENGINE: "threads", STEPS: undefined, TARGET: undefined };

/** TypeScript's strictest settings, without the DOM. */
const compilerOptions = {
  target: "es2023",
  lib: ["es2023"],
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

/** What npm could not fetch. */
class NotFetched extends Error {}

/** Installs packages, without running their scripts. */
function install(packages: readonly string[], cwd = folder): void {
  try {
    run(
      "npm",
      ["install", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts", ...packages],
      cwd,
    );
  } catch (cause) {
    throw new NotFetched(`npm could not install ${packages.join(" ")}`, { cause });
  }
}

/** Runs a program in the project and returns its output; exits if it fails. */
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
  install([`./${file}`]);
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["examples"] }));
  mkdirSync(join(folder, "examples"));
  const packed = join(folder, "node_modules", "shardwise", "examples");
  for (const name of readdirSync(packed)) copyFileSync(join(packed, name), join(folder, "examples", name));
}

/**
 * The versions of TypeScript under which the declarations are checked, the oldest and the newest among them, and where
 * this repository has them; others are fetched.
 */
const compilers: Readonly<Record<string, string | undefined>> = {
  "5.5": undefined,
  "5.9": undefined,
  "6.0": "typescript",
  "7.0": "typescript7",
};

/**
 * Checks all declarations that users import, those of dependencies too, by every compiler, with and without Node's
 * declarations, never with the DOM's; returns how many compilers found something wrong.
 */
function checkDeclarations(): number {
  const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    readonly exports: Readonly<Record<string, unknown>>;
  };
  const entries = Object.keys(exports).filter((entry) => !entry.endsWith(".json"));
  const checked = join(folder, "declarations");
  mkdirSync(checked);
  const { rootDir, outDir, ...shared } = compilerOptions;
  const writeProject = (name: string, own: object) => {
    const lines = entries.map((entry, i) => `export * as entry${i} from "shardwise${entry.slice(1)}";\n`);
    writeFileSync(join(checked, `${name}.ts`), lines.join(""));
    const options = { ...shared, skipLibCheck: false, noEmit: true, ...own };
    const project = JSON.stringify({ compilerOptions: options, files: [`${name}.ts`] });
    writeFileSync(join(checked, `${name}.json`), project);
  };
  writeProject("node", {});
  writeProject("bare", { lib: ["es2022"], types: [] });
  const older = Object.keys(compilers).filter((version) => compilers[version] === undefined);
  writeFileSync(join(checked, "package.json"), JSON.stringify({ private: true, type: "module" }));
  install(
    older.map((version) => `typescript-${version}@npm:typescript@~${version}.0`),
    checked,
  );
  const failures = Object.entries(compilers).filter(([version, own]) => {
    const [place, name] = own === undefined ? [checked, `typescript-${version}`] : [root, own];
    try {
      const compiler = join(place, "node_modules", name, "bin", "tsc");
      for (const project of ["node.json", "bare.json"])
        run(process.execPath, [compiler, "-p", project], checked);
      return false;
    } catch (error) {
      console.error(error instanceof Error ? error.message : error);
      return true;
    }
  });
  return failures.length;
}

function main(names: readonly string[]): void {
  try {
    makeProject();
    if (names.length === 0 || names.includes("types")) {
      const failed = checkDeclarations();
      console.log(`${Object.keys(compilers).length - failed} passed, ${failed} failed`);
      if (failed > 0) process.exitCode = 1;
    }
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
  } catch (error) {
    if (!(error instanceof NotFetched)) throw error;
    console.log(error.message);
    process.exitCode = 3;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

main(process.argv.slice(2));
