import { workerCode } from "#engines/threads/workerCode";
import { mayBlock, numCores } from "#platform/system";
import type { HostData } from "../../ir/dtype.js";
import type { CompileOptions, DeviceBuffer } from "../../ir/engine.js";
import { allHere, type DeviceLocations } from "../protocol/locations.js";
import { checkDeviceCount } from "../sizeChecks.js";
import { WorkersEngine } from "../workers/workersEngine.js";
import type { TestOptions } from "../workers/workersOptions.js";
import { type ThreadsEngineInfo, type ThreadsEngineOptions, threadsEngineOptions } from "./engineOptions.js";

/**
 * Opens an engine whose devices are worker threads of this process: compiled code, shared memory.
 *
 * @example
 * ```ts
 * const engine = engines.createThreadsEngine({ numDevices: 2 });
 * engine.numDevices; // 2
 * await engine.close();
 * ```
 */
export function createThreadsEngine(options: ThreadsEngineOptions): ThreadsEngine {
  return new ThreadsEngine(threadsEngineOptions.read(options, "createThreadsEngine"));
}

/** Every device is a thread; no machine supports more. */
const maxThreads = 1024;

/** The engine of worker threads; see {@link createThreadsEngine}. */
export class ThreadsEngine extends WorkersEngine {
  readonly name = "threads";
  readonly readNow?: (buffer: DeviceBuffer) => HostData;

  /** @internal */
  constructor(options: ThreadsEngineOptions, test?: TestOptions) {
    const { numDevices, signal } = options;
    signal?.throwIfAborted();
    checkDeviceCount(numDevices, "createThreadsEngine", maxThreads);
    super(
      numDevices,
      { count: numDevices, first: 0, code: workerCode(), numCores: numCores() },
      options,
      test,
    );
    signal?.addEventListener("abort", () => void this.close(), { once: true });
    if (mayBlock()) this.readNow = (buffer) => this.waitAndView(this.own(buffer, "readNow"));
  }

  /** What the engine runs on. */
  info(): ThreadsEngineInfo {
    return { ...this.localInfo(), engine: this.name };
  }

  /** @internal */
  compileSettings(): unknown {
    return this.settings;
  }

  /** @internal */
  protected locate({ devices }: CompileOptions): DeviceLocations {
    return allHere(devices);
  }
}
