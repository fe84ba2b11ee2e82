import type { FromProgram } from "../sandbox/messages.js";
import { lazily } from "./lazily.js";

const workerCode = lazily(async () => {
  const response = await fetch("sandbox.js");
  if (!response.ok)
    throw new Error(`the library could not be loaded: ${response.status} ${response.statusText}`);
  return response.text();
});

/** The script of the frame: starts the worker and passes messages on. */
const frameScript = `addEventListener("message", ({ data, ports: [port] }) => {
  const worker = new Worker(URL.createObjectURL(new Blob([data.worker], { type: "text/javascript" })));
  worker.onmessage = (event) => port.postMessage(event.data);
  worker.onerror = (event) => port.postMessage({ kind: "failed", message: event.message || "the worker did not start" });
  worker.postMessage({ code: data.code });
}, { once: true });
parent.postMessage("ready", "*");`;

/** A program that runs, or has ended. */
export interface RunningProgram {
  stop(): void;
}

/** What computes for a program: workers that share memory, one for each device, or its own thread. */
export type Engine = "workers" | "one thread";

/** The engines that this page has, the best first. */
export const engines: readonly Engine[] = crossOriginIsolated ? ["workers", "one thread"] : ["one thread"];

/** Runs compiled code in a worker inside of a frame of no origin. */
export async function runProgram(
  code: string,
  engine: Engine,
  told: (message: FromProgram) => void,
): Promise<RunningProgram> {
  const worker = await workerCode();
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts");
  // Without it the frame is not isolated, and the library computes on one thread.
  if (engine === "workers") frame.allow = "cross-origin-isolated";
  frame.title = "Runs the program";
  frame.hidden = true;
  frame.srcdoc = `<!doctype html><script>${frameScript}</script>`;
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data }: MessageEvent<FromProgram>) => told(data);
  const ready = ({ source }: MessageEvent) => {
    if (source !== frame.contentWindow) return;
    removeEventListener("message", ready);
    frame.contentWindow?.postMessage({ worker, code }, "*", [port2]);
  };
  addEventListener("message", ready);
  document.body.append(frame);
  return {
    stop: () => {
      removeEventListener("message", ready);
      port1.close();
      // With the frame its worker ends, also one that is in the middle of a loop.
      frame.remove();
    },
  };
}
