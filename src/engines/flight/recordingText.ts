/** The recordings of flight recorders as JSON. The content is untrusted: every field is checked. */

import { need } from "../../ir/arguments.js";
import { ShardwiseError } from "../../ir/errors.js";
import type { FlightRecord, FlightRecording, FlightState } from "../../ir/flight.js";
import * as json from "../../ir/jsonReaders.js";

/** @internal How the file of a recording begins. */
export const format = "shardwise-flight";
const version = 1;
const states: readonly FlightState[] = ["starting", "idle", "running", "waiting", "gone"];
const isState = (value: unknown): value is FlightState => states.some((state) => state === value);
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

/**
 * Serialises a recording; records are arrays of numbers, so that thousands of them stay small.
 *
 * @example
 * ```ts
 * const recording = { reason: "SIGTERM", time: 0, engine: "threads", numDevices: 1, process: { index: 0, count: 1, pid: 7, host: "here" }, programs: [], devices: [{ device: 0, state: "idle", place: null, records: [] }] };
 * engines.parseRecording(engines.formatRecording(recording), "flight.json").reason; // SIGTERM
 * ```
 */
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

/**
 * Parses a recording. @param file the name used in error messages
 *
 * @example
 * ```ts
 * const recording = { reason: "SIGTERM", time: 0, engine: "threads", numDevices: 1, process: { index: 0, count: 1, pid: 7, host: "here" }, programs: [], devices: [{ device: 0, state: "idle", place: null, records: [] }] };
 * engines.parseRecording(engines.formatRecording(recording), "flight.json").devices.length; // 1
 * ```
 */
export function parseRecording(text: string, file: string): FlightRecording {
  need("string", text, "text", "parseRecording");
  need("string", file, "file", "parseRecording");
  const wrong = (where: string, rule: string) => fileError(file, `${where} ${rule}`);
  const value = json.parseJson(text, (reason) => wrong("it", `must be JSON (${reason})`));
  const { format: form, version: written } = json.fields(value, "it", wrong);
  if (form !== format) throw wrong("format", `must be "${format}"`);
  if (written !== version) throw wrong("version", `must be ${version}; another release wrote it`);
  return readRecording(value, "", wrong);
}

/** @internal The error of a file that is not a recording. */
export function fileError(file: string, rule: string): ShardwiseError {
  return new ShardwiseError("file", `[flight] ${file}: ${rule}`);
}

const readRecord: json.JsonReader<FlightRecord> = (value, where, wrong) => {
  const [kind, program, run, sequence, collective, begin, end] = json.list(value, where, wrong);
  const number = (one: unknown) => json.number(one, where, wrong);
  const known = kinds[number(kind)];
  if (known === undefined) throw wrong(where, "must start with 0 or 1", kind);
  return {
    kind: known,
    program: number(program),
    run: number(run),
    sequence: number(sequence),
    collective: number(collective),
    begin: number(begin),
    end: end === null ? null : number(end),
  };
};

const { arrayOf, ifGiven, number, object, orNull, string } = json;

const readRecording: json.JsonReader<FlightRecording> = object({
  reason: string,
  time: number,
  engine: string,
  numDevices: number,
  process: object({ index: number, count: number, pid: number, host: string, job: ifGiven(string) }),
  programs: arrayOf(
    object({
      id: number,
      name: string,
      collectives: arrayOf(
        object({
          text: string,
          fingerprint: number,
          groups: arrayOf(arrayOf(number)),
          source: orNull(string),
        }),
      ),
      agreement: ifGiven(object({ key: string, fingerprint: string })),
    }),
  ),
  devices: arrayOf(
    object({
      device: number,
      state: json.ofKind(isState, `must be one of ${states.join(", ")}`),
      place: orNull(string),
      records: arrayOf(readRecord),
    }),
  ),
});
