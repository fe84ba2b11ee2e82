/** Projects in which `npm run test:bundlers` builds programs: tools from npm, the packed package, and commands. */
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { runtimes } from "../runtimeFolders.js";

/** The repository. */
export const root = fileURLToPath(new URL("../../", import.meta.url));
/** Where tools and projects are. */
export const folder = join(tmpdir(), "shardwise-bundlers");

const tools = {
  "@rollup/plugin-node-resolve": "16.0.3",
  esbuild: "0.28.2",
  next: "16.4.6",
  react: "19.3.1",
  "react-dom": "19.3.1",
  rollup: "4.68.2",
  vite: "8.3.8",
  webpack: "5.112.2",
  "webpack-cli": "7.2.3",
};

/** Runtimes that bundle, too. */
export const others = runtimes.filter(({ name }) => name === "bun" || name === "deno");

/** Programs are started by name: first those of the tools, then the runtimes. */
export const environment = {
  ...process.env,
  NODE_OPTIONS: undefined,
  SHARDWISE_ENGINE: undefined,
  SHARDWISE_VERIFY: undefined,
  NEXT_TELEMETRY_DISABLED: "1",
  PATH: [
    join(folder, "node_modules", ".bin"),
    ...others.map(({ program }) => dirname(program)),
    process.env.PATH,
  ].join(delimiter),
};

/** Why a case does not apply here. */
export class Skipped extends Error {}

/** Runs a command and returns its output; a failed download is not a failed test. */
export function run(command: string, cwd: string): string {
  const { status, stdout, stderr } = spawnSync(command.replace(/^npx /, ""), {
    cwd,
    env: environment,
    encoding: "utf8",
    shell: true,
    timeout: 600_000,
  });
  if (status === 0) return stdout;
  const output = `${stdout}\n${stderr}`.trim();
  if (/error sending request for url|ENOTFOUND/.test(output)) {
    throw new Skipped(`\`${command}\` could not download what it needs`);
  }
  throw new Error(`${command} ended with ${status}:\n${output.slice(-4000)}`);
}

/** Installs the tools that are missing, and the current package. */
export function install(): void {
  mkdirSync(folder, { recursive: true });
  const manifest = JSON.stringify({ private: true, type: "module", dependencies: tools });
  const stamp = join(folder, "installed.json");
  const quiet = "--no-audit --no-fund --ignore-scripts --prefer-offline --loglevel=error";
  if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== manifest) {
    rmSync(stamp, { force: true });
    writeFileSync(join(folder, "package.json"), manifest);
    run(`npm install ${quiet}`, folder);
    writeFileSync(stamp, manifest);
  }
  for (const name of readdirSync(folder)) if (name.endsWith(".tgz")) rmSync(join(folder, name));
  run(`npm pack --silent --ignore-scripts --pack-destination ${JSON.stringify(folder)}`, root);
  const file = readdirSync(folder).find((name) => name.endsWith(".tgz"));
  run(`npm install --no-save ${quiet} ./${file}`, folder);
}

/** A project with the programs of a folder, and with files, each under the name in its first line. */
export function makeProject(name: string, files: readonly string[], source = "bundled"): string {
  const project = join(folder, "projects", name);
  rmSync(project, { recursive: true, force: true });
  cpSync(join(root, "scripts", "package", source), project, { recursive: true });
  for (const text of files) {
    const path = join(project, /^\/\/ (\S+)/.exec(text)?.[1] ?? "unnamed.js");
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
  return project;
}

/** The sum of the gradient that all programs compute, in plain numbers. */
export const expectedGradient: number = 32 * 8 * 16 * (1 - Math.tanh(0.16) ** 2);

/** Throws unless a program computed that. */
export function checkGradient(found: number): void {
  if (!(Math.abs(found - expectedGradient) <= 1e-3))
    throw new Error(`the gradient is ${found}, not ${expectedGradient}`);
}
