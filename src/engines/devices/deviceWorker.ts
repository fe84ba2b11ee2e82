import { nativeCopy } from "#engines/collectives/nativeCopy";
import { pinThread } from "#engines/system/pinning";
import { type OwnThread, runThread } from "#platform/threads";
import { runHostStep } from "../../compiler/kernel/hostKernels.js";
import { kernelImports } from "../../compiler/kernel/kernelLibrary.js";
import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import { GemmPreparer } from "../products/gemm.js";
import { deviceBase, reportEvent, STATE, WORD } from "../protocol/control.js";
import { Crew } from "../protocol/crew.js";
import type { Fault } from "../protocol/faults.js";
import { type LoopHost, runDevice } from "./deviceLoop.js";
import { type HelperHost, type HelperMessage, type HelperSetup, runHelper } from "./helper.js";
import { ReleasedObjects } from "./releasedObjects.js";
import { SCRATCH } from "./scratch.js";
import type { WorkerMessage, WorkerSetup } from "./workerMessages.js";

/** What a thread is started with; `extra` is for the entry point of its engine alone. */
type Started =
  | { readonly role: "device"; readonly setup: WorkerSetup; readonly extra: unknown }
  | { readonly role: "helper"; readonly setup: HelperSetup };

/**
 * Runs what this worker thread was started for until its engine stops: a device, or a helper of one.
 *
 * @param connector takes the engine's extra data and returns `LoopHost.connect`
 */
export function runDeviceWorker(connector: (extra: unknown) => LoopHost["connect"]): void {
  void runThread((own) => {
    const started = own.data as Started;
    const core =
      started.role === "helper"
        ? started.setup.core
        : started.setup.cores[started.setup.device * started.setup.threads];
    if (core !== undefined) pinThread(core);
    if (started.role === "helper") return runHelper(started.setup, helperHost(own));
    return runWorker(started.setup, own, connector(started.extra));
  });
}

function helperHost(own: OwnThread): HelperHost {
  return {
    receive: () => own.take() as HelperMessage | undefined,
    released: new ReleasedObjects(),
    kernelImports,
  };
}

async function runWorker(setup: WorkerSetup, own: OwnThread, connect: LoopHost["connect"]): Promise<void> {
  const clockOffset = performance.timeOrigin - setup.timeOrigin;
  const crew = setup.crew && new Crew(setup.crew, setup.threads);
  const gemmsOn = (memory: WebAssembly.Memory, scratch: number) =>
    new GemmPreparer(memory, setup.gemm, scratch + SCRATCH.gemm, crew);
  let gemms = gemmsOn(at(setup.layout.memories, setup.device), setup.scratch);
  // A main thread that waits without its event loop would not hear of the end of this thread otherwise.
  own.atExit(() => {
    Atomics.store(setup.control, deviceBase(setup.device) + WORD.state, STATE.gone);
    reportEvent(setup.control);
  });
  await runDevice(setup, {
    receive() {
      const received = own.next();
      if (received === undefined) throw new InternalError("[threads] a message was announced but not sent");
      return received as WorkerMessage | Promise<WorkerMessage>;
    },
    moveTo(memory, scratch) {
      gemms.release();
      gemms = gemmsOn(memory, scratch);
    },
    released: new ReleasedObjects(),
    kernelImports,
    prepareGemm: (step, module) => gemms.prepare(step, module),
    crew,
    runHostStep: (step, table, memory) => runHostStep(step, table, memory.buffer),
    copyBetween: nativeCopy,
    connect,
    now: () => performance.now() + clockOffset,
    wrap(program, index, action) {
      const fault = setup.faults.find(
        (f) => f.device === setup.device && f.program === program && f.step === index,
      );
      return fault === undefined ? action : () => fail(fault, own);
    },
  });
  gemms.release();
}

function fail(fault: Fault, own: OwnThread): never {
  switch (fault.kind) {
    case "throw":
      throw new RangeError("injected fault");
    case "exit":
      return own.exit();
    case "hang":
      for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }
}
