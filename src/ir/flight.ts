/** One event of a device in its flight recorder; times are milliseconds since 1970. */
export interface FlightRecord {
  /** A whole run of a program, or one collective of it. */
  readonly kind: "run" | "collective";
  /** The number of the program among those of the recording. */
  readonly program: number;
  /** How often the program had been started on the device, this run included. */
  readonly run: number;
  /** For a collective: its ordinal in this run among those of the same groups of devices, from 1. */
  readonly sequence: number;
  /** For a collective: its index in the program's list; −1 for a run. */
  readonly collective: number;
  readonly begin: number;
  /** Null while it is under way. */
  readonly end: number | null;
}

/** A collective of a program as recordings name it. */
export interface FlightCollective {
  /** Op, axes, data type and shape, such as `allReduce sum float32[64,32] over {data: 2}`. */
  readonly text: string;
  /** A hash of the text, which devices compare when the collective starts. */
  readonly fingerprint: number;
  /** The devices that take part together. */
  readonly groups: readonly (readonly number[])[];
  /** The user's line. */
  readonly source: string | null;
}

/** A program that several processes run together, as all of them must know it. */
export interface FlightAgreement {
  /** The ordinal of the program among those of the same processes: `program 3 of processes 0, 1`. */
  readonly key: string;
  /** A hash of its printed form. */
  readonly fingerprint: string;
}

/** A program as recordings name it. */
export interface FlightProgram {
  readonly id: number;
  readonly name: string;
  readonly collectives: readonly FlightCollective[];
  /** Where several processes run it together. */
  readonly agreement?: FlightAgreement;
}

/** What a device was doing when the recording was taken. */
export type FlightState = "starting" | "idle" | "running" | "waiting" | "gone";

/** One device of a recording. */
export interface FlightDevice {
  readonly device: number;
  readonly state: FlightState;
  /** A description of where it is, when a program is running on it. */
  readonly place: string | null;
  /** Its last events, oldest first. */
  readonly records: readonly FlightRecord[];
}

/** The last events of one process's devices: the content of a flight recorder's file. */
export interface FlightRecording {
  /** Why it was taken: the message of an error, or a signal. */
  readonly reason: string;
  /** When it was taken, in milliseconds since 1970. */
  readonly time: number;
  readonly engine: string;
  /** How many devices all processes have together. */
  readonly numDevices: number;
  readonly process: {
    readonly index: number;
    readonly count: number;
    readonly pid: number;
    readonly host: string;
    /** Where several processes run together: an identifier of their job. */
    readonly job?: string;
  };
  readonly programs: readonly FlightProgram[];
  readonly devices: readonly FlightDevice[];
}
