/** TensorBoard event files: TFRecords of `Event` messages with scalar summaries. */

import { mkdirSync } from "#platform/fs";
import { join } from "#platform/path";
import { whoAmI } from "#platform/system";
import { need } from "../../ir/arguments.js";
import { bytes, double, float, integer, text } from "../../ir/protobuf.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { maskedCrc32c } from "../files/disk/crc32c.js";
import { onFile } from "../files/disk/fileError.js";
import { openRecordFile } from "../files/disk/files.js";
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

/**
 * Writes numbers of each step to a new event file in a folder; strings and booleans are skipped.
 *
 * @example
 * ```ts
 * const events = train.openEventFile("tensorboard");
 * events.write(1, { loss: 4.5 });
 * events.close();
 * events.path.includes("events.out.tfevents"); // true
 * ```
 */
export function openEventFile(
  folder: string,
  options?: EventFileOptions,
): MetricsWriter & { readonly path: string } {
  need("path", folder, "folder", "openEventFile");
  const { suffix, resumeAt, now } = eventFileOptions.read(options, "openEventFile");
  onFile("tensorboard", folder, () => mkdirSync(folder, { recursive: true }));
  const seconds = Math.floor(now()).toString().padStart(10, "0");
  const { host, pid } = whoAmI();
  const path = join(folder, `events.out.tfevents.${seconds}.${host.replace(":", "-")}.${pid}${suffix}`);
  const file = openRecordFile(path);
  file.append(record([...double(1, now()), ...text(3, "brain.Event:2")]));
  if (resumeAt !== undefined) {
    const sessionStart = bytes(7, integer(1, 1));
    file.append(record([...double(1, now()), ...integer(2, resumeAt + 1), ...sessionStart]));
  }
  return {
    path,
    write: (step, metrics) => {
      const values = Object.entries(metrics).flatMap(([tag, value]) =>
        typeof value === "number" ? bytes(1, [...text(1, tag), ...float(2, value)]) : [],
      );
      if (values.length === 0) return;
      file.append(record([...double(1, now()), ...integer(2, step), ...bytes(5, values)]));
    },
    close: file.close,
  };
}

/** Length, its checksum, the bytes, their checksum. */
function record(data: readonly number[]): Uint8Array {
  const framed = new Uint8Array(data.length + 16);
  const fields = new DataView(framed.buffer);
  fields.setBigUint64(0, BigInt(data.length), true);
  fields.setUint32(8, maskedCrc32c(framed.subarray(0, 8)), true);
  framed.set(data, 12);
  fields.setUint32(12 + data.length, maskedCrc32c(framed.subarray(12, 12 + data.length)), true);
  return framed;
}
