/** Loads modules for the simulated machine, and those they import from the simulated folders. */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { compileFunction } from "node:vm";
import ts from "typescript";
import { getOrInsert } from "../../src/ir/collections.js";
import { identityOf } from "../../src/ir/identity.js";
import { constants } from "./constants.js";
import { specifiersOf } from "./imports.js";
import { globalsFor } from "./runtime.js";
import { type Site, transformModule } from "./transform.js";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** What runs on a machine, and how. */
export interface Setting {
  /** The folders and files whose code runs on the machine. */
  readonly simulated: readonly string[];
  /** What stands in for code that cannot run there, by what it stands in for. */
  readonly standIns: Readonly<Record<string, string>>;
  readonly constants: readonly Change[];
  /** Whether code runs as it is: what it awaits is resolved in a chosen order, but nothing else is chosen. */
  readonly isPlain?: boolean;
  /** The module with the globals of the event loop, if it is simulated, too. */
  readonly eventLoop?: string;
  /** What modules see as globals. @param require gives the module of a file */
  globals(require: (file: string) => Exports): Exports;
}

/** Where `await` and timers are simulated. */
const EVENT_LOOP = "test/explore/simulated/eventLoop.ts";

/** One process with threads that share memory. */
const threads: Setting = {
  simulated: [
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
  ],
  // WebAssembly, native calls, threads of the system.
  standIns: {
    "src/engines/collectives/moveKernels.ts": "test/explore/simulated/moveKernels.ts",
    "src/engines/system/pages.ts": "test/explore/simulated/pages.ts",
    "src/engines/threads/workerCode.ts": "test/explore/simulated/workerCode.ts",
    "src/platform/system.ts": "test/explore/simulated/system.ts",
    "src/platform/threads.ts": "test/explore/simulated/threads.ts",
  },
  constants,
  eventLoop: EVENT_LOOP,
  globals: (require) => globalsFor(() => require(EVENT_LOOP)),
};

/** What simulated code may call of the machine. */
const RUNTIME = "test/explore/runtime.ts";

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

export type Exports = Record<string, unknown>;

/** Loads a module with changed sources. */
export async function loadSimulated(entry: string, changes: readonly Change[]): Promise<SimulatedCode> {
  const instantiate = await loadModules(entry, changes, threads);
  return { exports: instantiate(), sites };
}

/** Prepares modules with changed sources; each call of the result gives new instances of all that are simulated. */
export async function loadModules(
  entry: string,
  changes: readonly Change[],
  setting: Setting,
): Promise<() => Exports> {
  const loader = new Loader(changes, setting);
  await loader.prepare(entry);
  loader.checkChanges();
  if (setting.eventLoop) await loader.prepare(setting.eventLoop);
  return () => loader.instance()(entry);
}

/** The places that transformed code mentions, and what was transformed before, by setting, file and text. */
const sites: Site[] = [];
const transformed = new Map<string, string>();
const imported = new Map<string, Exports>();

interface Resolved {
  readonly file: string;
  readonly isSimulated: boolean;
}

class Loader {
  private readonly texts = new Map<string, string>();
  private readonly codes = new Map<string, ReturnType<typeof compileFunction>>();
  private readonly resolved = new Map<string, Resolved>();
  private readonly applied = new Set<Change>();

  constructor(
    private readonly changes: readonly Change[],
    private readonly setting: Setting,
  ) {}

  /** Transforms a module and all it imports; imports what is not simulated. */
  async prepare(file: string): Promise<void> {
    if (this.texts.has(file)) return;
    const text = this.read(file);
    const isSimulated = (specifier: string) => {
      const resolved = this.resolve(specifier, file);
      return resolved.isSimulated || resolved.file === RUNTIME;
    };
    // What is simulated differs between settings, and with it what becomes of a call.
    const key = `${identityOf(this.setting)} ${file}\n${text}`;
    const transform = this.setting.isPlain ? plainModule : transformModule;
    const code = transformed.get(key) ?? transform({ file, text, isSimulated, sites });
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

  /** Gives modules by their files; each is run once. */
  instance(): (file: string) => Exports {
    const { eventLoop } = this.setting;
    const loaded = new Map<string, Exports>();
    const require = (file: string): Exports => {
      const found = loaded.get(file) ?? imported.get(file);
      if (found !== undefined) return found;
      const text = this.texts.get(file);
      if (text === undefined) throw new Error(`${file} was not prepared`);
      const exports: Exports = {};
      loaded.set(file, exports);
      const more = eventLoop === undefined || file === eventLoop ? {} : globalsOf(require(eventLoop));
      const all = { ...globals, ...more };
      const code = getOrInsert(this.codes, file, () => compiled(file, text, Object.keys(all)));
      code(
        exports,
        (specifier: string) => require(this.resolve(specifier, file).file),
        ...Object.values(all),
      );
      return exports;
    };
    const globals = this.setting.globals(require);
    return require;
  }

  private read(file: string): string {
    let text = readFileSync(join(root, file), "utf8");
    for (const change of [...this.setting.constants, ...this.changes]) {
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

  private resolve(specifier: string, from: string): Resolved {
    return getOrInsert(this.resolved, `${from} ${specifier}`, () => this.find(specifier, from));
  }

  private find(specifier: string, from: string): Resolved {
    const own = specifier.startsWith("#")
      ? `src/${specifier.slice(1)}.ts`
      : specifier.startsWith(".")
        ? normalize(join(dirname(from), specifier)).replace(/\.js$/, ".ts")
        : undefined;
    const { simulated, standIns } = this.setting;
    if (own === undefined || !existsSync(join(root, own)))
      return { file: standIns[specifier] ?? specifier, isSimulated: specifier in standIns };
    const file = standIns[own] ?? own;
    return { file, isSimulated: simulated.some((folder) => file.startsWith(folder)) };
  }
}

/** A module without types, with `require` and `exports`. */
function plainModule({ file, text }: { readonly file: string; readonly text: string }): string {
  const { ESNext: target } = ts.ScriptTarget;
  const compilerOptions = { target, module: ts.ModuleKind.CommonJS, verbatimModuleSyntax: false };
  return ts.transpileModule(text, { fileName: file, compilerOptions }).outputText;
}

/** The globals of a simulated event loop. */
function globalsOf({ SimulatedPromise, queueMicrotask, setTimeout, clearTimeout }: Exports): Exports {
  return { Promise: SimulatedPromise, queueMicrotask, setTimeout, clearTimeout };
}

const compiledCode = new Map<string, ReturnType<typeof compileFunction>>();

/** The code of a module as a function; most modules are the same for every planted bug. */
function compiled(file: string, text: string, globals: readonly string[]) {
  const key = `${globals.join()} ${file}\n${text}`;
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
