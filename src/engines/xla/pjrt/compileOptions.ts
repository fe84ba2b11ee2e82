import { bytes, double, integer, text, varint } from "../../../ir/protobuf.js";

/** An XLA setting for one compilation. */
export type XlaFlag = string | number | boolean;

function flagValue(value: XlaFlag): number[] {
  if (typeof value === "string") return text(1, value);
  if (typeof value === "boolean") return integer(2, value ? 1 : 0);
  return Number.isInteger(value) ? integer(3, value) : double(4, value);
}

/**
 * XLA's `CompileOptionsProto` for one replica on each of the devices. XLA aborts if there are no replicas, so the list
 * must not be empty.
 *
 * @param devices the device id of every replica
 * @param flags XLA settings by name
 */
export function compileOptions(
  devices: readonly number[],
  flags: Readonly<Record<string, XlaFlag>> = {},
): Uint8Array {
  if (devices.length === 0 || devices.some((device) => !Number.isInteger(device) || device < 0)) {
    throw new RangeError(`[compileOptions] devices must be integers of at least 0, not [${devices}]`);
  }
  const ids = bytes(1, devices.flatMap(varint));
  // One computation, whose replicas run on these devices.
  const assignment = [...integer(1, devices.length), ...integer(2, 1), ...bytes(3, ids)];
  const build = [...integer(1, -1), ...integer(4, devices.length), ...integer(5, 1), ...bytes(9, assignment)];
  const overrides = Object.entries(flags).flatMap(([name, value]) =>
    bytes(7, [...text(1, name), ...bytes(2, flagValue(value))]),
  );
  return Uint8Array.from([...bytes(3, build), ...overrides]);
}
