/** Stands in for what the simulated code asks of the system. */
import { clearTimeout, setTimeout } from "./eventLoop.js";

export const environment: Readonly<Record<string, string | undefined>> = {};
export const architecture = "simulated";
export const nodeMajor = 24;
export const howToShare = "";
export const describeRuntime = () => "the simulated machine";
export const numCores = () => 8;
export const whoAmI = () => ({ host: "simulated", pid: 1 });
export const mayBlock = () => true;
export const warn = () => {};
export const beforeExit = () => () => {};

export function backgroundTimer(action: () => void, ms: number): () => void {
  const timer = setTimeout(action, ms);
  return () => clearTimeout(timer);
}

export function backgroundInterval(action: () => void, ms: number): () => void {
  const again = () => {
    timer = setTimeout(again, ms);
    action();
  };
  let timer = setTimeout(again, ms);
  return () => clearTimeout(timer);
}
