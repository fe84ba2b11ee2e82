import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { deviceBase, newControl, STATE, WORD } from "../protocol/control.js";
import { Watchdog } from "./watchdog.js";

const deadlineMs = 1000;

/** One device with work, looked after by a watchdog whose time the tests make pass. */
class Scene {
  readonly failures: string[] = [];
  /** The operations of the step that the device runs. */
  flops = 0;
  private readonly control = newControl(1);
  private readonly watchdog: Watchdog;
  private now = 0;

  constructor() {
    vi.spyOn(performance, "now").mockImplementation(() => this.now);
    this.watchdog = new Watchdog(this.control, deadlineMs, {
      fail: (_, reason) => this.failures.push(reason),
      warn: () => {},
      numberOf: (device) => device + 2,
      flopsOf: () => this.flops,
    });
    this.watchdog.look([{ sent: 1 }]);
  }

  set(word: number, value: number): void {
    Atomics.store(this.control, deviceBase(0) + word, value);
  }

  /** Lets time pass, with a look every tenth of a second, until something fails. */
  pass(ms: number): void {
    for (let i = 0; i < ms / 100 && this.failures.length === 0; i++) {
      this.now += 100;
      this.watchdog.look([{ sent: 1 }]);
    }
  }
}

let scene: Scene;

beforeEach(() => {
  scene = new Scene();
});

afterEach(() => {
  vi.restoreAllMocks();
});

describe("the watchdog", () => {
  test("gives a worker 30 seconds to start, whatever the deadline of a step", () => {
    scene.pass(29_900);
    expect(scene.failures).toEqual([]);
    scene.pass(200);
    expect(scene.failures).toEqual(["it made no progress for 30000 ms"]);
  });

  test("names whom a device waits for by the number that all processes know", () => {
    scene.set(WORD.state, STATE.waiting);
    scene.set(WORD.waitsFor, 1);
    scene.pass(1100);
    expect(scene.failures).toEqual([
      "it has waited 1000 ms for device 3, which waits too or has no such work",
    ]);
  });

  test("gives a large step the time that it takes at 1 GFLOP/s besides", () => {
    scene.set(WORD.state, STATE.running);
    scene.flops = 5e9;
    scene.pass(5900);
    expect(scene.failures).toEqual([]);
    scene.pass(200);
    expect(scene.failures).toEqual(["it made no progress for 6000 ms"]);
  });

  test("does not count the start of a worker against its first step", () => {
    scene.pass(20_000);
    scene.set(WORD.state, STATE.running);
    scene.pass(900);
    expect(scene.failures).toEqual([]);
    scene.pass(200);
    expect(scene.failures).toEqual([`it made no progress for ${deadlineMs} ms`]);
  });

  test("counts from the last step that a device began", () => {
    scene.set(WORD.state, STATE.running);
    for (const step of [1, 2, 3]) {
      scene.pass(900);
      scene.set(WORD.progress, step);
    }
    expect(scene.failures).toEqual([]);
    scene.pass(1200);
    expect(scene.failures).toHaveLength(1);
  });
});
