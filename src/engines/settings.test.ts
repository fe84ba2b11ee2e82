import { afterAll, describe, expect, test } from "vitest";
import { chooseEngine, sharedEngine } from "./default.js";
import { environmentSettings, parseBytes } from "./settings.js";

describe("parseBytes", () => {
  test.each([
    ["1024", 1024],
    ["2GiB", 2 ** 31],
    ["1.5 GiB", 1.5 * 2 ** 30],
    ["512mib", 2 ** 29],
    ["2GB", undefined],
    ["0", undefined],
    ["-1GiB", undefined],
    ["much", undefined],
    ["", undefined],
  ])("reads %j", (text, bytes) => {
    expect(parseBytes(text)).toBe(bytes);
  });
});

describe("environmentSettings", () => {
  test("reads what is set and nothing else", () => {
    expect(environmentSettings({})).toEqual({});
    expect(environmentSettings({ SHARDWISE_MEMORY: "1GiB", SHARDWISE_DEADLINE: "0.5" })).toEqual({
      memoryBytes: 2 ** 30,
      deadlineMs: 500,
    });
  });

  test("says what is wrong with a value", () => {
    expect(() => environmentSettings({ SHARDWISE_MEMORY: "lots" })).toThrow(
      /SHARDWISE_MEMORY is "lots": use a size such as 512MiB or 2GiB/,
    );
    expect(() => environmentSettings({ SHARDWISE_DEADLINE: "-1" })).toThrow(/SHARDWISE_DEADLINE is "-1"/);
  });
});

describe("the shared engine", () => {
  afterAll(() => chooseEngine(undefined));

  test("is opened again for other settings, and is kept if none are requested", async () => {
    await chooseEngine("threads");
    const small = sharedEngine(1, { memoryBytes: 2 ** 26 });
    expect(small.info?.()).toMatchObject({ memoryBytes: 2 ** 26 });
    expect(sharedEngine(1)).toBe(small);
    expect(sharedEngine(1, { memoryBytes: 2 ** 26 })).toBe(small);
    const large = sharedEngine(1, { memoryBytes: 2 ** 27 });
    expect(large).not.toBe(small);
    await Promise.all([small.close(), large.close()]);
  });
});
