/** What happens to the processes of a simulated cluster, and which errors that may cause. */

import { randomFrom } from "../search.js";
import type { Traffic } from "./network.js";

export const faultKinds = [
  "kill",
  "stop",
  "clock",
  "full disk",
  "power cut",
  "lying disk",
  "other program",
] as const;
export type FaultKind = (typeof faultKinds)[number];

/** Something that happens when a process makes a certain call of MPI. */
export interface Fault {
  readonly kind: FaultKind;
  /** Of which start of the job, the first being 1. */
  readonly start: number;
  readonly process: number;
  readonly call: number;
  /** For how many milliseconds a process is stopped, by how many a clock jumps, or how much of a disk is full. */
  readonly amount: number;
}

/** What a seed plans. */
export interface Plan {
  readonly numProcesses: number;
  readonly devicesEach: number;
  readonly traffic: Traffic;
  readonly faults: readonly Fault[];
}

const shapes = [
  [2, 1],
  [3, 1],
  [2, 2],
] as const;

/** The plan of a seed. @param callsOf about how many calls of MPI a process makes in a job of a shape */
export function planOf(seed: number, callsOf: (numProcesses: number, devicesEach: number) => number): Plan {
  const random = randomFrom(seed ^ 0x5eed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const [numProcesses, devicesEach] = pick(shapes);
  const traffic = {
    usual: pick([0.05, 0.5, 2]),
    slow: pick([5, 50]),
    slowShare: pick([0, 0.02, 0.2]),
    lateShare: pick([0, 0.5, 1]),
  };
  const numFaults = Math.floor(random() * 4);
  const calls = callsOf(numProcesses, devicesEach);
  const faults = Array.from({ length: numFaults }, (_, i): Fault[] => {
    const fault = {
      kind: pick(faultKinds),
      start: 1 + Math.floor(random() * (i + 1)),
      process: Math.floor(random() * numProcesses),
      call: 1 + Math.floor(random() * calls),
      amount: Math.ceil(random() * 1200),
    };
    // What a disk has pretended to write shows when the power goes off.
    return fault.kind === "lying disk" ? [fault, { ...fault, kind: "power cut" }] : [fault];
  }).flat();
  return { numProcesses, devicesEach, traffic, faults };
}

/** The errors that faults promise; whatever else a process says is a bug. */
const waited = /^DeviceFailedError: .*it has waited \d+ ms for (its peers|device \d+, which waits too)/s;
const leftRun = /^DesyncError: .*(was its last: it has left the run|has come to none yet)/s;
const silent = /^DeviceFailedError: .*says nothing: it was stopped, killed or cut off/s;

const promised: Readonly<Record<FaultKind, readonly RegExp[]>> = {
  kill: [silent],
  // Longer than the deadline: the others wait in vain, and say who is late, who is silent or who has not begun.
  stop: [waited, silent, leftRun],
  clock: [],
  "full disk": [/the checkpoint of step \d+ could not be written \((ENOSPC|file)\): .*(disk is full|ENOSPC)/],
  "power cut": [],
  "lying disk": [],
  "other program": [/^ProgramsDifferError/, silent],
};

/** Whether an error is one that the faults which happened promise. */
export function permitted(text: string, happened: readonly FaultKind[]): boolean {
  return happened.some((kind) => promised[kind].some((one) => one.test(text)));
}
