import type { FlightRecord, FlightRecording } from "../../ir/flight.js";
import { at, range } from "../../ir/shape.js";
import { DesyncError, DeviceFailedError, PROCESS_RULE } from "../errors.js";
import { lateDevice, positionsIn } from "../flight/positions.js";
import { type Channel, type Channels, listenUntil } from "./library/calls.js";

/** How long answers are waited for. */
const ANSWER_MS = 2000;

/** An answer is given once in this time: what comes meanwhile are the others' answers. */
const SILENT_MS = 10_000;

/** How much of its past each device tells. */
const NUM_RECORDS = 20;

const ADVICE = `all processes must run the same programs in the same order: ${PROCESS_RULE}`;

/** What a report needs to know about its process. */
export interface ReportingProcess {
  readonly rank: number;
  readonly size: number;
  readonly calls: Channels;
}

/**
 * The failure report finds processes that have diverged (docs/divergence.md). When devices of one have waited in vain,
 * the watchdog ends its run; before the error is thrown, all processes tell each other what their flight recorders
 * kept, so that the error of each says where all devices are, or who says nothing any more.
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
    private readonly world: ReportingProcess,
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

  /** The error that tells what all processes know about a failure. */
  explain(error: unknown): Promise<unknown> {
    if (!(error instanceof DeviceFailedError)) return Promise.resolve(error);
    this.explained ??= this.ask(error);
    return this.explained;
  }

  private async ask(error: DeviceFailedError): Promise<unknown> {
    const own = this.tell(error.message);
    const others = range(this.world.size).filter((rank) => rank !== this.world.rank);
    const silent = () => others.filter((rank) => !this.heard.has(rank));
    await listenUntil(this.channel, () => silent().length === 0, ANSWER_MS);
    const missing = silent();
    if (missing.length > 0) {
      const names = missing.map((rank) => `process ${rank} on ${at(this.hosts, rank)}`).join(", ");
      const reason = `${error.reason}; ${names} says nothing: it was stopped, killed or cut off`;
      return new DeviceFailedError(error.place, reason, { cause: error });
    }
    const recordings = [own, ...this.heard.values()];
    const positions = recordings
      .flatMap((recording) => positionsIn(recording))
      .sort((a, b) => a.device - b.device);
    if (new Set(positions.map(({ what, run, sequence }) => `${what} ${run} ${sequence}`)).size === 1) {
      return error;
    }
    const late = lateDevice(recordings);
    if (late !== undefined) {
      const { device, run, sequence, what } = late;
      const reason = `${error.reason}; device ${device} is late, not diverged: it is at collective ${sequence} of run ${run} (${what}), which all others have come to`;
      return new DeviceFailedError(error.place, reason, { cause: error });
    }
    return new DesyncError(error.place.program ?? "", positions, ADVICE);
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
  const devices = recording.devices.map((one) => ({ ...one, records: lastOf(one.records) }));
  const used = new Set(devices.flatMap(({ records }) => records.map(({ program }) => program)));
  return { ...recording, devices, programs: recording.programs.filter(({ id }) => used.has(id)) };
}

/** The last records of a device, and that of its last run, which tells whether the run has ended. */
function lastOf(records: readonly FlightRecord[]): readonly FlightRecord[] {
  const run = records.findLast(({ kind }) => kind === "run");
  const last = records.slice(-NUM_RECORDS);
  return run === undefined || last.includes(run) ? last : [run, ...last];
}
