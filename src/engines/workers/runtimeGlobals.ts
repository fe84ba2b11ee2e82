import { describeRuntime, howToShare } from "#platform/system";
import { ModuleBuilder } from "../../compiler/wasm/assembler.js";
import { EngineLoadError } from "../errors.js";

/** The globals that the engine requires of a runtime. */
export interface RuntimeGlobals {
  readonly WebAssembly?: unknown;
  readonly SharedArrayBuffer?: unknown;
  readonly Atomics?: unknown;
}

/** Throws for a runtime that lacks what devices need, naming what is missing. */
export function checkRuntime(globals: RuntimeGlobals = globalThis): void {
  const needed: Readonly<Record<string, boolean>> = {
    "WebAssembly with SIMD": globals.WebAssembly !== undefined && hasSimd(),
    SharedArrayBuffer: globals.SharedArrayBuffer !== undefined,
    "Atomics.wait": typeof globals.Atomics === "object" && hasWait(globals.Atomics),
  };
  const missing = Object.keys(needed).filter((name) => !needed[name]);
  if (missing.length === 0) return;
  throw new EngineLoadError(
    `[createThreadsEngine] ${describeRuntime()} has no ${missing.join(" and no ")}: ${howToShare}`,
  );
}

function hasSimd(): boolean {
  const builder = new ModuleBuilder();
  builder.function(
    { params: [], results: ["i32"] },
    (code) => code.v128([0, 0, 0, 0]).vector("v128.any_true"),
    "f",
  );
  return WebAssembly.validate(builder.toBytes());
}

function hasWait(atomics: object | null): boolean {
  return atomics !== null && "wait" in atomics;
}
