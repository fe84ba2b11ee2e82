import { expect, test } from "vitest";
import { describeWith, koffi } from "../../../test/support/optional.js";
import { newMemory } from "../memory/memoryLayout.js";
import { nativeCopy } from "./nativeCopy.js";

describeWith(koffi, "copies by the C library", () => {
  const memories = [newMemory("i32", 65536), newMemory("i32", 65536)];
  const [first, second] = memories.map((memory) => new Uint8Array(memory.buffer));

  test("move bytes from one memory to another, and nothing beside them", () => {
    first?.fill(7);
    nativeCopy(memories)?.(1, 101, 0, 33, 5000);
    expect(second?.subarray(100, 5102).filter((byte) => byte === 7)).toHaveLength(5000);
    expect([second?.[100], second?.[101], second?.[5100], second?.[5101]]).toEqual([0, 7, 7, 0]);
  });

  test("refuse what is outside of a memory", () => {
    expect(() => nativeCopy(memories)?.(0, 65000, 1, 0, 1000)).toThrow(/outside of their memories/);
    expect(() => nativeCopy(memories)?.(0, 0, 1, 65535, 2)).toThrow(/outside of their memories/);
    expect(() => nativeCopy(memories)?.(0, -1, 1, 0, 2)).toThrow(/outside of their memories/);
  });

  test("are not needed where all devices share one memory", () => {
    const [one] = memories;
    expect(one && nativeCopy([one, one])).toBeUndefined();
  });
});
