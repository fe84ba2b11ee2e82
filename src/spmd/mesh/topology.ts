/** Where the devices of a mesh are: which link the members of an axis reach each other by. */
import { need } from "../../ir/arguments.js";
import type { DevicePlace, Engine } from "../../ir/engine.js";
import { AxisError } from "../../ir/errors.js";
import { axesCoordinates, axesSize, deviceGroups, formatMesh, type MeshAxis } from "../../ir/mesh.js";
import { at, range } from "../../ir/shape.js";

/** How devices reach each other: the memory of their process, messages on one host, or the network between hosts. */
export type Link = "process" | "host" | "network";

const nearestFirst: readonly Link[] = ["process", "host", "network"];

/** What a link is called in tables. */
export const linkNames: { readonly [L in Link]: string } = {
  process: "inside a process",
  host: "between processes of a host",
  network: "between hosts",
};

/** The places of an engine's devices; one that does not say has all of them in one process. */
export function placesOfDevices(engine: Engine, devices: readonly number[]): DevicePlace[] {
  const here = { process: 0, host: "" };
  return devices.map((device) => engine.placeOf?.(device) ?? here);
}

/**
 * The first devices of an engine for a mesh, so that neighbours are near each other: those of a process side by side,
 * and the processes of a host.
 */
export function nearbyDevices(engine: Engine, count: number): number[] {
  if (engine.placeOf === undefined) return range(count);
  const devices = range(Math.min(engine.numDevices, 2 ** 20));
  const places = placesOfDevices(engine, devices);
  const hosts = [...new Set(places.map(({ host }) => host))];
  const rank = (device: number) => hosts.indexOf(at(places, device).host);
  return devices
    .sort((a, b) => rank(a) - rank(b) || at(places, a).process - at(places, b).process || a - b)
    .slice(0, count);
}

/**
 * Arranges devices so that neighbours lie along the axes that a layout names last.
 *
 * @param devices in an order in which neighbours are near each other
 * @param layout all axes, from the one whose members may be farthest apart to the one whose must be near
 * @returns the device of every position, row-major over the axes
 */
export function arrange(
  axes: readonly MeshAxis[],
  devices: readonly number[],
  layout: readonly string[],
): number[] {
  need("strings", layout, "layout", "Mesh.create");
  const names = axes.map(({ name }) => name);
  const isOrder = layout.length === names.length && names.every((name) => layout.includes(name));
  if (!isOrder) {
    throw new AxisError(
      `[Mesh.create] layout [${layout.join(", ")}] must name every axis of ${formatMesh({ axes })} once, the farthest apart first: for example [${names.join(", ")}]`,
    );
  }
  return range(axesSize(axes)).map((position) => {
    const coordinates = axesCoordinates(axes, position);
    const index = layout.reduce((sum, name) => {
      const axis = names.indexOf(name);
      return sum * at(axes, axis).size + at(coordinates, axis);
    }, 0);
    return at(devices, index);
  });
}

/** The farthest link that collectives over some axes cross. */
export function linkOver(
  axes: readonly MeshAxis[],
  places: readonly DevicePlace[],
  over: readonly string[],
): Link {
  const links = deviceGroups({ axes }, over).map((group): Link => {
    const members = group.map((position) => at(places, position));
    if (new Set(members.map(({ host }) => host)).size > 1) return "network";
    return new Set(members.map(({ process }) => process)).size > 1 ? "host" : "process";
  });
  return nearestFirst.findLast((link) => links.includes(link)) ?? "process";
}

/** Devices spread evenly over processes, and those over hosts, in their order. */
export function evenPlaces(numDevices: number, numProcesses: number, numHosts: number): DevicePlace[] {
  return range(numDevices).map((device) => {
    const process = Math.floor((device * numProcesses) / numDevices);
    return { process, host: `host ${Math.floor((process * numHosts) / numProcesses)}` };
  });
}
