/** Runs examples as their users do, for tests. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { builtFile, nodeProgram } from "./built.js";
import { userEnvironment } from "./environment.js";

const root = fileURLToPath(new URL("../..", import.meta.url));

type Settings = Readonly<Record<string, string>>;

/** What a program prints; it fails when an example misses its target. */
export async function outputOf(command: readonly string[], settings: Settings = {}): Promise<string> {
  const env = { ...userEnvironment, ...settings };
  const { stdout } = await promisify(execFile)(process.execPath, command, { cwd: root, env });
  return stdout;
}

/** What each of some examples prints, with its settings, run one after the other in one process. */
export async function outputsOf<Name extends string>(
  examples: Readonly<Record<Name, Settings>>,
): Promise<ReadonlyMap<string, string>> {
  const entries = Object.entries<Settings>(examples);
  const files = entries.map(([name]) => builtFile(`examples/${name}.ts`));
  const args = entries.flatMap(([, settings], i) => [files[i] ?? "", JSON.stringify(settings)]);
  const text = await outputOf([...nodeProgram("test/fixtures/examples.ts"), ...args]);
  const parts = files.map((file, i) => {
    const [, rest = ""] = text.split(`\n${file}\n`);
    const [own = ""] = rest.split(`\n${files[i + 1]}\n`);
    return own;
  });
  return new Map(entries.map(([name], i) => [name, parts[i] ?? ""]));
}
