import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { runHostStep } from "../../compiler/kernel/hostKernels.js";
import { kernelImports } from "../../compiler/kernel/kernelLibrary.js";
import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import { nativeCopy } from "../collectives/nativeCopy.js";
import { GemmPreparer } from "../products/gemm.js";
import { deviceBase, reportEvent, STATE, WORD } from "../protocol/control.js";
import { Crew } from "../protocol/crew.js";
import type { Fault } from "../protocol/faults.js";
import { pinThread } from "../system/pinning.js";
import { type LoopHost, runDevice } from "./deviceLoop.js";
import { Forgotten } from "./forgotten.js";
import { type HelperHost, type HelperMessage, type HelperSetup, runHelper } from "./helper.js";
import type { WorkerFailure, WorkerMessage, WorkerSetup } from "./messages.js";
import { SCRATCH } from "./scratch.js";

/** What a thread is started with; `extra` is what only the entry point of its engine understands. */
type Started =
  | {
      readonly role: "device";
      readonly setup: WorkerSetup;
      readonly port: MessagePort;
      readonly extra: unknown;
    }
  | { readonly role: "helper"; readonly setup: HelperSetup; readonly port: MessagePort };

/**
 * Runs what this worker thread was started for until its engine stops: a device, or the help for one.
 *
 * @param connector gets what the engine added for its own workers, and gives what `LoopHost.connect` is
 */
export function runNodeWorker(connector: (extra: unknown) => LoopHost["connect"]): void {
  const started = workerData as Started;
  const core =
    started.role === "helper"
      ? started.setup.core
      : started.setup.cores[started.setup.device * started.setup.threads];
  if (core !== undefined) pinThread(core);
  try {
    if (started.role === "helper") runHelper(started.setup, helperHost(started.port));
    else runWorker(started.setup, started.port, connector(started.extra));
  } catch (error) {
    // Left to Node, it would abort the process when the main thread happens to end this thread at the same time.
    parentPort?.postMessage(failureOf(error));
  } finally {
    // Nothing listens any more; an open port would keep the thread.
    started.port.close();
  }
}

function failureOf(error: unknown): WorkerFailure {
  if (!(error instanceof Error)) return { name: "Error", message: String(error), stack: undefined };
  const { name, message, stack } = error;
  return { name, message, stack };
}

function helperHost(port: MessagePort): HelperHost {
  return {
    receive: () => receiveMessageOnPort(port)?.message as HelperMessage | undefined,
    forgotten: new Forgotten(),
    kernelImports,
  };
}

function runWorker(setup: WorkerSetup, port: MessagePort, connect: LoopHost["connect"]): void {
  const clockOffset = performance.timeOrigin - setup.timeOrigin;
  const crew = setup.crew && new Crew(setup.crew, setup.threads);
  const gemmsOn = (memory: WebAssembly.Memory, scratch: number) =>
    new GemmPreparer(memory, setup.gemm, scratch + SCRATCH.gemm, crew);
  let gemms = gemmsOn(at(setup.layout.memories, setup.device), setup.scratch);
  // A main thread that waits without its event loop would not hear of the end of this thread otherwise.
  process.on("exit", () => {
    Atomics.store(setup.control, deviceBase(setup.device) + WORD.state, STATE.gone);
    reportEvent(setup.control);
  });
  runDevice(setup, {
    receive() {
      const received = receiveMessageOnPort(port);
      if (received === undefined) throw new InternalError("[threads] a message was announced but not sent");
      return received.message as WorkerMessage;
    },
    moveTo(memory, scratch) {
      gemms.release();
      gemms = gemmsOn(memory, scratch);
    },
    forgotten: new Forgotten(),
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
      return fault === undefined ? action : () => fail(fault);
    },
  });
  gemms.release();
}

function fail(fault: Fault): void {
  switch (fault.kind) {
    case "throw":
      throw new RangeError("injected fault");
    case "exit":
      process.exit(0);
      break;
    case "hang":
      for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }
}
