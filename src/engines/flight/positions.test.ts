import { describe, expect, test } from "vitest";
import type { FlightDevice, FlightRecord } from "../../ir/flight.js";
import { positionsIn } from "./positions.js";

const collective = (text: string, source: string | null) => ({
  text,
  source,
  fingerprint: 1,
  groups: [[0, 1]],
});

const programs = [
  { id: 4, name: "train", collectives: [collective("allReduce", "a.ts:1:1"), collective("allGather", null)] },
];

function run(number: number, end: number | null): FlightRecord {
  return { kind: "run", program: 4, run: number, sequence: 0, collective: -1, begin: 1, end };
}

function use(number: number, sequence: number, index: number, end: number | null): FlightRecord {
  return { kind: "collective", program: 4, run: number, sequence, collective: index, begin: 1, end };
}

/** The position of one device with these records. */
function positionOf(state: FlightDevice["state"], ...records: FlightRecord[]) {
  return positionsIn({ programs, devices: [{ device: 3, state, place: null, records }] })[0];
}

describe("the position of a device", () => {
  test("is the collective that is under way", () => {
    expect(positionOf("waiting", run(2, null), use(2, 1, 1, 9), use(2, 2, 0, null))).toEqual({
      device: 3,
      run: 2,
      sequence: 2,
      what: "allReduce",
      source: "a.ts:1:1",
    });
  });

  test("is behind the last one where the device computes", () => {
    expect(positionOf("running", run(1, null), use(1, 1, 1, 9))).toMatchObject({
      run: 1,
      sequence: 1,
      what: "running after allGather",
    });
  });

  test("is before the first one of a run that has just begun", () => {
    const before = [run(1, 9), use(1, 1, 0, 8)];
    expect(positionOf("running", ...before, run(2, null))).toMatchObject({
      run: 2,
      sequence: 0,
      what: "has come to none yet",
    });
    expect(positionOf("starting")).toMatchObject({ run: 0, sequence: 0, what: "has come to none yet" });
  });

  test("is outside of a run that the device has left", () => {
    expect(positionOf("idle", run(1, 9), use(1, 1, 0, 8))).toMatchObject({
      run: 1,
      sequence: 1,
      what: "was its last: it has left the run",
    });
  });

  test("counts only the records that it is asked for", () => {
    const records = [run(1, null), use(1, 1, 0, 8), use(1, 1, 1, null)];
    const devices = [{ device: 3, state: "waiting", place: null, records }] as const;
    const counts = (record: FlightRecord) => record.collective !== 1;
    expect(positionsIn({ programs, devices }, counts)).toMatchObject([{ what: "waiting after allReduce" }]);
  });
});
