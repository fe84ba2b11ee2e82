import { Ambient } from "../ir/ambient.js";
import type { Engine } from "../ir/engine.js";
import { InternalError } from "../ir/errors.js";
import { identityOf } from "../ir/identity.js";
import type { Program } from "../ir/program.js";
import type { ExecutionTarget } from "./executionTarget.js";
import type { Tensor } from "./tensor.js";

/** What tracing needs from the layers above to run ops outside of a trace. */
export interface Runtime {
  /** Where tensors made from JavaScript values live; it computes synchronously on the calling thread. */
  readonly hostEngine: Engine;
  /**
   * Runs a program on concrete tensors: on the target that it names, or else where the tensors are.
   *
   * @param key identifies the program, so that it is made and compiled only once
   */
  run(key: string, program: () => Program, inputs: readonly Tensor[], target?: ExecutionTarget): Tensor[];
}

const installed = new Ambient<Runtime | undefined>({
  name: "runtime",
  initial: undefined,
  setBy: "installRuntime",
  // Constants of a trace are stored on its engine.
  dependence: { key: (runtime) => (runtime ? String(identityOf(runtime)) : "") },
});

/** Connects the array API to engines; the package's entry point does it once. */
export function installRuntime(runtime: Runtime): void {
  installed.set(runtime);
}

/** The installed runtime. */
export function currentRuntime(): Runtime {
  const runtime = installed.get();
  if (!runtime)
    throw new InternalError('no runtime is installed: import from "shardwise", not from its parts');
  return runtime;
}
