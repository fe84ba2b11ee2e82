/** What happens to the processes of a simulated cluster, and which errors that may cause. */

import { randomFrom } from "../search.js";
import type { Traffic } from "./network.js";

export const faultKinds = [
  "kill",
  "stop",
  "clock",
  "sleep",
  "full disk",
  "power cut",
  "lying disk",
  "other program",
] as const;
export type FaultKind = (typeof faultKinds)[number];

/** How long devices may get no further. */
export const DEADLINE_MS = 800;

/** How long answers are waited for when devices have waited in vain: not until the watchdogs of the others speak. */
export const ANSWER_MS = 700;

/** How late a process is before all machines sleep, so that the watchdogs of the others have looked by then. */
export const LATE_MS = 230;

/** Something that happens when a process makes a certain call of MPI. */
export interface Fault {
  readonly kind: FaultKind;
  /** Of which start of the job, the first being 1. */
  readonly start: number;
  readonly process: number;
  readonly call: number;
  /** For how many milliseconds a process is stopped or all sleep, by how many a clock jumps, or how much of a disk is full. */
  readonly amount: number;
}

/** What a seed plans. */
export interface Plan {
  readonly numProcesses: number;
  readonly devicesEach: number;
  readonly traffic: Traffic;
  /** Whether training goes on while a checkpoint is written. */
  readonly savesInBackground: boolean;
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
    // What processes share, what they call out to each other, or tensors.
    slowComm: pick([0, 0, 0, 100, 101, 102]),
  };
  const numFaults = Math.floor(random() * 4);
  const calls = callsOf(numProcesses, devicesEach);
  // Processes find and compare each other when they begin: a third of all faults happen then.
  const momentOf = () => 1 + Math.floor(random() * pick([calls, calls, calls / 10]));
  const faults = Array.from({ length: numFaults }, (_, i): Fault[] => {
    const fault = {
      kind: pick(faultKinds),
      start: 1 + Math.floor(random() * (i + 1)),
      process: Math.floor(random() * numProcesses),
      call: momentOf(),
      amount: Math.ceil(random() * 2 * DEADLINE_MS),
    };
    // What a disk has pretended to write shows when the power goes off.
    return fault.kind === "lying disk" ? [fault, { ...fault, kind: "power cut" }] : [fault];
  }).flat();
  return { numProcesses, devicesEach, traffic, faults, savesInBackground: random() < 0.5 };
}

/** The errors that faults promise; whatever else a process says is a bug. */
const waited =
  /^DeviceFailedError: (?!.*says nothing).*it has waited \d+ ms for (its peers|device \d+, which waits too)/s;
const leftRun = /^DesyncError: .*(was its last: it has left the run|has come to none yet)/s;
const silent = /^DeviceFailedError: .*says nothing: it was stopped, killed or cut off/s;

const promised: Readonly<Record<FaultKind, readonly RegExp[]>> = {
  kill: [silent],
  stop: [],
  clock: [],
  sleep: [],
  "full disk": [/the checkpoint of step \d+ could not be written \((ENOSPC|file)\): .*(disk is full|ENOSPC)/],
  "power cut": [],
  "lying disk": [],
  "other program": [/^ProgramsDifferError/, silent],
};

/** The most that a watchdog counts at once, however long nobody ran or whatever a clock says. */
const LONGEST_LOOK_MS = DEADLINE_MS / 2;

/** What two messages of a collective take at most. */
const MESSAGES_MS = 150;

/** Who is stopped for less goes on early enough to look, and to answer, before the others give up asking it. */
const ANSWERED_MS = DEADLINE_MS + ANSWER_MS - 200;

/** The time by which a fault holds others up, as their watchdogs count it. */
function timeLost({ kind, amount }: Fault): number {
  if (kind === "stop") return amount;
  if (kind === "sleep") return LATE_MS + Math.min(amount, LONGEST_LOOK_MS);
  return kind === "clock" ? Math.min(amount, LONGEST_LOOK_MS) : 0;
}

/** Whether an error is one that the faults which happened promise. */
export function permitted(text: string, happened: readonly Fault[]): boolean {
  const held = happened.filter((fault) => timeLost(fault) > 0);
  const lost = held.reduce((sum, fault) => sum + timeLost(fault), 0);
  const errors = happened.flatMap(({ kind }) => promised[kind]);
  // Who waits for longer than the deadline says who is late, or who has not begun.
  if (lost >= DEADLINE_MS - MESSAGES_MS) errors.push(waited, leftRun);
  if (held.length > 1 || lost > ANSWERED_MS) errors.push(silent);
  return errors.some((one) => one.test(text));
}
