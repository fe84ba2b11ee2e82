import { describe, expect, test, vi } from "vitest";
import { createCollector } from "../engines/collector.js";
import { HighWaterMark, provideCollector, reclaim, watch } from "./reclaim.js";

provideCollector(createCollector());

/** Watches an object that nothing refers to when the call has returned. */
function watchGarbage(release: () => void): void {
  watch({ payload: new Array(16).fill(0) }, release);
}

describe("reclaiming", () => {
  test("gives back what unreachable holders hold before the task ends", () => {
    let released = 0;
    for (let i = 0; i < 100; i++) watchGarbage(() => released++);
    expect(reclaim()).toBe(100);
    expect(released).toBe(100);
    expect(reclaim()).toBe(0);
  });

  test("leaves reachable holders alone, however often it looks", () => {
    const holder = {};
    let released = 0;
    const watched = watch(holder, () => released++);
    for (let i = 0; i < 3; i++) reclaim();
    expect([released, Object.keys(holder)]).toEqual([0, []]);
    watched.forget();
  });

  test("forgets what was given back otherwise", () => {
    let released = 0;
    const forgotten = () => watch({}, () => released++).forget();
    forgotten();
    reclaim();
    expect(released).toBe(0);
  });

  test("finds them after awaiting only what is ready", async () => {
    let released = 0;
    for (let i = 0; i < 10; i++) {
      watchGarbage(() => released++);
      await null;
    }
    reclaim();
    expect(released).toBe(10);
  });

  test("is not needed where the task ends: what was collected is found afterwards, again and again", async () => {
    const collector = createCollector();
    let released = 0;
    for (let round = 1; round <= 2; round++) {
      watchGarbage(() => released++);
      const collect = () => {
        collector.letGo();
        collector.collect();
        return released;
      };
      expect(collect()).toBe(round - 1);
      // What was watched last is held until the collector has run once.
      await expect.poll(collect, { timeout: 60_000 }).toBe(round);
    }
  });

  test("makes no weak references to what is soon given back otherwise", () => {
    let made = 0;
    class CountedRef<T extends WeakKey> extends WeakRef<T> {
      constructor(target: T) {
        super(target);
        made++;
      }
    }
    vi.stubGlobal("WeakRef", CountedRef);
    try {
      const state = Array.from({ length: 200 }, () => ({}));
      for (let i = 0; i < 10; i++) {
        const watched = state.map((holder) => watch(holder, () => {}));
        for (const one of watched) one.forget();
      }
      expect(made).toBe(0);
      const watched = state.map((holder) => watch(holder, () => {}));
      reclaim();
      expect(made).toBe(200);
      for (const one of watched) one.forget();
    } finally {
      vi.unstubAllGlobals();
    }
  });

  test("does not begin again while it is under way", () => {
    let inner = -1;
    watchGarbage(() => {
      inner = reclaim();
    });
    reclaim();
    expect(inner).toBe(0);
  });

  test("keeps the number of unreachable holders bounded in a loop that never ends its task", () => {
    let alive = 0;
    let most = 0;
    for (let i = 0; i < 60_000; i++) {
      alive++;
      most = Math.max(most, alive);
      watchGarbage(() => alive--);
    }
    expect(most).toBeLessThan(35_000);
    reclaim();
    expect(alive).toBe(0);
  });
});

describe("a high-water mark", () => {
  test("is reached at twice of what was live the last time", () => {
    let used = 0;
    let checks = 0;
    const mark = new HighWaterMark(100);
    const look = (amount: number) => {
      used = amount;
      let garbageFound = false;
      watchGarbage(() => {
        garbageFound = true;
      });
      mark.check(() => used);
      checks++;
      return garbageFound;
    };
    expect([look(99), look(100), look(199), look(200), look(399)]).toEqual([false, true, false, true, false]);
    expect(checks).toBe(5);
    reclaim();
  });
});
