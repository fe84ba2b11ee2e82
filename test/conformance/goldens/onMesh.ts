import type { Engine } from "../../../src/ir/engine.js";
import { range } from "../../../src/ir/shape.js";
import { type DimNames, isBoxed, Partitioned } from "../../../src/nn/index.js";
import * as np from "../../../src/numpy/index.js";
import { Mesh } from "../../../src/spmd/mesh/mesh.js";
import { P } from "../../../src/spmd/mesh/partitionSpec.js";
import { jit, type Synchronous } from "../../../src/spmd/run/jit.js";
import { shardMap } from "../../../src/spmd/run/shardMap.js";
import type { Tensor } from "../../../src/trace/tensor.js";
import * as tree from "../../../src/trace/tree.js";
import type { GoldenCase } from "./cases.js";
import { Mismatch } from "./compare.js";

/** What the devices of a mesh returned. */
export interface MeshResult<R> {
  /** The result's tree without boxes; every tensor has a leading dim for the devices. */
  readonly values: R;
  /** The names of the boxes in the result, by the path of the leaf. */
  readonly names: Readonly<Record<string, DimNames>>;
}

/** The mesh of a case on an engine; on one of several processes it takes devices of as many of them as it can. */
export function meshOf(golden: GoldenCase, engine: Engine): Mesh {
  const { count } = engine.process;
  const size = golden.mesh.reduce((product, [, n]) => product * n, 1);
  const perProcess = Math.ceil(size / count);
  const local = engine.numDevices / count;
  const spread = range(size).map((i) => Math.floor(i / perProcess) * local + (i % perProcess));
  return Mesh.create(Object.fromEntries(golden.mesh), { engine, ...(count > 1 && { devices: spread }) });
}

/** Whether a process has nothing to do with a case, because it holds no device of its mesh. */
export function isElsewhere(golden: GoldenCase, engine: Engine): boolean {
  return golden.has("mesh") && meshOf(golden, engine).addressablePositions.length === 0;
}

/** The name of the only axis of a case's mesh, or of the first. */
export function firstAxis(golden: GoldenCase): string {
  const [axis] = golden.mesh;
  if (!axis) throw new Mismatch(`${golden.area}/${golden.name} has no mesh`);
  return axis[0];
}

/**
 * Runs a function on all devices of a mesh.
 *
 * @param args trees whose tensors have a leading dim for the devices; the function gets one row of each
 */
export function onMesh<A extends readonly unknown[], R>(
  mesh: Mesh,
  fn: (...args: A) => R,
  ...args: A
): MeshResult<R> {
  const rows = P(mesh.axisNames);
  const names: Record<string, DimNames> = {};
  const perDevice = (...blocks: A): unknown => {
    const result = fn(...onTensors(blocks, (x) => np.squeeze(x, 0)));
    for (const { path, leaf } of tree.flattenWithPath(result, isBoxed)) {
      if (leaf instanceof Partitioned) names[path] = leaf.names;
    }
    return onTensors(withoutBoxes(result), (x) => np.expandDims(x, 0));
  };
  const run = jit(shardMap(perDevice, { mesh, inSpecs: rows, outSpecs: rows, checkReplication: false }));
  return { values: run(...args) as R, names };
}

/** A mesh of one device of an engine, in every process one of its own. */
export function aloneMesh(engine: Engine, axes: readonly string[] = ["alone"]): Mesh {
  let device = 0;
  while (!engine.isAddressable(device)) device++;
  return Mesh.create(Object.fromEntries(axes.map((axis) => [axis, 1])), { engine, devices: [device] });
}

/** Runs a function on one device of an engine. */
export function alone<A extends readonly unknown[], R>(
  engine: Engine,
  fn: ((...args: A) => R) & Synchronous<R>,
  ...args: A
): R {
  return jit(fn, { mesh: aloneMesh(engine) })(...args);
}

function onTensors<T>(values: T, fn: (x: Tensor) => Tensor): T {
  return tree.map<T, Tensor, Tensor>(fn, values) as T;
}

/** Takes values out of their boxes as they are; they are blocks of one device, on which no constraint applies. */
function withoutBoxes(values: unknown): unknown {
  const { leaves, structure } = tree.flatten(values, isBoxed);
  return tree.unflatten(
    structure,
    leaves.map((leaf) => (leaf instanceof Partitioned ? leaf.value : leaf)),
  );
}

/** Puts values back into the boxes that a case lists for a part of its tree, such as `variables`. */
export function withBoxes(values: unknown, golden: GoldenCase, part: string): unknown {
  const { structure } = tree.flatten(values);
  const boxed = tree.flattenWithPath(values).map(({ path, leaf }) => {
    const keys = ["names", path === "" ? part : part === "" ? path : `${part}/${path}`];
    return golden.has(...keys) ? new Partitioned(leaf, readNames(golden, keys)) : leaf;
  });
  return tree.unflatten(structure, boxed);
}

function readNames(golden: GoldenCase, keys: readonly string[]): DimNames {
  const names = golden.value(...keys);
  if (!Array.isArray(names)) throw new Mismatch(`${keys.join(" > ")} is no list of names`);
  return names.map((name) => (typeof name === "string" ? name : null));
}

/** Fails unless the boxes of a result have the names that the case lists. */
export function expectNames(actual: Readonly<Record<string, DimNames>>, golden: GoldenCase): void {
  const expected = golden.value("names");
  const format = (names: object) =>
    Object.entries(names)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([path, list]) => `${path}: ${JSON.stringify(list)}`)
      .join(", ");
  const [got, want] = [format(actual), format(Object(expected))];
  if (got !== want)
    throw new Mismatch(`the boxes of the result are ${got || "none"}, expected ${want || "none"}`);
}
