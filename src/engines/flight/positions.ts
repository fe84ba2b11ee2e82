/**
 * Where devices stand among their collectives, read from what their flight recorders kept. The desync detector and the
 * failure report find different kinds of divergence; what their errors say of each device comes from here.
 */
import type {
  FlightCollective,
  FlightDevice,
  FlightProgram,
  FlightRecord,
  FlightRecording,
} from "../../ir/flight.js";
import type { DevicePosition } from "../errors.js";

/** The collective that a record is about, and its program; undefined for a run. */
export function collectiveOf(
  { programs }: Pick<FlightRecording, "programs">,
  record: FlightRecord,
): { readonly program: FlightProgram; readonly collective: FlightCollective } | undefined {
  const program = programs.find(({ id }) => id === record.program);
  const collective = program?.collectives[record.collective];
  return program && collective && { program, collective };
}

/**
 * The position of every device of a recording.
 *
 * @param counts the records to look at, where not all
 */
export function positionsIn(
  recording: Pick<FlightRecording, "programs" | "devices">,
  counts: (record: FlightRecord) => boolean = () => true,
): DevicePosition[] {
  return recording.devices.map((one) =>
    positionOf({ ...one, records: one.records.filter(counts) }, recording),
  );
}

function positionOf(
  { device, state, records }: FlightDevice,
  recording: Pick<FlightRecording, "programs">,
): DevicePosition {
  const underWay = records.findLast(({ kind, end }) => kind === "collective" && end === null);
  const last = underWay ?? records.at(-1);
  if (last === undefined) return { device, run: 0, sequence: 0, what: "has come to none yet" };
  const { program, run } = last;
  const inRun = records.filter((record) => record.program === program && record.run === run);
  const reached = underWay ?? inRun.findLast(({ kind }) => kind === "collective");
  const position = { device, run, sequence: reached?.sequence ?? 0 };
  if (inRun.some(({ kind, end }) => kind === "run" && end !== null)) {
    return { ...position, what: "was its last: it has left the run" };
  }
  const collective = reached && collectiveOf(recording, reached)?.collective;
  if (collective === undefined) return { ...position, what: "has come to none yet" };
  const { text, source } = collective;
  return {
    ...position,
    what: underWay ? text : `${state} after ${text}`,
    source: source ?? undefined,
  };
}

/**
 * The device that all others have gone past on the same way: they were at the collective where it is. It is late, but
 * has not diverged. Undefined if there is none, or if the records do not go back far enough to tell.
 */
export function lateDevice(
  recordings: readonly Pick<FlightRecording, "programs" | "devices">[],
): DevicePosition | undefined {
  const all = recordings.flatMap((recording) => recording.devices.map((one) => ({ one, recording })));
  const nameOf = ({ recording }: (typeof all)[number], record: FlightRecord) => {
    const found = collectiveOf(recording, record);
    return found && `${found.program.name} ${record.run} ${record.sequence} ${found.collective.text}`;
  };
  const late = all.find((own) => {
    const { records } = own.one;
    const last = records.findLast(({ kind }) => kind === "collective");
    const hasLeft = records.some(({ kind, run, end }) => kind === "run" && run === last?.run && end !== null);
    const name = last && !hasLeft ? nameOf(own, last) : undefined;
    const others = all.filter((other) => other !== own);
    return (
      name !== undefined && others.every((other) => other.one.records.some((r) => nameOf(other, r) === name))
    );
  });
  return late && positionOf(late.one, late.recording);
}
