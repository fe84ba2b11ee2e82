import { Mesh } from "shardwise";
import { describe, expect, test } from "vitest";
import { createReferenceEngine } from "../../engines/index.js";
import type { DevicePlace, Engine } from "../../ir/engine.js";
import { at } from "../../ir/shape.js";
import { evenPlaces, linkOver } from "./topology.js";

/** An engine whose devices are said to be elsewhere. */
function engineAt(places: readonly DevicePlace[]): Engine {
  const engine = createReferenceEngine({ numDevices: places.length });
  return Object.assign(engine, { placeOf: (device: number) => at(places, device) });
}

// Four processes of two devices, dealt to two hosts in turn as `--map-by node` does.
const dealt = engineAt(
  [0, 0, 1, 1, 2, 2, 3, 3].map((process) => ({ process, host: process % 2 === 0 ? "a" : "b" })),
);

describe("the devices of a mesh", () => {
  test("lie side by side when they are of one process, and then of one host", () => {
    const mesh = Mesh.create({ data: 2, pipe: 2, model: 2 }, { engine: dealt });
    expect(mesh.deviceIds).toEqual([0, 1, 4, 5, 2, 3, 6, 7]);
    expect(["data", "pipe", "model"].map((axis) => mesh.linkOver(axis))).toEqual([
      "network",
      "host",
      "process",
    ]);
    expect(mesh.linkOver("pipe", "model")).toBe("host");
  });

  test("lie as a layout says, whatever the order of the axes", () => {
    const mesh = Mesh.create(
      { model: 2, data: 2, pipe: 2 },
      { engine: dealt, layout: ["data", "pipe", "model"] },
    );
    expect(["data", "pipe", "model"].map((axis) => mesh.linkOver(axis))).toEqual([
      "network",
      "host",
      "process",
    ]);
    // Without it the last axis would be the nearest.
    const plain = Mesh.create({ model: 2, data: 2, pipe: 2 }, { engine: dealt });
    expect(plain.linkOver("model")).toBe("network");
    expect(new Set(mesh.deviceIds).size).toBe(8);
  });

  test("need a layout that names every axis once", () => {
    expect(() => Mesh.create({ data: 2, model: 2 }, { engine: dealt, layout: ["model"] })).toThrow(
      "[Mesh.create] layout [model] must name every axis of {data: 2, model: 2} once, the farthest apart first: for example [data, model]",
    );
  });

  test("are together where the engine does not say", () => {
    const mesh = Mesh.create({ data: 2, model: 2 }, { engine: createReferenceEngine({ numDevices: 4 }) });
    expect(mesh.deviceIds).toEqual([0, 1, 2, 3]);
    expect(mesh.linkOver("data", "model")).toBe("process");
  });
});

test("a collective crosses the slowest link that lies between any of its members", () => {
  const axes = [
    { name: "data", size: 4 },
    { name: "model", size: 2 },
  ];
  const places = evenPlaces(8, 4, 2);
  expect(linkOver(axes, places, ["model"])).toBe("process");
  expect(linkOver(axes, places, ["data"])).toBe("network");
  expect(linkOver(axes, evenPlaces(8, 4, 1), ["data"])).toBe("host");
  expect(linkOver(axes, evenPlaces(8, 8, 1), ["model"])).toBe("host");
});
