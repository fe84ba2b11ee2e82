import { expect, test } from "vitest";
import { range } from "../../../ir/shape.js";
import { MpiGroup } from "./mpiGroup.js";

/** Members of a group as each of them sees it; processes take turns along the axis. */
const processes = [0, 1, 2, 0, 1, 2];
const groupOf = (position: number) => {
  const locations = {
    devices: processes.map((_, i) => Math.floor(i / 3)),
    processes,
    process: processes[position] ?? 0,
  };
  return new MpiGroup(range(6), position, locations);
};

test("members of a process agree on who receives what for all of them, and in which order", () => {
  for (const position of range(6)) {
    const [own, neighbour] = [groupOf(position), groupOf((position + 3) % 6)];
    for (const member of own.here) expect(neighbour.receivedBy(member)).toEqual(own.receivedBy(member));
  }
});

test("every member begins with the next one elsewhere", () => {
  expect(groupOf(0).elsewhere).toEqual([1, 2, 4, 5]);
  expect(groupOf(4).elsewhere).toEqual([5, 0, 2, 3]);
});

test("sums that MPI forms have one member of each process", () => {
  expect(groupOf(4).sharers).toEqual(range(3).map((process) => ({ process, device: 1 })));
});
