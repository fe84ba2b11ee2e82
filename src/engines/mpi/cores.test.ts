import { describe, expect, test } from "vitest";
import { parseCpuList, shareCores } from "./cores.js";

describe("cores", () => {
  test("are read as the system lists them", () => {
    expect(parseCpuList("0-2,5\n")).toEqual([0, 1, 2, 5]);
    expect(parseCpuList("")).toEqual([]);
  });

  test("are shared by the processes that may use them", () => {
    expect(shareCores([[0], [1]])).toEqual([1, 1]);
    expect(
      shareCores([
        [0, 1, 2, 3],
        [0, 1, 2, 3],
      ]),
    ).toEqual([2, 2]);
    expect(shareCores([[0, 1], [0, 1], [2]])).toEqual([1, 1, 1]);
    expect(shareCores([[0], [0], [0]])).toEqual([1, 1, 1]);
  });
});
