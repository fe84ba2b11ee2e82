/** Where the devices at the positions of a program's mesh are. */
export interface DeviceLocations {
  /** The device at every position, counted in its own process. */
  readonly devices: readonly number[];
  /** The process of the device at every position. */
  readonly processes: readonly number[];
  /** Which process this is. */
  readonly process: number;
  /** Data of engines with several processes, by names that the engine chooses. */
  readonly channels?: Readonly<Record<string, number>>;
}

/** The locations of a program whose devices are all in this process. */
export function allHere(devices: readonly number[]): DeviceLocations {
  return { devices, processes: devices.map(() => 0), process: 0 };
}
