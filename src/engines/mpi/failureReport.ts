import type { FlightDevice, FlightRecording } from "../../ir/flight.js";
import { at, range } from "../../ir/shape.js";
import { DesyncError, DeviceFailedError, type DevicePosition } from "../errors.js";
import type { Channel } from "./calls.js";
import type { World } from "./world.js";

/** How long answers are waited for. */
const ANSWER_MS = 2000;

/** An answer is given once in this time: what comes meanwhile are the others' answers. */
const SILENT_MS = 10_000;

/** How much of its past each device tells. */
const NUM_RECORDS = 20;

const PARTED =
  "all processes must run the same programs in the same order: what depends on processIndex() may print and write " +
  "files, not compute on meshes";

/**
 * What processes say to each other when devices of one have waited in vain: all tell what theirs were doing, so
 * that the error of each names who went another way, or who says nothing any more.
 */
export class FailureReport {
  private readonly heard = new Map<number, FlightRecording>();
  private spoken = Number.NEGATIVE_INFINITY;
  private explained: Promise<unknown> | undefined;
  private readonly channel: Channel;

  /**
   * @param record what the devices of this process did last
   * @param alarm called when this process or another one tells of a failure
   * @param hosts the host of every process
   */
  constructor(
    private readonly world: World,
    private readonly record: (reason: string) => FlightRecording,
    private readonly alarm: (reason: string) => void,
    private readonly hosts: readonly string[],
  ) {
    this.channel = world.calls.open((rank, text) => this.hear(rank, text));
  }

  /** Says that this process is ending with an error, so that the others write down what theirs were doing. */
  warn(reason: string): void {
    this.tell(reason);
  }

  /** Stops listening. */
  close(): void {
    this.channel.close();
  }

  /** The error that tells what all processes know of a failure. */
  explain(error: unknown): Promise<unknown> {
    if (!(error instanceof DeviceFailedError)) return Promise.resolve(error);
    this.explained ??= this.ask(error);
    return this.explained;
  }

  private async ask(error: DeviceFailedError): Promise<unknown> {
    const own = this.tell(error.message);
    const others = range(this.world.size).filter((rank) => rank !== this.world.rank);
    const begin = performance.now();
    const silent = () => others.filter((rank) => !this.heard.has(rank));
    while (silent().length > 0 && performance.now() - begin < ANSWER_MS) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      this.channel.listen();
    }
    const missing = silent();
    if (missing.length > 0) {
      const names = missing.map((rank) => `process ${rank} on ${at(this.hosts, rank)}`).join(", ");
      const reason = `${error.reason}; ${names} says nothing: it was stopped, killed or cut off`;
      return new DeviceFailedError(error.place, reason, { cause: error });
    }
    const positions = [own, ...this.heard.values()].flatMap(positionsOf).sort((a, b) => a.device - b.device);
    if (new Set(positions.map(({ what, run, sequence }) => `${what} ${run} ${sequence}`)).size === 1) {
      return error;
    }
    return new DesyncError(error.place.program ?? "", positions, PARTED);
  }

  /** Says what the own devices did last. */
  private tell(reason: string): FlightRecording {
    const recording = shorten(this.record(reason));
    this.spoken = performance.now();
    this.alarm(reason);
    this.channel.tell(JSON.stringify(recording));
    return recording;
  }

  private hear(rank: number, text: string): void {
    const recording = JSON.parse(text) as FlightRecording;
    this.heard.set(rank, recording);
    if (performance.now() - this.spoken > SILENT_MS) this.tell(`process ${rank} says: ${recording.reason}`);
  }
}

/** The end of a recording: what devices did last, and the programs in which they did it. */
function shorten(recording: FlightRecording): FlightRecording {
  const devices = recording.devices.map((one) => ({ ...one, records: one.records.slice(-NUM_RECORDS) }));
  const used = new Set(devices.flatMap(({ records }) => records.map(({ program }) => program)));
  return { ...recording, devices, programs: recording.programs.filter(({ id }) => used.has(id)) };
}

function positionsOf(recording: FlightRecording): DevicePosition[] {
  return recording.devices.map((one) => positionOf(one, recording));
}

function positionOf({ device, state, records }: FlightDevice, { programs }: FlightRecording): DevicePosition {
  const last = records.findLast(({ kind, end }) => kind === "collective" && end === null) ?? records.at(-1);
  const program = programs.find(({ id }) => id === last?.program);
  const collective = program?.collectives[last?.collective ?? -1];
  const isThere = collective !== undefined && last?.end === null;
  return {
    device,
    run: last?.run ?? 0,
    sequence: last?.sequence ?? 0,
    what: isThere ? collective.text : state,
    source: isThere ? (collective.source ?? undefined) : undefined,
  };
}
