import { expect, test } from "vitest";
import { checkRuntime } from "./runtimeGlobals.js";

test("a runtime without what devices are made of is refused with what is missing", () => {
  expect(() => checkRuntime()).not.toThrow();
  expect(() => checkRuntime({ WebAssembly, Atomics })).toThrow(
    /Node [\d.]+ has no SharedArrayBuffer: use Node 20.19 or newer, or SHARDWISE_ENGINE=reference/,
  );
  expect(() => checkRuntime({})).toThrow(
    /no WebAssembly with SIMD and no SharedArrayBuffer and no Atomics.wait/,
  );
});
