import { expect, test } from "vitest";
import { collectiveSpec } from "../../../../test/support/threadsPrograms.js";
import type { CollectiveSpec } from "../../../compiler/steps.js";
import { range } from "../../../ir/shape.js";
import { hostTraffic } from "./traffic.js";

/** Four devices along one axis, two in each of two processes. */
const mesh = { axes: [{ name: "x", size: 4 }] };
const onHosts = (hosts: readonly string[]) =>
  range(4).map((i) => ({ process: i >> 1, host: hosts[i >> 1] ?? "" }));

function traffic(kind: CollectiveSpec["kind"], elements: number, hosts: readonly string[] = ["a", "b"]) {
  const isSplit = kind === "reduceScatter" || kind === "allToAll";
  const shape = {
    outer: 1,
    inner: isSplit ? elements / 4 : elements,
    permutation: [
      [0, 1],
      [1, 2],
    ] as const,
  };
  const spec = collectiveSpec(mesh, { kind, dtype: "float32", axes: ["x"], ...shape }, 0, 1);
  return hostTraffic(spec, onHosts(hosts));
}

test("what one process sends to several devices of another crosses over once", () => {
  expect(traffic("allGather", 100)).toEqual({ bytes: 2 * 400, exchanges: 1 });
  // Short sums: every source to the other process. Long ones: a part to each device there, and its result to one.
  expect(traffic("allReduce", 1000)).toEqual({ bytes: 2 * 4000, exchanges: 1 });
  expect(traffic("allReduce", 40_960)).toEqual({ bytes: 2 * (2 * 40_960 + 40_960), exchanges: 2 });
});

test("what each device gets for itself crosses over to each", () => {
  expect(traffic("reduceScatter", 400)).toEqual({ bytes: 2 * 2 * 400, exchanges: 1 });
  expect(traffic("allToAll", 400)).toEqual({ bytes: 2 * 2 * 400, exchanges: 1 });
  expect(traffic("permute", 100)).toEqual({ bytes: 400, exchanges: 1 });
});

test("nothing crosses over between processes of one host", () => {
  expect(traffic("allReduce", 1000, ["a", "a"])).toEqual({ bytes: 0, exchanges: 0 });
});
