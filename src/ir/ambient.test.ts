import { describe, expect, test } from "vitest";
import { Ambient, ambientValues, readsOnce, traceKey } from "./ambient.js";

const depth = new Ambient({
  name: "depth of a test",
  initial: 0,
  setBy: "atDepth",
  dependence: { key: String },
});

const label = new Ambient({
  name: "label of a test",
  initial: "",
  setBy: "labelled",
  dependence: { unkeyed: "it is for tests" },
});

const request = new Ambient<object | undefined>({
  name: "request of a test",
  initial: undefined,
  setBy: "answering",
  dependence: { once: "each request comes once" },
});

describe("an ambient value", () => {
  test("holds until its function returns, inside of each other", () => {
    const seen: number[] = [];
    depth.within(1, () => {
      depth.within(2, () => seen.push(depth.get()));
      seen.push(depth.get());
    });
    expect([...seen, depth.get()]).toEqual([2, 1, 0]);
  });

  test("is put back when its function throws", () => {
    const fail = () => {
      throw new Error("on purpose");
    };
    expect(() => depth.within(1, () => depth.within(2, fail))).toThrow("on purpose");
    expect(depth.get()).toBe(0);
    expect(traceKey()).not.toContain("depth");
  });

  test("refuses a function that goes on after it has returned", async () => {
    const rejected = async () => {
      await Promise.resolve();
      throw new Error("nobody listens");
    };
    expect(() => depth.within(1, rejected)).toThrow(
      "[atDepth] its function returned a promise, but the depth of a test holds only until the function returns",
    );
    expect(depth.get()).toBe(0);
  });

  test("is not seen by other tasks", async () => {
    const seen: number[] = [];
    const other = Promise.resolve().then(() => seen.push(depth.get()));
    depth.within(1, () => seen.push(depth.get()));
    await other;
    expect(seen).toEqual([1, 0]);
  });

  test("can be set for good, and gives back what was there", () => {
    expect(label.set("a")).toBe("");
    expect(label.set("")).toBe("a");
  });

  test("has a name of its own", () => {
    const again = () =>
      new Ambient({ name: "label of a test", initial: 0, setBy: "again", dependence: { key: String } });
    expect(again).toThrow('the ambient value "label of a test" is declared twice');
    expect(ambientValues()).toContain(label);
  });
});

describe("the key of traces", () => {
  test("has the keyed values that are not the initial ones", () => {
    const before = traceKey();
    const at = (value: number) => depth.within(value, traceKey);
    expect(at(0)).toBe(before);
    expect(at(1)).toContain('depth of a test="1";');
    expect(at(1)).toBe(at(1));
    expect(at(1)).not.toBe(at(2));
    expect(label.within("other", traceKey)).toBe(before);
    expect(depth.within(1, () => depth.within(0, traceKey))).toBe(before);
  });

  test("knows a value that is set for good inside of another's extent", () => {
    const before = traceKey();
    const name = new Ambient({
      name: "name of a test",
      initial: "",
      setBy: "named",
      dependence: { key: String },
    });
    depth.within(1, () => name.set("b"));
    expect(traceKey()).toContain('name of a test="b";');
    name.set("");
    expect(traceKey()).toBe(before);
  });
});

describe("a value of one call", () => {
  const isRead = (fn: () => unknown) => readsOnce(fn).readOnce;
  const read = () => request.get();

  test("is noted by what reads it from outside, and by nothing else", () => {
    expect(isRead(read)).toBe(false);
    expect(isRead(() => request.within({}, read))).toBe(false);
    request.within({}, () => {
      expect(isRead(read)).toBe(true);
      expect(isRead(() => request.peek())).toBe(false);
      expect(isRead(() => request.within({}, read))).toBe(false);
    });
  });

  test("is noted by all that lie between where it was set and where it is read", () => {
    const inner: boolean[] = [];
    const outer = isRead(() =>
      request.within({}, () =>
        isRead(() =>
          inner.push(
            isRead(read),
            isRead(() => 0),
            isRead(read),
          ),
        ),
      ),
    );
    expect([outer, ...inner]).toEqual([false, true, false, true]);
    request.within({}, () => {
      expect(isRead(() => isRead(read))).toBe(true);
      expect(isRead(() => isRead(() => 0))).toBe(false);
    });
  });
});
