/** Stands in for what the simulated code asks of the system. */
import { ownProcess } from "../host.js";

export const environment: Readonly<Record<string, string | undefined>> = {};
export const architecture = "simulated";
export const nodeMajor = 24;
export const howToShare = "";
export const describeRuntime = () => "the simulated cluster";
export const numCores = () => 8;
export const whoAmI = () => ({ host: "simulated", pid: ownProcess().rank });
export const mayBlock = () => true;
export const warn = () => {};

export function beforeExit(leave: () => void): () => void {
  const { global } = ownProcess();
  global.prependListener("exit", leave);
  return () => global.off("exit", leave);
}

export function backgroundTimer(action: () => void, ms: number): () => void {
  const timer = setTimeout(action, ms);
  return () => clearTimeout(timer);
}

export function backgroundInterval(action: () => void, ms: number): () => void {
  const timer = setInterval(action, ms);
  return () => clearInterval(timer);
}
