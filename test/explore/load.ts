/** Loads modules for the simulated machine, and those they import from the simulated folders. */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { compileFunction } from "node:vm";
import { constants } from "./constants.js";
import { globalsFor } from "./runtime.js";
import { type Site, specifiersOf, transformModule } from "./transform.js";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** The folders whose code runs on the machine. */
const SIMULATED = [
  "src/compiler/kernel/callbackStep.ts",
  "src/engines/collectives/",
  "src/engines/devices/",
  "src/engines/flight/",
  "src/engines/memory/",
  "src/engines/protocol/",
  "src/engines/shell.ts",
  "src/engines/threads/",
  "src/engines/workers/",
  "test/explore/scenarios/",
  "test/explore/simulated/",
];

/** What stands in for code that cannot run on the machine: WebAssembly, native calls, threads of the system. */
const STAND_INS: Readonly<Record<string, string>> = {
  "src/engines/collectives/moveKernels.ts": "test/explore/simulated/moveKernels.ts",
  "src/engines/system/pages.ts": "test/explore/simulated/pages.ts",
  "src/engines/threads/workerCode.ts": "test/explore/simulated/workerCode.ts",
  "src/platform/system.ts": "test/explore/simulated/system.ts",
  "src/platform/threads.ts": "test/explore/simulated/threads.ts",
};

/** What simulated code may call of the machine. */
const RUNTIME = "test/explore/runtime.ts";

/** Where `await` and timers are simulated. */
const EVENT_LOOP = "test/explore/simulated/eventLoop.ts";

/** A change of a source text. */
export interface Change {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** Modules that are ready to run on the machine. */
export interface SimulatedCode {
  readonly exports: Readonly<Record<string, unknown>>;
  readonly sites: readonly Site[];
}

/** Loads a module with changed sources. */
export async function loadSimulated(entry: string, changes: readonly Change[]): Promise<SimulatedCode> {
  const loader = new Loader(changes);
  await loader.prepare(entry);
  loader.checkChanges();
  await loader.prepare(EVENT_LOOP);
  return { exports: loader.require(entry), sites };
}

type Exports = Record<string, unknown>;

/** The places that transformed code mentions, and what was transformed before, by file and text. */
const sites: Site[] = [];
const transformed = new Map<string, string>();
const imported = new Map<string, Exports>();

class Loader {
  private readonly texts = new Map<string, string>();
  private readonly loaded = new Map<string, Exports>();
  private readonly applied = new Set<Change>();
  private readonly globals = globalsFor(() => this.require(EVENT_LOOP));

  constructor(private readonly changes: readonly Change[]) {}

  /** Transforms a module and all it imports; imports what is not simulated. */
  async prepare(file: string): Promise<void> {
    if (this.texts.has(file)) return;
    const text = this.read(file);
    const isSimulated = (specifier: string) => {
      const resolved = this.resolve(specifier, file);
      return resolved.isSimulated || resolved.file === RUNTIME;
    };
    const key = `${file}\n${text}`;
    const code = transformed.get(key) ?? transformModule({ file, text, isSimulated, sites });
    transformed.set(key, code);
    this.texts.set(file, code);
    for (const specifier of specifiersOf(file, text)) {
      const resolved = this.resolve(specifier, file);
      if (resolved.isSimulated) await this.prepare(resolved.file);
      else if (!imported.has(resolved.file)) imported.set(resolved.file, await importReal(resolved.file));
    }
  }

  /** Throws if a change was not made. */
  checkChanges(): void {
    const missing = this.changes.find((change) => !this.applied.has(change));
    if (missing) throw new Error(`${missing.file} is not part of this scenario`);
  }

  require(file: string): Exports {
    const found = this.loaded.get(file) ?? imported.get(file);
    if (found !== undefined) return found;
    const text = this.texts.get(file);
    if (text === undefined) throw new Error(`${file} was not prepared`);
    const exports: Exports = {};
    this.loaded.set(file, exports);
    const globals = { ...this.globals, ...(file === EVENT_LOOP ? {} : this.eventLoop()) };
    const code = compiled(file, text, Object.keys(globals));
    const require = (specifier: string) => this.require(this.resolve(specifier, file).file);
    code(exports, require, ...Object.values(globals));
    return exports;
  }

  /** The globals of the event loop. */
  private eventLoop(): Exports {
    const { SimulatedPromise, queueMicrotask, setTimeout, clearTimeout } = this.require(EVENT_LOOP);
    return { Promise: SimulatedPromise, queueMicrotask, setTimeout, clearTimeout };
  }

  private read(file: string): string {
    let text = readFileSync(join(root, file), "utf8");
    for (const change of [...constants, ...this.changes]) {
      if (change.file !== file) continue;
      const [before, after, ...more] = text.split(change.from);
      if (after === undefined || more.length > 0)
        throw new Error(
          `${file} has ${more.length === 0 ? "no" : "more than one"} ${JSON.stringify(change.from)}`,
        );
      text = `${before}${change.to}${after}`;
      this.applied.add(change);
    }
    return text;
  }

  private resolve(specifier: string, from: string): { readonly file: string; readonly isSimulated: boolean } {
    const own = specifier.startsWith("#")
      ? `src/${specifier.slice(1)}.ts`
      : specifier.startsWith(".")
        ? normalize(join(dirname(from), specifier)).replace(/\.js$/, ".ts")
        : undefined;
    if (own === undefined || !existsSync(join(root, own))) return { file: specifier, isSimulated: false };
    const file = STAND_INS[own] ?? own;
    return { file, isSimulated: SIMULATED.some((folder) => file.startsWith(folder)) };
  }
}

const compiledCode = new Map<string, ReturnType<typeof compileFunction>>();

/** The code of a module as a function; most modules are the same for every planted bug. */
function compiled(file: string, text: string, globals: readonly string[]) {
  const key = `${file}\n${text}`;
  const made =
    compiledCode.get(key) ??
    compileFunction(text, ["exports", "require", ...globals], { filename: `${file} (simulated)` });
  compiledCode.set(key, made);
  return made;
}

async function importReal(file: string): Promise<Exports> {
  const path = join(root, file);
  const url = existsSync(path) ? pathToFileURL(path).href : file;
  return (await import(/* @vite-ignore */ url)) as Exports;
}
