/** Tells from the recordings of all processes what every device was doing, and which one left the others. */
import type { FlightCollective, FlightDevice, FlightRecord, FlightRecording } from "../../ir/flight.js";
import { range } from "../../ir/shape.js";

/** A device with the recording that it is in. */
interface Seen {
  readonly device: FlightDevice;
  readonly recording: FlightRecording;
}

/** One collective as one device came to it. */
interface Visit {
  readonly device: number;
  readonly record: FlightRecord;
  readonly collective: FlightCollective;
  readonly program: string;
}

/** The devices that take part in collectives together, and what they came to, by `run:sequence`. */
interface Meeting {
  readonly program: number;
  readonly members: readonly number[];
  readonly visits: Map<string, Visit[]>;
}

/** The answer to who left whom. */
export interface Blame {
  /** The devices that did something else than the others; none when nothing is wrong. */
  readonly devices: readonly number[];
  /** What they did, a sentence each. */
  readonly findings: readonly string[];
  /** One line for every device. */
  readonly rows: readonly string[];
}

/** Finds out which devices left the others, from the recordings of all processes. */
export function findBlame(recordings: readonly FlightRecording[]): Blame {
  const seen = devicesOf(recordings);
  const numDevices = Math.max(...recordings.map((recording) => recording.numDevices));
  const expected = Number.isFinite(numDevices) ? range(numDevices) : [...seen.keys()];
  const missing = expected.filter((device) => !seen.has(device));
  const meetings = meetingsOf(seen);
  const rows = expected.map((device) => describeRow(device, seen.get(device)));
  const parting = findParting(meetings, seen);
  if (parting !== undefined) return { ...parting, rows };
  const gone = [...seen.values()].filter(({ device }) => device.state === "gone");
  const absent = findAbsent(meetings, seen);
  if (missing.length > 0) {
    const finding = `${listDevices(missing)} left no recording: the process ended before it could write one${absent.waiters.length > 0 ? `, while ${listDevices(absent.waiters)} waited` : ""}`;
    return { devices: missing, findings: [finding], rows };
  }
  if (gone.length > 0) {
    const findings = gone.map(
      ({ device }) =>
        `device ${device.device} has ended${device.place === null ? "" : ` in ${device.place}`}`,
    );
    return { devices: gone.map(({ device }) => device.device), findings, rows };
  }
  return { devices: absent.devices, findings: absent.findings, rows };
}

/** The report of {@link findBlame} as text. */
export function formatBlame(recordings: readonly FlightRecording[]): string {
  const { findings, rows } = findBlame(recordings);
  const taken = recordings.map(({ reason, time, process: { index, count, pid, host } }) => {
    const who = count === 1 ? `process ${pid}` : `process ${index} of ${count} (${pid} on ${host})`;
    return `${who}, ${new Date(time).toISOString()}: ${reason}`;
  });
  const verdict =
    findings.length > 0 ? findings : ["no device left the others: all came to the same collectives"];
  return `${[...taken, "", ...rows, "", ...verdict].join("\n")}\n`;
}

/** Every device once; a later recording of it counts more than an earlier one. */
function devicesOf(recordings: readonly FlightRecording[]): Map<number, Seen> {
  const seen = new Map<number, Seen>();
  for (const recording of [...recordings].sort((a, b) => a.time - b.time)) {
    for (const device of recording.devices) seen.set(device.device, { device, recording });
  }
  return seen;
}

function visitsOf({ device, recording }: Seen): Visit[] {
  const programs = new Map(recording.programs.map((program) => [program.id, program]));
  return device.records.flatMap((record): Visit[] => {
    const program = programs.get(record.program);
    const collective = program?.collectives[record.collective];
    if (program === undefined || collective === undefined) return [];
    return [{ device: device.device, record, collective, program: program.name }];
  });
}

/** Groups what devices came to by who should have come there together. */
function meetingsOf(seen: ReadonlyMap<number, Seen>): Meeting[] {
  const meetings = new Map<string, Meeting>();
  for (const one of seen.values()) {
    for (const visit of visitsOf(one)) {
      const members = visit.collective.groups.find((group) => group.includes(visit.device)) ?? [visit.device];
      const key = `${visit.record.program}|${members}`;
      const meeting = meetings.get(key) ?? { program: visit.record.program, members, visits: new Map() };
      meetings.set(key, meeting);
      const at = `${visit.record.run}:${visit.record.sequence}`;
      meeting.visits.set(at, [...(meeting.visits.get(at) ?? []), visit]);
    }
  }
  return [...meetings.values()];
}

type Finding = Pick<Blame, "devices" | "findings">;

/** The first place at which members of a group came to different collectives, or one went on without coming. */
function findParting(meetings: readonly Meeting[], seen: ReadonlyMap<number, Seen>): Finding | undefined {
  const found = meetings.flatMap((meeting) =>
    [...meeting.visits.values()].flatMap((visits) => {
      const begin = Math.min(...visits.map(({ record }) => record.begin));
      const finding = differenceAmong(visits) ?? skippedBy(meeting, visits, seen);
      return finding === undefined ? [] : [{ begin, finding }];
    }),
  );
  return found.sort((a, b) => a.begin - b.begin)[0]?.finding;
}

/** Members that came to another collective than most of the others. */
function differenceAmong(visits: readonly Visit[]): Finding | undefined {
  const kinds = new Map<number, Visit[]>();
  for (const visit of visits) {
    const { fingerprint } = visit.collective;
    kinds.set(fingerprint, [...(kinds.get(fingerprint) ?? []), visit]);
  }
  const [most, ...others] = [...kinds.values()].sort((a, b) => b.length - a.length);
  if (most === undefined || others.length === 0) return undefined;
  const strays = others.flat();
  return {
    devices: strays.map(({ device }) => device),
    findings: [most, ...others].map(
      (group) => `${listDevices(group.map(({ device }) => device))} came to ${describeVisit(group)}`,
    ),
  };
}

/** Members that went past a collective to which the others came. */
function skippedBy(
  { program, members }: Meeting,
  visits: readonly Visit[],
  seen: ReadonlyMap<number, Seen>,
): Finding | undefined {
  const [first] = visits;
  if (first === undefined) return undefined;
  const skippers = members.filter((member) => {
    const one = seen.get(member);
    if (one === undefined || visits.some(({ device }) => device === member)) return false;
    return wentPast(one, program, first);
  });
  if (skippers.length === 0) return undefined;
  const others = listDevices(visits.map(({ device }) => device));
  return {
    devices: skippers,
    findings: [`${listDevices(skippers)} went on without ${describeVisit(visits)}, to which ${others} came`],
  };
}

/** Whether a device was before a visit when its records begin and is behind it now. */
function wentPast({ device, recording }: Seen, program: number, { record, collective }: Visit): boolean {
  const own = device.records.filter((one) => one.program === program);
  const [oldest] = own;
  if (oldest === undefined || oldest.run > record.run) return false;
  const sameGroups = (one: FlightRecord) => {
    const other = recording.programs.find(({ id }) => id === program)?.collectives[one.collective];
    return other !== undefined && String(other.groups) === String(collective.groups);
  };
  return own.some((one) => {
    if (one.run > record.run) return true;
    if (one.run < record.run) return false;
    return one.kind === "run" ? one.end !== null : sameGroups(one) && one.sequence > record.sequence;
  });
}

/** Who is waited for and does not wait itself. */
function findAbsent(
  meetings: readonly Meeting[],
  seen: ReadonlyMap<number, Seen>,
): Finding & { readonly waiters: readonly number[] } {
  const waits = new Map<number, { readonly visit: Visit; readonly for: readonly number[] }>();
  for (const { members, visits } of meetings) {
    for (const list of visits.values()) {
      const absent = members.filter((member) => !list.some(({ device }) => device === member));
      for (const visit of list) {
        if (visit.record.end === null && absent.length > 0) waits.set(visit.device, { visit, for: absent });
      }
    }
  }
  const waiters = [...waits.keys()].sort((a, b) => a - b);
  const wanted = [...new Set([...waits.values()].flatMap((wait) => wait.for))].sort((a, b) => a - b);
  const culprits = wanted.filter((device) => !waits.has(device));
  if (waiters.length > 0 && culprits.length === 0) {
    const chain = waiters.map((device) => {
      const wait = waits.get(device);
      return `device ${device} waits for ${listDevices(wait?.for ?? [])} in ${wait ? describeVisit([wait.visit]) : ""}`;
    });
    return { waiters, devices: waiters, findings: ["the devices wait for each other", ...chain] };
  }
  const findings = culprits.map((device) => {
    const of = [...waits.values()].filter((wait) => wait.for.includes(device));
    const place = seen.get(device)?.device.place;
    const doing = place === null || place === undefined ? "it has no work" : `it is in ${place}`;
    return `device ${device} did not come to ${describeVisit(of.map(({ visit }) => visit))}, where ${listDevices(of.map(({ visit }) => visit.device))} wait${of.length === 1 ? "s" : ""}: ${doing}`;
  });
  return { waiters, devices: culprits, findings };
}

function describeVisit(visits: readonly Visit[]): string {
  const [first] = visits;
  if (first === undefined) return "nothing";
  const { record, collective, program } = first;
  const source = collective.source === null ? "" : ` at ${collective.source}`;
  return `collective ${record.sequence} of run ${record.run} of ${JSON.stringify(program)} (${collective.text}${source})`;
}

function describeRow(device: number, seen: Seen | undefined): string {
  const name = `device ${String(device).padEnd(3)}`;
  if (seen === undefined) return `${name} no recording`;
  const last = visitsOf(seen).at(-1);
  const { state, place } = seen.device;
  const parts = [`${name} ${state.padEnd(8)}`];
  if (last !== undefined) {
    const { begin, end } = last.record;
    const since = `${((seen.recording.time - (end ?? begin)) / 1000).toFixed(1)} s`;
    parts.push(`${end === null ? `for ${since} in` : `${since} after`} ${describeVisit([last])}`);
  }
  if (place !== null) parts.push(place);
  return parts.join("  ");
}

function listDevices(devices: readonly number[]): string {
  const list = [...new Set(devices)].sort((a, b) => a - b);
  if (list.length === 1) return `device ${list[0]}`;
  return `devices ${list.slice(0, -1).join(", ")} and ${list.at(-1)}`;
}
