import { availableParallelism } from "node:os";
import type { Engine } from "../ir/engine.js";
import { ShardwiseError } from "../ir/errors.js";
import { createReferenceEngine } from "./reference/engine.js";
import { createThreadsEngine, ThreadsEngine, type ThreadsEngineInfo } from "./threads/engine.js";

/** The engine that interprets: it computes at once, on the calling thread. */
export const hostEngine: Engine = createReferenceEngine();

let shared: Engine | undefined;

/** More worker threads than this take minutes to start and never finish a step. */
const maxSharedDevices = 256;

/**
 * The process's shared engine with at least `numDevices` devices, opened when it is first needed: worker
 * threads, as many as there are cores or as a mesh asks for. The environment variable `SHARDWISE_ENGINE` can
 * say `reference` instead.
 */
export function sharedEngine(numDevices: number): Engine {
  const choice = process.env.SHARDWISE_ENGINE ?? "threads";
  if (choice === "reference") return hostEngine;
  if (choice !== "threads") {
    throw new ShardwiseError("config", `SHARDWISE_ENGINE is "${choice}": use "threads" or "reference"`);
  }
  if (numDevices > maxSharedDevices) {
    throw new ShardwiseError(
      "config",
      `a mesh of ${numDevices} devices needs as many worker threads, on a machine with ${availableParallelism()} processors: use at most ${maxSharedDevices}, or set SHARDWISE_ENGINE=reference to simulate it on one`,
    );
  }
  if (!shared || shared.numDevices < numDevices || !isOpen(shared)) {
    shared = createThreadsEngine({ numDevices: Math.max(numDevices, availableParallelism()) });
  }
  return shared;
}

function isOpen(engine: Engine): boolean {
  return !(engine instanceof ThreadsEngine) || engine.isOpen;
}

/** What runs programs when nothing else is said: the engine, its devices and memory, and who multiplies matrices. */
export function engineInfo():
  | ThreadsEngineInfo
  | { readonly engine: "reference"; readonly numDevices: number } {
  const engine = sharedEngine(1);
  return engine instanceof ThreadsEngine
    ? engine.info()
    : { engine: "reference", numDevices: engine.numDevices };
}
