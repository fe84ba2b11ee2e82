import { createMpiEngine, createXlaEngine, openXlaAhead } from "#engines/processEngines";
import { importModule, locateModule, modulePath, requireModule } from "#platform/modules";
import { need } from "../ir/arguments.js";
import type { Engine } from "../ir/engine.js";
import { attempt, reasonOf } from "../ir/errors.js";
import { type OptionsOf, required, schema } from "../ir/schema.js";
import { EngineLoadError } from "./errors.js";
import { createOneThreadEngine } from "./oneThread/engine.js";
import { createReferenceEngine } from "./reference/engine.js";
import { engineSettings } from "./settings.js";
import { createThreadsEngine } from "./threads/engine.js";
import { createWebGpuEngine, openWebGpu } from "./webgpu/engine.js";

const engineOptions = schema({
  ...engineSettings.fields,
  /** Minimum number of devices; an engine with a fixed set of devices, such as a machine's, ignores it. */
  numDevices: required("number"),
});

/** Settings for opening an engine by name; an engine ignores those that it does not support. */
export interface EngineOptions extends OptionsOf<typeof engineOptions> {}

/** What the module of an external engine exports. */
export interface EngineModule {
  /** Opens the engine; it may be called again for more devices, and may then return the same engine. */
  createEngine(options: EngineOptions): Engine;
}

/** The engines of this package by name, with the settings that each supports. */
const engines = {
  threads: ({ numDevices, memoryBytes, deadlineMs }: EngineOptions) =>
    createThreadsEngine({ numDevices, memoryBytes, deadlineMs }),
  oneThread: ({ numDevices, memoryBytes, deadlineMs }: EngineOptions) =>
    createOneThreadEngine({ numDevices, memoryBytes, deadlineMs }),
  reference: ({ numDevices, deadlineMs }: EngineOptions) => createReferenceEngine({ numDevices, deadlineMs }),
  mpi: ({ products: _, ...options }: EngineOptions) => createMpiEngine(options),
  xla: ({ products }: EngineOptions) => createXlaEngine({ products }),
  webgpu: ({ numDevices, memoryBytes, deadlineMs }: EngineOptions) =>
    createWebGpuEngine({ numDevices, memoryBytes, deadlineMs }),
} as const satisfies Readonly<Record<string, EngineModule["createEngine"]>>;

/** The names of the engines of this package, the default first. */
export const engineNames: readonly string[] = Object.keys(engines);

const isOwn = (name: string): name is keyof typeof engines => Object.hasOwn(engines, name);

/** Imported modules, so that their engines can be opened synchronously. */
const imported = new Map<string, EngineModule>();

/**
 * Opens an engine by its name: one of this package, or the name or path of a module that exports `createEngine`.
 * Paths begin with `.` or `/`; they and packages are looked for from the working directory.
 *
 * @example
 * ```ts
 * engines.openEngine("reference", { numDevices: 4 }).numDevices; // 4
 * ```
 */
export function openEngine(name: string, options: EngineOptions): Engine {
  need("string", name, "name", "openEngine");
  engineOptions.read(options, "openEngine");
  if (isOwn(name)) return engines[name](options);
  const { createEngine } = imported.get(name) ?? requireEngine(name);
  return checkEngine(createEngine(options), name);
}

/**
 * Imports the module of an engine ahead of {@link openEngine}. This is required for modules with top-level await, and
 * on versions of Node that cannot require ES modules. For `webgpu` it opens the GPU, or reports why there is none; for
 * `xla` it opens the devices on another thread, and {@link openEngine} reports failures.
 *
 * @example
 * ```ts
 * await engines.importEngine("threads"); // undefined
 * ```
 */
export async function importEngine(name: string): Promise<void> {
  need("string", name, "name", "importEngine");
  if (name === "webgpu") await openWebGpu();
  if (name === "xla") await openXlaAhead();
  if (isOwn(name)) return;
  const exports = await importModule(locate(name)).catch((cause) => {
    throw broken(name, reasonOf(cause), cause);
  });
  imported.set(name, checkModule(exports, name));
}

/** Path of an engine's module. */
function locate(name: string): string {
  try {
    return locateModule(name);
  } catch (cause) {
    const list = engineNames.map((own) => `"${own}"`).join(", ");
    const path = modulePath(name);
    const looked = path === undefined ? "there is no package of this name here" : `there is no file ${path}`;
    throw new EngineLoadError(
      `unknown engine "${name}": use ${list}, or a package or path of a module that exports createEngine; ${looked}`,
      { cause },
    );
  }
}

function requireEngine(name: string): EngineModule {
  const found = locate(name);
  const exports = attempt(
    () => requireModule(found),
    (reason, cause) => broken(name, reason, cause),
  );
  return checkModule(exports, name);
}

function broken(name: string, reason: string, cause: unknown): EngineLoadError {
  return new EngineLoadError(`the engine "${name}" cannot be loaded: ${reason}`, { cause });
}

function checkModule(exports: unknown, name: string): EngineModule {
  if (isModule(exports)) return exports;
  const names = typeof exports === "object" && exports !== null ? Object.keys(exports) : [];
  throw new EngineLoadError(
    `the engine "${name}" exports no function createEngine({ numDevices }); it exports ${names.join(", ") || "nothing"}`,
  );
}

function isModule(exports: unknown): exports is EngineModule {
  return (
    typeof exports === "object" &&
    exports !== null &&
    "createEngine" in exports &&
    typeof exports.createEngine === "function"
  );
}

/** Types of the members of an engine; a question mark at the end means optional. */
const members: { readonly [K in keyof Required<Engine>]: string } = {
  name: "string",
  numDevices: "number",
  process: "object",
  isAddressable: "function",
  compile: "function",
  upload: "function",
  uploadBy: "function?",
  download: "function",
  downloadInto: "function?",
  ready: "function",
  peek: "function",
  readNow: "function?",
  transfer: "function",
  release: "function",
  close: "function",
  onClose: "function?",
  isOpen: "boolean?",
  selfCollecting: "boolean?",
  info: "function?",
  memoryUsage: "function?",
  share: "function?",
  compileSettings: "function?",
  tracer: "object?",
  placeOf: "function?",
  clockAhead: "function?",
  keepFlightsIn: "function?",
  flightRecording: "function?",
};

function checkEngine(made: unknown, name: string): Engine {
  if (isEngine(made)) return made;
  const what =
    typeof made !== "object" || made === null
      ? `createEngine returned ${made === null ? "null" : typeof made}`
      : made instanceof Promise
        ? "createEngine returned a promise, but engines are opened without waiting"
        : `its ${wrongMembers(made).join(", its ")}`;
  throw new EngineLoadError(`"${name}" is not an engine: ${what}; see docs/engines.md`);
}

function isEngine(made: unknown): made is Engine {
  return typeof made === "object" && made !== null && wrongMembers(made).length === 0;
}

function wrongMembers(made: object): string[] {
  return Object.entries(members).flatMap(([member, kind]) => {
    const is = typeof Reflect.get(made, member);
    const wanted = kind.replace("?", "");
    if (is === wanted || (is === "undefined" && wanted !== kind)) return [];
    return [`${member} is ${is === "undefined" ? "missing" : `a ${is}`} and not a ${wanted}`];
  });
}
