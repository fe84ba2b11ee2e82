/** The recordings of flight recorders as JSON. The content is untrusted: every field is checked. */

import { need } from "../../ir/arguments.js";
import { ShardwiseError } from "../../ir/errors.js";
import type {
  FlightAgreement,
  FlightCollective,
  FlightDevice,
  FlightProgram,
  FlightRecord,
  FlightRecording,
  FlightState,
} from "../../ir/flight.js";

/** @internal How the file of a recording begins. */
export const format = "shardwise-flight";
const version = 1;
const states: readonly FlightState[] = ["starting", "idle", "running", "waiting", "gone"];
const kinds: readonly FlightRecord["kind"][] = ["run", "collective"];

/** Throws unless a value has the shape of a recording. */
export function checkRecording(recording: FlightRecording, caller: string): void {
  need("object", recording, "the recording", caller);
  need("object", recording.process, "the process of the recording", caller);
  need("list", recording.programs, "the programs of the recording", caller);
  need("list", recording.devices, "the devices of the recording", caller);
  for (const device of recording.devices) {
    need("object", device, "a device of the recording", caller);
    need("list", device.records, "the records of a device", caller);
    for (const record of device.records) need("object", record, "a record of a device", caller);
  }
}

/** Serialises a recording; records are arrays of numbers, so that thousands of them stay small. */
export function formatRecording(recording: FlightRecording): string {
  checkRecording(recording, "formatRecording");
  const devices = recording.devices.map((device) => ({
    ...device,
    records: device.records.map(({ kind, program, run, sequence, collective, begin, end }) => [
      kinds.indexOf(kind),
      program,
      run,
      sequence,
      collective,
      begin,
      end,
    ]),
  }));
  return `${JSON.stringify({ format, version, ...recording, devices })}\n`;
}

/** Parses a recording. @param file the name used in error messages */
export function parseRecording(text: string, file: string): FlightRecording {
  need("string", text, "text", "parseRecording");
  need("string", file, "file", "parseRecording");
  const reader = new RecordingReader(file);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw reader.wrong("it", `must be JSON (${cause instanceof Error ? cause.message : String(cause)})`);
  }
  return reader.read(value);
}

/** @internal The error of a file that is not a recording. */
export function fileError(file: string, rule: string): ShardwiseError {
  return new ShardwiseError("file", `[flight] ${file}: ${rule}`);
}

type Fields = Readonly<Record<string, unknown>>;

/** Turns parsed JSON into a recording, or names the field that is wrong. */
class RecordingReader {
  constructor(private readonly file: string) {}

  read(value: unknown): FlightRecording {
    const fields = this.fields(value, "it");
    if (fields.format !== format) throw this.wrong("format", `must be "${format}"`);
    if (fields.version !== version)
      throw this.wrong("version", `must be ${version}; another release wrote it`);
    const process = this.fields(fields.process, "process");
    return {
      reason: this.text(fields.reason, "reason"),
      time: this.number(fields.time, "time"),
      engine: this.text(fields.engine, "engine"),
      numDevices: this.number(fields.numDevices, "numDevices"),
      process: {
        index: this.number(process.index, "process.index"),
        count: this.number(process.count, "process.count"),
        pid: this.number(process.pid, "process.pid"),
        host: this.text(process.host, "process.host"),
        ...(process.job === undefined ? {} : { job: this.text(process.job, "process.job") }),
      },
      programs: this.list(fields.programs, "programs").map((entry, i) =>
        this.readProgram(entry, `programs[${i}]`),
      ),
      devices: this.list(fields.devices, "devices").map((entry, i) =>
        this.readDevice(entry, `devices[${i}]`),
      ),
    };
  }

  wrong(where: string, rule: string): ShardwiseError {
    return fileError(this.file, `${where} ${rule}`);
  }

  private readProgram(value: unknown, where: string): FlightProgram {
    const fields = this.fields(value, where);
    return {
      id: this.number(fields.id, `${where}.id`),
      name: this.text(fields.name, `${where}.name`),
      collectives: this.list(fields.collectives, `${where}.collectives`).map((entry, i) =>
        this.readCollective(entry, `${where}.collectives[${i}]`),
      ),
      ...(fields.agreement === undefined
        ? {}
        : { agreement: this.readAgreement(fields.agreement, `${where}.agreement`) }),
    };
  }

  private readAgreement(value: unknown, where: string): FlightAgreement {
    const { key, fingerprint } = this.fields(value, where);
    return {
      key: this.text(key, `${where}.key`),
      fingerprint: this.text(fingerprint, `${where}.fingerprint`),
    };
  }

  private readCollective(value: unknown, where: string): FlightCollective {
    const fields = this.fields(value, where);
    return {
      text: this.text(fields.text, `${where}.text`),
      fingerprint: this.number(fields.fingerprint, `${where}.fingerprint`),
      groups: this.list(fields.groups, `${where}.groups`).map((group, g) =>
        this.list(group, `${where}.groups[${g}]`).map((n) => this.number(n, `${where}.groups[${g}]`)),
      ),
      source: fields.source === null ? null : this.text(fields.source, `${where}.source`),
    };
  }

  private readDevice(value: unknown, where: string): FlightDevice {
    const fields = this.fields(value, where);
    const state = states.find((name) => name === fields.state);
    if (state === undefined) throw this.wrong(`${where}.state`, `must be one of ${states.join(", ")}`);
    return {
      device: this.number(fields.device, `${where}.device`),
      state,
      place: fields.place === null ? null : this.text(fields.place, `${where}.place`),
      records: this.list(fields.records, `${where}.records`).map((entry, i) =>
        this.readRecord(entry, `${where}.records[${i}]`),
      ),
    };
  }

  private readRecord(value: unknown, where: string): FlightRecord {
    const [kind, program, run, sequence, collective, begin, end] = this.list(value, where);
    const known = kinds[this.number(kind, where)];
    if (known === undefined) throw this.wrong(where, "must start with 0 or 1");
    return {
      kind: known,
      program: this.number(program, where),
      run: this.number(run, where),
      sequence: this.number(sequence, where),
      collective: this.number(collective, where),
      begin: this.number(begin, where),
      end: end === null ? null : this.number(end, where),
    };
  }

  private fields(value: unknown, where: string): Fields {
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return { ...value };
    throw this.wrong(where, "must be an object");
  }

  private list(value: unknown, where: string): readonly unknown[] {
    if (Array.isArray(value)) return value;
    throw this.wrong(where, "must be an array");
  }

  private number(value: unknown, where: string): number {
    if (typeof value === "number") return value;
    throw this.wrong(where, "must be a number");
  }

  private text(value: unknown, where: string): string {
    if (typeof value === "string") return value;
    throw this.wrong(where, "must be a string");
  }
}
