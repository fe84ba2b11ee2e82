/**
 * Reads the flight recordings of all processes after a failure (docs/divergence.md): what every device was doing, and
 * which ones have diverged from the others.
 */

import { need } from "../../ir/arguments.js";
import { getOrInsert } from "../../ir/collections.js";
import type { FlightCollective, FlightDevice, FlightRecord, FlightRecording } from "../../ir/flight.js";
import { range } from "../../ir/shape.js";
import { describeVersion } from "./fingerprint.js";
import { collectiveOf } from "./positions.js";
import { checkRecording } from "./recordingText.js";

/** A device and the recording that contains it. */
interface Seen {
  readonly device: FlightDevice;
  readonly recording: FlightRecording;
  /** How many milliseconds late its process recorded. */
  readonly late: number;
}

/** One device's arrival at a collective. */
interface Arrival {
  readonly device: number;
  readonly record: FlightRecord;
  readonly collective: FlightCollective;
  readonly program: string;
}

/** All devices of a job. */
interface Scene {
  readonly seen: ReadonlyMap<number, Seen>;
  /** Formats a list of devices, with their processes if there are several. */
  readonly list: (devices: readonly number[]) => string;
}

/** The devices that take part in collectives together, and their arrivals, by `run:sequence`. */
interface Meeting {
  readonly program: string;
  readonly members: readonly number[];
  readonly arrivals: Map<string, Arrival[]>;
}

/** The answer to who has diverged from whom. */
export interface Blame {
  /** The devices that diverged from the others; empty if none did. */
  readonly devices: readonly number[];
  /** What they did, one sentence each. */
  readonly findings: readonly string[];
  /** One line for every device. */
  readonly rows: readonly string[];
}

/** Recordings come from validated files, or directly from callers. */
function checkRecordings(recordings: readonly FlightRecording[], caller: string): void {
  need("list", recordings, "the recordings", caller);
  for (const recording of recordings) checkRecording(recording, caller);
}

/**
 * Finds out which devices have diverged from the others, from the recordings of all processes.
 *
 * @example
 * ```ts
 * const recording = { reason: "SIGTERM", time: 0, engine: "threads", numDevices: 1, process: { index: 0, count: 1, pid: 7, host: "here" }, programs: [], devices: [{ device: 0, state: "idle", place: null, records: [] }] };
 * engines.findBlame([recording]).findings; // []
 * ```
 */
export function findBlame(recordings: readonly FlightRecording[]): Blame {
  checkRecordings(recordings, "findBlame");
  const job = newestJob(recordings);
  const seen = devicesOf(job);
  const numDevices = Math.max(...job.map((recording) => recording.numDevices));
  const expected = Number.isFinite(numDevices) ? range(numDevices) : [...seen.keys()];
  const scene: Scene = { seen, list: (devices) => listDevices(devices, processNames(job)) };
  const missing = expected.filter((device) => !seen.has(device));
  const meetings = meetingsOf(seen);
  const rows = expected.map((device) => describeRow(scene.list([device]), seen.get(device)));
  const found = findOtherProgram(scene) ?? findDivergence(meetings, scene);
  if (found !== undefined) return { ...found, rows };
  const absent = findAbsent(meetings, scene);
  if (missing.length > 0) {
    const finding = `${scene.list(missing)} left no recording: the process ended before it could write one${absent.waiters.length > 0 ? `, while ${scene.list(absent.waiters)} waited` : ""}`;
    return { devices: missing, findings: [finding], rows };
  }
  // A device that waited for others was ended because they did not arrive.
  const gone = [...seen.values()].filter(
    ({ device }) => device.state === "gone" && !absent.waiters.includes(device.device),
  );
  if (gone.length > 0) {
    const findings = gone.map(
      ({ device }) =>
        `${scene.list([device.device])} has ended${device.place === null ? "" : ` in ${device.place}`}`,
    );
    return { devices: gone.map(({ device }) => device.device), findings, rows };
  }
  return { devices: absent.devices, findings: absent.findings, rows };
}

/** The recordings of the job that failed last; the folder may also contain older ones. */
function newestJob(recordings: readonly FlightRecording[]): readonly FlightRecording[] {
  const newest = [...recordings].sort((a, b) => b.time - a.time)[0]?.process.job;
  return recordings.filter(({ process }) => process.job === newest);
}

/** Describes the process of every device if there are several processes; each has the same number of devices. */
function processNames(recordings: readonly FlightRecording[]): (device: number) => string | undefined {
  const [first] = recordings;
  if (first === undefined || first.process.count === 1) return () => undefined;
  const perProcess = first.numDevices / first.process.count;
  return (device) => {
    const index = Math.floor(device / perProcess);
    const host = recordings.find(({ process }) => process.index === index)?.process.host;
    return host === undefined ? `process ${index}` : `process ${index} on ${host}`;
  };
}

/**
 * Formats the report of {@link findBlame}.
 *
 * @example
 * ```ts
 * const recording = { reason: "SIGTERM", time: 0, engine: "threads", numDevices: 1, process: { index: 0, count: 1, pid: 7, host: "here" }, programs: [], devices: [{ device: 0, state: "idle", place: null, records: [] }] };
 * engines.formatBlame([recording]).includes("no device has diverged"); // true
 * ```
 */
export function formatBlame(recordings: readonly FlightRecording[]): string {
  checkRecordings(recordings, "formatBlame");
  const { findings, rows } = findBlame(recordings);
  const taken = newestJob(recordings).map(({ reason, time, process: { index, count, pid, host } }) => {
    const who = count === 1 ? `process ${pid}` : `process ${index} of ${count} (${pid} on ${host})`;
    return `${who}, ${new Date(time).toISOString()}: ${reason}`;
  });
  const verdict =
    findings.length > 0 ? findings : ["no device has diverged: all came to the same collectives"];
  return `${[...taken, "", ...rows, "", ...verdict].join("\n")}\n`;
}

/** Events recorded after the first recording of a failure are consequences of the failure. */
const AFTERMATH_MS = 1000;

/** Recordings older than this, relative to the newest, belong to another failure. */
const SAME_FAILURE_MS = 600_000;

/** When the first process noticed that something was wrong. */
function failureTime(recordings: readonly FlightRecording[]): number {
  const times = recordings.map(({ time }) => time);
  const newest = Math.max(...times);
  return Math.min(...times.filter((time) => newest - time < SAME_FAILURE_MS));
}

/** Every device once, as it was at the failure; a later recording of a device takes precedence over an earlier one. */
function devicesOf(recordings: readonly FlightRecording[]): Map<number, Seen> {
  const until = failureTime(recordings) + AFTERMATH_MS;
  const seen = new Map<number, Seen>();
  for (const recording of [...recordings].sort((a, b) => a.time - b.time)) {
    for (const device of recording.devices) {
      const records = device.records
        .filter(({ begin }) => begin <= until)
        .map((record) => (record.end !== null && record.end > until ? { ...record, end: null } : record));
      seen.set(device.device, { device: { ...device, records }, recording, late: recording.time - until });
    }
  }
  return seen;
}

function arrivalsOf({ device, recording }: Seen): Arrival[] {
  return device.records.flatMap((record): Arrival[] => {
    const found = collectiveOf(recording, record);
    if (found === undefined) return [];
    return [{ device: device.device, record, collective: found.collective, program: found.program.name }];
  });
}

/** Groups arrivals by the devices that should have arrived together. */
function meetingsOf(seen: ReadonlyMap<number, Seen>): Meeting[] {
  const meetings = new Map<string, Meeting>();
  for (const one of seen.values()) {
    for (const arrival of arrivalsOf(one)) {
      const members = arrival.collective.groups.find((group) => group.includes(arrival.device)) ?? [
        arrival.device,
      ];
      const program = programKey(one, arrival.record.program);
      const key = `${program}|${members}`;
      const { arrivals } = getOrInsert(meetings, key, () => ({ program, members, arrivals: new Map() }));
      const { run, sequence } = arrival.record;
      getOrInsert(arrivals, `${run}:${sequence}`, () => []).push(arrival);
    }
  }
  return [...meetings.values()];
}

/** The name of a program that all processes agree on: each may run programs of its own besides the shared ones. */
function programKey({ recording }: Seen, id: number): string {
  return recording.programs.find((program) => program.id === id)?.agreement?.key ?? String(id);
}

type Finding = Pick<Blame, "devices" | "findings">;

/** Processes that ran a different program from the majority where all must run the same one. */
function findOtherProgram({ seen, list }: Scene): Finding | undefined {
  const places = new Map<string, Map<string, { name: string; devices: number[] }>>();
  for (const [device, { recording }] of seen) {
    for (const { name, agreement } of recording.programs) {
      if (agreement === undefined) continue;
      const versions = getOrInsert(places, agreement.key, () => new Map());
      getOrInsert(versions, agreement.fingerprint, () => ({ name, devices: [] })).devices.push(device);
    }
  }
  for (const [key, versions] of places) {
    if (versions.size === 1) continue;
    const sorted = [...versions].sort(([, a], [, b]) => b.devices.length - a.devices.length);
    return {
      devices: sorted.slice(1).flatMap(([, { devices }]) => devices),
      findings: sorted.map(
        ([fingerprint, { name, devices }]) =>
          `${list(devices)} ran ${describeVersion({ name, fingerprint })} as ${key}`,
      ),
    };
  }
  return undefined;
}

/** The first point at which members of a group reached different collectives, or one continued without arriving. */
function findDivergence(meetings: readonly Meeting[], scene: Scene): Finding | undefined {
  const found = meetings.flatMap((meeting) =>
    [...meeting.arrivals.values()].flatMap((arrivals) => {
      const begin = Math.min(...arrivals.map(({ record }) => record.begin));
      const finding = differenceAmong(arrivals, scene) ?? skippedBy(meeting, arrivals, scene);
      return finding === undefined ? [] : [{ begin, finding }];
    }),
  );
  return found.sort((a, b) => a.begin - b.begin)[0]?.finding;
}

/** Members that reached a different collective from the majority. */
function differenceAmong(arrivals: readonly Arrival[], { list }: Scene): Finding | undefined {
  const kinds = new Map<number, Arrival[]>();
  for (const arrival of arrivals) getOrInsert(kinds, arrival.collective.fingerprint, () => []).push(arrival);
  const [most, ...others] = [...kinds.values()].sort((a, b) => b.length - a.length);
  if (most === undefined || others.length === 0) return undefined;
  const strays = others.flat();
  return {
    devices: strays.map(({ device }) => device),
    findings: [most, ...others].map(
      (group) => `${list(group.map(({ device }) => device))} came to ${describeArrival(group)}`,
    ),
  };
}

/** Members that went past a collective that the others reached. */
function skippedBy(
  { program, members }: Meeting,
  arrivals: readonly Arrival[],
  { seen, list }: Scene,
): Finding | undefined {
  const [first] = arrivals;
  if (first === undefined) return undefined;
  const skippers = members.filter((member) => {
    const one = seen.get(member);
    if (one === undefined || arrivals.some(({ device }) => device === member)) return false;
    return wentPast(one, program, first);
  });
  if (skippers.length === 0) return undefined;
  const others = list(arrivals.map(({ device }) => device));
  return {
    devices: skippers,
    findings: [`${list(skippers)} continued without ${describeArrival(arrivals)}, which ${others} reached`],
  };
}

/** Whether a device was before a arrival when its records begin and is behind it now. */
function wentPast(one: Seen, program: string, { record, collective }: Arrival): boolean {
  const { device, recording } = one;
  const own = device.records.filter((entry) => programKey(one, entry.program) === program);
  const [oldest] = own;
  if (oldest === undefined || oldest.run > record.run) return false;
  const sameGroups = (entry: FlightRecord) => {
    const other = collectiveOf(recording, entry)?.collective;
    return other !== undefined && String(other.groups) === String(collective.groups);
  };
  return own.some((entry) => {
    if (entry.run > record.run) return true;
    if (entry.run < record.run) return false;
    return entry.kind === "run" ? entry.end !== null : sameGroups(entry) && entry.sequence > record.sequence;
  });
}

/** Devices that others wait for and that do not wait themselves. */
function findAbsent(
  meetings: readonly Meeting[],
  { seen, list }: Scene,
): Finding & { readonly waiters: readonly number[] } {
  const waits = new Map<number, { readonly arrival: Arrival; readonly for: readonly number[] }>();
  for (const { members, arrivals } of meetings) {
    for (const present of arrivals.values()) {
      const absent = members.filter((member) => !present.some(({ device }) => device === member));
      for (const arrival of present) {
        if (arrival.record.end === null && absent.length > 0)
          waits.set(arrival.device, { arrival, for: absent });
      }
    }
  }
  const waiters = [...waits.keys()].sort((a, b) => a - b);
  const wanted = [...new Set([...waits.values()].flatMap((wait) => wait.for))].sort((a, b) => a - b);
  const culprits = wanted.filter((device) => !waits.has(device));
  if (waiters.length > 0 && culprits.length === 0) {
    const chain = waiters.map((device) => {
      const wait = waits.get(device);
      return `${list([device])} waits for ${list(wait?.for ?? [])} in ${wait ? describeArrival([wait.arrival]) : ""}`;
    });
    return { waiters, devices: waiters, findings: ["the devices wait for each other", ...chain] };
  }
  const findings = culprits.map((device) => {
    const of = [...waits.values()].filter((wait) => wait.for.includes(device));
    return `${list([device])} did not come to ${describeArrival(of.map(({ arrival }) => arrival))}, where ${list(of.map(({ arrival }) => arrival.device))} wait${of.length === 1 ? "s" : ""}: ${describeDoing(seen.get(device))}`;
  });
  return { waiters, devices: culprits, findings };
}

/** What a device is doing instead of arriving where others wait for it. */
function describeDoing(one: Seen | undefined): string {
  const place = one?.device.place ?? null;
  if (one !== undefined && one.late > 0) {
    return `its process said nothing for another ${(one.late / 1000).toFixed(1)} s`;
  }
  return place === null ? "it has no work" : `it is in ${place}`;
}

function describeArrival(arrivals: readonly Arrival[]): string {
  const [first] = arrivals;
  if (first === undefined) return "nothing";
  const { record, collective, program } = first;
  const source = collective.source === null ? "" : ` at ${collective.source}`;
  return `collective ${record.sequence} of run ${record.run} of ${JSON.stringify(program)} (${collective.text}${source})`;
}

function describeRow(name: string, seen: Seen | undefined): string {
  if (seen === undefined) return `${name} no recording`;
  const last = arrivalsOf(seen).at(-1);
  const { state, place } = seen.device;
  const parts = [`${name} ${state.padEnd(8)}`];
  if (last !== undefined) {
    const { begin, end } = last.record;
    const since = `${((seen.recording.time - (end ?? begin)) / 1000).toFixed(1)} s`;
    parts.push(`${end === null ? `for ${since} in` : `${since} after`} ${describeArrival([last])}`);
  }
  if (place !== null) parts.push(place);
  return parts.join("  ");
}

function listDevices(devices: readonly number[], processOf: (device: number) => string | undefined): string {
  const list = [...new Set(devices)].sort((a, b) => a - b);
  const names = list.map((device) => {
    const process = processOf(device);
    return process === undefined ? String(device) : `${device} (${process})`;
  });
  if (names.length === 1) return `device ${names[0]}`;
  return `devices ${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}
