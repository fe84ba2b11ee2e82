/** Connects the array API to engines; every entry point that runs programs loads it, and it is done once. */
import { createCollector } from "#engines/collector";
import { hostEngine } from "../engines/host.js";
import { provideCollector } from "../ir/reclaim.js";
import "../numpy/methods.js";
import "../spmd/mesh/methods.js";
import { createRuntime } from "../spmd/run/execute.js";
import { installRuntime } from "../trace/runtime.js";

installRuntime(createRuntime(hostEngine));
provideCollector(createCollector());
