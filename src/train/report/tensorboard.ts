/** TensorBoard event files: TFRecords of `Event` messages with scalar summaries. */

import { mkdirSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { need } from "../../ir/arguments.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { maskedCrc32c } from "../files/crc32c.js";
import { onFile } from "../files/fileError.js";
import { openRecordFile } from "../files/files.js";
import type { MetricsWriter } from "./metrics.js";

const eventFileOptions = schema({
  /** Distinguishes files of the same second; empty by default. */
  suffix: optional("string", ""),
  /** The step from which a run is resumed: TensorBoard drops later steps of older files. */
  resumeAt: optional("number"),
  /** Returns the time in seconds; the system clock by default. */
  now: optional<() => number>("function", () => Date.now() / 1000),
});

/** Options of {@link openEventFile}. */
export interface EventFileOptions extends OptionsOf<typeof eventFileOptions> {}

/** Writes numbers of each step to a new event file in a folder; strings and booleans are skipped. */
export function openEventFile(
  folder: string,
  options?: EventFileOptions,
): MetricsWriter & { readonly path: string } {
  need("path", folder, "folder", "openEventFile");
  const { suffix, resumeAt, now } = eventFileOptions.read(options, "openEventFile");
  onFile("tensorboard", folder, () => mkdirSync(folder, { recursive: true }));
  const seconds = Math.floor(now()).toString().padStart(10, "0");
  const path = join(folder, `events.out.tfevents.${seconds}.${hostname()}.${process.pid}${suffix}`);
  const file = openRecordFile(path);
  file.append(record(message(double(1, now()), bytes(3, text("brain.Event:2")))));
  if (resumeAt !== undefined) {
    const sessionStart = bytes(7, varint(1, 1));
    file.append(record(message(double(1, now()), varint(2, resumeAt + 1), sessionStart)));
  }
  return {
    path,
    write: (step, metrics) => {
      const values = Object.entries(metrics).flatMap(([tag, value]) =>
        typeof value === "number" ? [bytes(1, message(bytes(1, text(tag)), float(2, value)))] : [],
      );
      if (values.length === 0) return;
      file.append(record(message(double(1, now()), varint(2, step), bytes(5, message(...values)))));
    },
    close: file.close,
  };
}

/** Length, its checksum, the bytes, their checksum. */
function record(data: Uint8Array): Uint8Array {
  const framed = Buffer.alloc(data.length + 16);
  framed.writeBigUInt64LE(BigInt(data.length), 0);
  framed.writeUInt32LE(maskedCrc32c(framed.subarray(0, 8)), 8);
  framed.set(data, 12);
  framed.writeUInt32LE(maskedCrc32c(data), 12 + data.length);
  return framed;
}

// Fields of protocol buffers: a key (number and kind), then the value.

const message = (...fields: readonly Uint8Array[]): Uint8Array => Buffer.concat(fields);
const text = (value: string): Uint8Array => new TextEncoder().encode(value);

function number(value: number): number[] {
  const digits: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest > 127n; rest >>= 7n) digits.push(Number(rest & 127n) | 128);
  digits.push(Number(rest));
  return digits;
}

const key = (field: number, kind: number) => number(field * 8 + kind);

function varint(field: number, value: number): Uint8Array {
  return Uint8Array.from([...key(field, 0), ...number(value)]);
}

function double(field: number, value: number): Uint8Array {
  const data = Buffer.alloc(8);
  data.writeDoubleLE(value);
  return Buffer.concat([Uint8Array.from(key(field, 1)), data]);
}

function bytes(field: number, value: Uint8Array): Uint8Array {
  return Buffer.concat([Uint8Array.from([...key(field, 2), ...number(value.length)]), value]);
}

function float(field: number, value: number): Uint8Array {
  const data = Buffer.alloc(4);
  data.writeFloatLE(value);
  return Buffer.concat([Uint8Array.from(key(field, 5)), data]);
}
