import { findProcesses } from "#engines/processEngines";
import { environment, howToShare, numCores, sharesMemory, warn, whyNotShared } from "#platform/system";
import { Ambient } from "../ir/ambient.js";
import type { Engine } from "../ir/engine.js";
import type { EngineInfo } from "../ir/engineReports.js";
import { ConfigError } from "../ir/errors.js";
import { lazily } from "../ir/identity.js";
import { hostEngine } from "./host.js";
import { detectLaunch, isOneOfSeveral } from "./launch.js";
import { createReferenceEngine } from "./reference/engine.js";
import { type EngineSettings, environmentSettings } from "./settings.js";
import { importEngine, openEngine } from "./table.js";

/** The interpreter that this process shares. */
const referenceEngine = lazily(() =>
  hostEngine.name === "reference" ? hostEngine : createReferenceEngine(),
);

/** Says once why there is one worker for all devices. */
const warnOfOneThread = lazily(() =>
  warn(
    `[shardwise] ${whyNotShared}, so all devices take turns in one worker: to give each its own, ${howToShare}`,
  ),
);

const chosen = new Ambient<string | undefined>({
  name: "engine's name",
  initial: undefined,
  setBy: "chooseEngine",
  // Meshes made while a function is traced have this engine.
  dependence: { key: String },
});

/** The shared engine that was opened last, used by every mesh that names no engine. */
interface Shared {
  readonly name: string;
  readonly settings: EngineSettings;
  readonly engine: Engine;
}

const opened = new Ambient<Shared | undefined>({
  name: "shared engine",
  initial: undefined,
  setBy: "sharedEngine",
  dependence: { unkeyed: "compiled programs are kept for the engine that they were compiled by" },
});

/** Maximum number of worker threads: more of them take minutes to start and never finish a step. */
const maxThreads = 256;

/** Sets which engine this process shares from now on; by default the one that `SHARDWISE_ENGINE` names. */
export async function chooseEngine(name: string | undefined): Promise<void> {
  chosen.set(name);
  await importEngine(sharedName());
}

/** The engine asked for; else worker threads, joined with those of other processes if a launcher started several. */
function wantedName(): string {
  return chosen.get() ?? (environment.SHARDWISE_ENGINE || (isOneOfSeveral() ? "mpi" : "threads"));
}

/** The engine that takes the place of worker threads where these cannot share memory. */
function sharedName(): string {
  const wanted = wantedName();
  return wanted === "threads" && !sharesMemory() ? "oneThread" : wanted;
}

/**
 * The process's shared engine with at least `numDevices` devices, opened when it is first needed: worker
 * threads, as many as there are cores or as a mesh asks for. The environment variable `SHARDWISE_ENGINE` can
 * name another engine, or the package or path of one; `SHARDWISE_MEMORY` and `SHARDWISE_DEADLINE` set what
 * `settings` leave open.
 *
 * @param settings the settings it must have; if the open engine has others, another one is opened
 */
export function sharedEngine(numDevices: number, settings?: EngineSettings): Engine {
  const name = sharedName();
  if (name === "reference") return referenceEngine();
  if (name === "threads" && numDevices > maxThreads) {
    throw new ConfigError(
      `a mesh of ${numDevices} devices needs as many worker threads, on a machine with ${numCores()} processors: use at most ${maxThreads}, or set SHARDWISE_ENGINE=reference to simulate it on one`,
    );
  }
  const shared = opened.get();
  const known = shared?.name === name && shared.engine.isOpen !== false ? shared : undefined;
  const wanted = settings && { ...environmentSettings(), ...settings };
  const isUsable =
    known && known.engine.numDevices >= numDevices && isSame(wanted ?? known.settings, known.settings);
  if (isUsable) return known.engine;
  const all = wanted ?? known?.settings ?? environmentSettings();
  if (name !== wantedName()) warnOfOneThread();
  const engine = openEngine(name, { numDevices: leastDevices(name, numDevices), ...all });
  opened.set({ name, settings: all, engine });
  return engine;
}

/** How many devices the shared engine is opened with at least, for a mesh of this many. */
function leastDevices(name: string, numDevices: number): number {
  // More of them cost one thread nothing, and meshes of all sizes then share their tensors.
  if (name === "oneThread") return Number.POSITIVE_INFINITY;
  // The devices of several processes are counted together, so the number of cores of one does not matter.
  return name === "mpi" ? numDevices : Math.max(numDevices, numCores());
}

function isSame(a: EngineSettings, b: EngineSettings): boolean {
  const names = ["memoryBytes", "deadlineMs", "products", "reduction"] as const;
  return names.every((name) => a[name] === b[name]);
}

/** Number of devices of the shared engine where the machine decides it; undefined where a mesh does. */
export function givenDevices(): number | undefined {
  return sharedName() === "xla" ? sharedEngine(1).numDevices : undefined;
}

/** Index of this process among those that run this program together; asking opens no engine. */
export function sharedProcess(): Engine["process"] {
  const name = sharedName();
  const shared = opened.get();
  if (shared?.name === name) return shared.engine.process;
  const together = name === "xla" ? findProcesses(undefined) : undefined;
  if (together) return { index: together.index, count: together.count };
  const { rank: index, size: count } = (name === "mpi" ? detectLaunch() : undefined) ?? { rank: 0, size: 1 };
  return { index, count };
}

/**
 * What runs programs by default: the engine, its devices and memory, and which implementation multiplies matrices.
 *
 * @example
 * ```ts
 * engineInfo().numDevices > 0; // true
 * ```
 */
export function engineInfo(): EngineInfo {
  const engine = sharedEngine(1);
  return engine.info?.() ?? { engine: engine.name, numDevices: engine.numDevices };
}
