import type { CollectiveSpec } from "../../../compiler/steps.js";
import { byteSize } from "../../../ir/dtype.js";
import type { DevicePlace } from "../../../ir/engine.js";
import { at } from "../../../ir/shape.js";
import type { DeviceLocations } from "../../protocol/locations.js";
import { blockBytes, MpiGroup, partBounds, reductionOf } from "../library/mpiGroup.js";

/** What a collective sends between hosts. */
export interface HostTraffic {
  /** The most bytes that any host sends or receives. */
  readonly bytes: number;
  /** How many exchanges follow each other; none where nothing leaves a host. */
  readonly exchanges: number;
}

/** Sends bytes from one member of a group to another. */
type Send = (from: number, to: number, bytes: number) => void;

/**
 * What the devices at some places send between hosts in one use of a collective, all groups together.
 *
 * @param places where the device at every position of the mesh is
 */
export function hostTraffic(spec: CollectiveSpec, places: readonly DevicePlace[]): HostTraffic {
  const processes = places.map(({ process }) => process);
  const sent = new Map<string, number>();
  const received = new Map<string, number>();
  const add = (sums: Map<string, number>, host: string, bytes: number) =>
    sums.set(host, (sums.get(host) ?? 0) + bytes);
  for (const positions of spec.groups) {
    const send: Send = (from, to, bytes) => {
      const [a, b] = [from, to].map((member) => at(places, at(positions, member)).host);
      if (a === undefined || b === undefined || a === b) return;
      add(sent, a, bytes);
      add(received, b, bytes);
    };
    for (const position of positions) {
      const locations: DeviceLocations = {
        devices: places.map(() => 0),
        processes,
        process: at(processes, position),
      };
      sendAll(spec, new MpiGroup(positions, position, locations), send);
    }
  }
  const bytes = Math.max(0, ...sent.values(), ...received.values());
  const isTwofold =
    spec.kind === "allReduce" && reductionOf(spec.elements * byteSize(spec.dtype)) === "parts";
  return { bytes, exchanges: sent.size === 0 ? 0 : isTwofold ? 2 : 1 };
}

/** The messages of one member. */
function sendAll(spec: CollectiveSpec, group: MpiGroup, send: Send): void {
  const { me, elsewhere, processes } = group;
  const whole = spec.elements * byteSize(spec.dtype);
  const block = blockBytes(spec);
  const toProcesses = (bytes: number) => {
    for (const members of processes) send(me, group.receiver(me, members), bytes);
  };
  const toEach = (bytes: (member: number) => number) => {
    for (const member of elsewhere) send(me, member, bytes(member));
  };
  switch (spec.kind) {
    case "allReduce": {
      if (reductionOf(whole) === "whole") {
        toProcesses(whole);
        break;
      }
      const bounds = partBounds(whole, group.size);
      const partOf = (member: number) => at(bounds, member + 1) - at(bounds, member);
      toEach(partOf);
      toProcesses(partOf(me));
      break;
    }
    case "allGather":
      toProcesses(block);
      break;
    case "reduceScatter":
      toEach(() => block);
      break;
    case "allToAll":
      toEach(() => spec.inner * byteSize(spec.dtype));
      break;
    case "permute":
      for (const [from, to] of spec.permutation) if (from === me) send(me, to, whole);
  }
}
