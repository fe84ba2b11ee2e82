/** The files of flight recorders, one for each process. */

import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { need } from "../../ir/arguments.js";
import type { FlightRecording } from "../../ir/flight.js";
import { checkRecording, fileError, format, formatRecording, parseRecording } from "./recordingText.js";

/** Larger files are not read. */
const maxBytes = 2 ** 28;

/**
 * Writes a recording atomically, and creates its folder.
 *
 * @example
 * ```ts
 * const recording = { reason: "SIGTERM", time: 0, engine: "threads", numDevices: 1, process: { index: 0, count: 1, pid: 7, host: "here" }, programs: [], devices: [{ device: 0, state: "idle", place: null, records: [] }] };
 * engines.writeRecording("flight/last.json", recording);
 * engines.readRecordings("flight/last.json")[0].engine; // threads
 * ```
 */
export function writeRecording(path: string, recording: FlightRecording): void {
  need("path", path, "path", "writeRecording");
  checkRecording(recording, "writeRecording");
  mkdirSync(dirname(path), { recursive: true });
  const draft = join(dirname(path), `.${basename(path)}.${process.pid}`);
  try {
    // Creates a new file, so that nothing is written through an existing symbolic link of this name.
    writeFileSync(draft, formatRecording(recording), { flag: "wx" });
    renameSync(draft, path);
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  }
}

/**
 * The recordings in a file, or in all `.json` files of a folder that are recordings.
 *
 * @example
 * ```ts
 * const recording = { reason: "SIGTERM", time: 0, engine: "threads", numDevices: 1, process: { index: 0, count: 1, pid: 7, host: "here" }, programs: [], devices: [{ device: 0, state: "idle", place: null, records: [] }] };
 * engines.writeRecording("flight/first.json", recording);
 * engines.readRecordings("flight").map(({ reason }) => reason); // ["SIGTERM"]
 * ```
 */
export function readRecordings(path: string): FlightRecording[] {
  need("path", path, "path", "readRecordings");
  const read = (file: string): string => {
    const found = statSync(file);
    if (!found.isFile()) throw fileError(file, "it is not a file");
    if (found.size > maxBytes) throw fileError(file, `it has ${found.size} bytes, more than ${maxBytes}`);
    return readFileSync(file, "utf8");
  };
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined) throw fileError(path, "there is no such file or folder");
  if (!found.isDirectory()) return [parseRecording(read(path), path)];
  const files = readdirSync(path)
    .filter((name) => name.endsWith(".json"))
    .sort()
    .map((name) => join(path, name))
    .filter((file) => statSync(file).isFile() && read(file).startsWith(`{"format":"${format}"`));
  if (files.length === 0) throw fileError(path, "no file in it is a recording of a flight recorder");
  return files.map((file) => parseRecording(read(file), file));
}
