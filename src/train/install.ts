/** Connects the array API to engines; every entry point that runs programs loads it, and it is done once. */
import { createCollector } from "#engines/collector";
import { hostEngine, sharedEngine, sharedProcess } from "../engines/default.js";
import { provideCollector } from "../ir/reclaim.js";
import "../numpy/methods.js";
import { provideDefaultEngine } from "../spmd/mesh/mesh.js";
import "../spmd/mesh/methods.js";
import { createRuntime } from "../spmd/run/execute.js";
import { installRuntime } from "../trace/runtime.js";

installRuntime(createRuntime(hostEngine));
provideDefaultEngine(sharedEngine, sharedProcess);
provideCollector(createCollector());
