import { describe, expect, test } from "vitest";
import { np, type Tensor } from "../../index.js";
import type { FlightRecord, FlightRecording } from "../../ir/flight.js";
import type { Program } from "../../ir/program.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { traceFlat } from "../../trace/builder.js";
import { DesyncError, DeviceFailedError, ProgramsDifferError } from "../errors.js";
import { Agreement } from "./agreement.js";
import { FailureReport } from "./failureReport.js";
import type { Channels, Listener } from "./library/calls.js";

/** Channels between processes of a test, which deliver at once; a process that is cut off neither hears nor speaks. */
function connect(size: number, cutOff: readonly number[] = []): Channels[] {
  const listeners = range(size).map((): Listener[] => []);
  return range(size).map((rank) => ({
    open(listener) {
      const number = at(listeners, rank).push(listener) - 1;
      const tell = (text: string, ranks: readonly number[] = range(size)) => {
        for (const other of ranks) {
          if (other === rank || cutOff.includes(other) || cutOff.includes(rank)) continue;
          listeners[other]?.[number]?.(rank, text);
        }
      };
      return { tell, listen: () => {}, close: () => {} };
    },
  }));
}

/** What the only device of a process did last: it came to a collective of a run and waits there. */
function recordingOf(device: number, run: number, index: number, numBefore = 0): FlightRecording {
  const texts = ["allReduce sum", "allReduce max"];
  const collectives = texts.map((text) => ({ text, fingerprint: 0, groups: [[0, 1]], source: null }));
  const use = (sequence: number, end: number | null): FlightRecord => {
    return { kind: "collective", program: 1, run, sequence, collective: index, begin: 1, end };
  };
  const begun: FlightRecord = {
    kind: "run",
    program: 1,
    run,
    sequence: 0,
    collective: -1,
    begin: 1,
    end: null,
  };
  const records = [begun, ...range(numBefore).map((i) => use(i + 1, 2)), use(numBefore + 1, null)];
  return {
    reason: "a test",
    time: 0,
    engine: "mpi",
    numDevices: 2,
    process: { index: device, count: 2, pid: 1, host: "a" },
    programs: [{ id: 1, name: "train", collectives }],
    devices: [{ device, state: "waiting", place: null, records }],
  };
}

describe("the failure report", () => {
  const waited = new DeviceFailedError({ device: 0, program: "train", step: 1 }, "it has waited");

  /** What process 0 says of its error, given what each process recorded. */
  function explain(recordings: readonly FlightRecording[], cutOff: readonly number[] = []): Promise<unknown> {
    const reports = connect(recordings.length, cutOff).map((calls, rank) => {
      const world = { rank, size: recordings.length, calls };
      return new FailureReport(
        world,
        (reason) => ({ ...at(recordings, rank), reason }),
        () => {},
        ["a", "b"],
      );
    });
    return at(reports, 0).explain(waited);
  }

  test("says where all devices are when processes have diverged", async () => {
    const error = await explain([recordingOf(0, 2, 0), recordingOf(1, 1, 1, 30)]);
    expect(error).toBeInstanceOf(DesyncError);
    expect(String(error)).toMatch(
      /device 0 {2}run 2 {2}collective 1 {3}allReduce sum\n {2}device 1 {2}run 1 {2}collective 31 {2}allReduce max\n/,
    );
  });

  test("leaves the error as it is when all are at the same collective", async () => {
    expect(await explain([recordingOf(0, 2, 0), recordingOf(1, 2, 0)])).toBe(waited);
  });

  test("names a device that is late at a collective which the others have passed", async () => {
    const error = await explain([recordingOf(0, 2, 0, 3), recordingOf(1, 2, 0, 1)]);
    expect(error).toBeInstanceOf(DeviceFailedError);
    expect(String(error)).toContain(
      "it has waited; device 1 is late, not diverged: it is at collective 2 of run 2 (allReduce sum)",
    );
  });

  test("names the process that says nothing", async () => {
    const error = await explain([recordingOf(0, 2, 0), recordingOf(1, 2, 0)], [1]);
    expect(error).toBeInstanceOf(DeviceFailedError);
    expect(String(error)).toContain("it has waited; process 1 on b says nothing");
  });
});

describe("the agreement", () => {
  const mesh = { axes: [{ name: "x", size: 2 }] };
  const programOf = (change: (x: Tensor) => Tensor): Program =>
    traceFlat(([x]) => (x === undefined ? [] : [change(x)]), [tensorType("float32", [2])]).program;
  const sine = programOf((x) => np.sin(x));

  test("lets programs pass that are the same in all processes", async () => {
    const [first, second] = connect(2).map((calls, rank) => new Agreement(calls, rank, 1000));
    for (const one of [first, second]) one?.propose(sine, { name: "f", mesh, devices: [0, 1] }, [0, 1]);
    await first?.settled();
    expect([first?.isSettled, second?.isSettled]).toEqual([true, true]);
  });

  test("shows the first lines that differ", async () => {
    const [first, second] = connect(2).map((calls, rank) => new Agreement(calls, rank, 1000));
    first?.propose(sine, { name: "f", mesh, devices: [0, 1] }, [0, 1]);
    const cosine = programOf((x) => np.cos(x));
    second?.propose(cosine, { name: "g", mesh, devices: [0, 1] }, [0, 1]);
    const error = await first?.settled().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ProgramsDifferError);
    expect(String(error)).toMatch(
      /process 0 has "f" [0-9a-f]{16}, line \d+: .*sin[^\n]*\n {2}process 1 has "g" [0-9a-f]{16}, line \d+: .*cos/,
    );
  });

  test("names the process that does not come to a program before the deadline", async () => {
    const [first] = connect(2, [1]).map((calls, rank) => new Agreement(calls, rank, 50));
    first?.propose(sine, { name: "f", mesh, devices: [0, 1] }, [0, 1]);
    await expect(first?.settled()).rejects.toThrow("process 1 has not come to it for 50 ms");
  });
});
