import { mayBlock } from "#platform/system";
import { sharedEngine, sharedProcess } from "../../engines/default.js";
import { type Kind, need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { type Engine, engineKind } from "../../ir/engine.js";
import { AxisError, ValueError } from "../../ir/errors.js";
import {
  axesCoordinates,
  axesSize,
  formatMesh,
  type MeshAxis,
  type MeshShape,
  meshShape,
  type Spec,
} from "../../ir/mesh.js";
import type { Program } from "../../ir/program.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at } from "../../ir/shape.js";
import { addressablePositions, type ExecutionTarget } from "../../trace/executionTarget.js";
import type { Tensor } from "../../trace/tensor.js";
import type { PartitionRequest, RunnableProgram } from "../partition/partition.js";
import { partitionToRun } from "../partition/partitionToRun.js";
import { reshard } from "../partition/placement/reshard.js";
import type { CompileJob, CompileResult } from "./compileJob.js";
import { arrange, type Link, linkOver, nearbyDevices, placesOfDevices } from "./topology.js";

/** One device of a mesh: its number in the engine and its index along every axis. */
export interface Device {
  readonly id: number;
  readonly coordinates: Readonly<Record<string, number>>;
}

const meshOptions = schema({
  /** What runs the programs; by default the process's shared engine. */
  engine: optional(engineKind),
  /** The engine's devices in row-major order; by default 0, 1, 2 …, those of a host side by side. */
  devices: optional("integers"),
  /**
   * All axes, those whose devices may be farthest apart first: what is named last stays inside a process and a host as
   * far as it fits. By default the order of the axes.
   */
  layout: optional("strings"),
});

/** Options of {@link Mesh.create}. */
export interface MeshOptions extends OptionsOf<typeof meshOptions> {}

/** Which of the processes that run this program together this one is. */
export const defaultProcess: () => Engine["process"] = sharedProcess;

/** The engine that is used when none is given, with at least `numDevices` devices. */
export const defaultEngine = (numDevices: number): Engine => sharedEngine(numDevices);

/** All meshes. They are known by this and not by their class, which brings the partitioner and the engine of workers into a bundle. */
const meshes = new WeakSet<object>();

/** Whether a value is a mesh. */
export function isMesh(value: unknown): value is Mesh {
  return typeof value === "object" && value !== null && meshes.has(value);
}

/** The kind of arguments that are meshes. */
export const meshKind: Kind<Mesh> = {
  says: "a mesh",
  is: isMesh,
  advice: "make one with Mesh.create({ data: 2 })",
};

/** The names of axes as far as the checker knows them; `any`, which goes with every name, where it knows none. */
// biome-ignore lint/suspicious/noExplicitAny: see above
export type KnownAxes<Axes extends string> = string extends Axes ? any : Axes;

/** The names of the axes whose sizes `S` has. */
type AxesOf<S> = S extends unknown ? KnownAxes<keyof S & string> : never;

/** Maximum number of devices of a mesh. */
const maxDevices = 2 ** 20;

/**
 * Devices arranged along named axes.
 *
 * ```ts
 * const mesh = Mesh.create({ data: 2, model: 4 }); // a Mesh<"data" | "model">
 * ```
 *
 * @typeParam Axes the names of its axes, so that the checker finds specs with others
 */
// biome-ignore lint/suspicious/noExplicitAny: a mesh of which nothing is known takes every spec
export class Mesh<Axes extends string = any> implements MeshShape {
  readonly axes: readonly MeshAxis[];
  readonly #engine: Engine;
  /** The engine's device number at every position, row-major over the axes. */
  readonly deviceIds: readonly number[];
  /** The positions whose devices this process holds, ascending: all of them unless processes share the engine. */
  readonly addressablePositions: readonly number[];

  private constructor(axes: readonly MeshAxis[], engine: Engine, deviceIds: readonly number[]) {
    this.axes = axes;
    this.#engine = engine;
    this.deviceIds = deviceIds;
    this.addressablePositions = addressablePositions(engine, deviceIds);
    meshes.add(this);
  }

  /** Makes a mesh; the order of the axes is that of the object's keys, outermost first. */
  static create<const S extends Readonly<Record<string, number>>>(
    sizes: S,
    options?: MeshOptions,
  ): Mesh<AxesOf<S>> {
    const given = meshOptions.read(options, "Mesh.create");
    need("object", sizes, "the sizes of the axes", "Mesh.create");
    const axes = Object.entries(sizes).map(([name, size]) => ({ name, size }));
    const wrong = axes.filter(({ size }) => !Number.isInteger(size) || size < 1);
    if (wrong.length > 0) {
      const list = wrong.map(({ name, size }) => `${name}: ${describe(size)}`).join(", ");
      throw new AxisError(`[Mesh.create] axis sizes must be integers of at least 1, got ${list}`);
    }
    const size = axesSize(axes);
    if (size > maxDevices) {
      throw new AxisError(
        `[Mesh.create] ${formatMesh({ axes })} is a mesh of ${size} devices, more than ${maxDevices}: use smaller axes`,
      );
    }
    const { layout, engine = defaultEngine(size) } = given;
    const nearby = given.devices ?? nearbyDevices(engine, size);
    const devices = layout === undefined || nearby.length !== size ? nearby : arrange(axes, nearby, layout);
    need("integers", devices, "devices", "Mesh.create");
    need("object", engine, "engine", "Mesh.create");
    if (devices.length !== size) {
      throw new ValueError(
        `[Mesh.create] ${formatMesh({ axes })} needs ${size} devices, got ${devices.length}`,
      );
    }
    const missing = devices.filter((d) => !(Number.isInteger(d) && d >= 0 && d < engine.numDevices));
    if (missing.length > 0 || new Set(devices).size !== size) {
      throw new ValueError(
        `[Mesh.create] ${formatMesh({ axes })} needs ${size} different devices of engine "${engine.name}", which has ${engine.numDevices}: use smaller axes or open an engine with more devices`,
      );
    }
    return new Mesh(axes, engine, devices);
  }

  /** What runs programs on the mesh. It is not data: comparisons and clones see the axes and the devices. */
  get engine(): Engine {
    return this.#engine;
  }

  /** @internal Where programs on this mesh run. */
  get target(): ExecutionTarget {
    const { engine, deviceIds: devices, addressablePositions: positions } = this;
    return { engine, mesh: this, devices, positions };
  }

  /** @internal The program that every device of the mesh runs. */
  partition(program: Program, request: PartitionRequest): RunnableProgram {
    return partitionToRun(program, this, request);
  }

  /** @internal Partitions and compiles a program in a thread of its own; undefined where only this one can. */
  async compileElsewhere(program: Program, job: CompileJob): Promise<CompileResult | undefined> {
    const settings = this.engine.compileSettings?.(this.deviceIds);
    // Where it may block, partitioning alone is done sooner than another thread starts.
    if (settings === undefined && mayBlock()) return undefined;
    const { compileElsewhere } = await import("./compileElsewhere.js");
    return compileElsewhere(this.engine, program, { ...job, mesh: meshShape(this), settings });
  }

  /** @internal Records how a block of a tensor under one spec becomes that under another. */
  reshard(block: Tensor, from: Spec, to: Spec): Tensor {
    return reshard(block, from, to, this);
  }

  /** The names of the axes, outermost first. */
  get axisNames(): readonly Axes[] {
    return this.axes.map(({ name }) => name as Axes);
  }

  /** The sizes of the axes by name. */
  get shape(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.axes.map(({ name, size }) => [name, size]));
  }

  /** The number of devices. */
  get size(): number {
    return axesSize(this.axes);
  }

  /** All devices with their coordinates, row-major. */
  get devices(): readonly Device[] {
    return this.deviceIds.map((id, position) => ({ id, coordinates: this.coordinatesOf(position) }));
  }

  /** The index along every axis of the device at a row-major position. */
  coordinatesOf(position: number): Readonly<Record<string, number>> {
    const coordinates = axesCoordinates(this.axes, position);
    return Object.fromEntries(this.axes.map(({ name }, i) => [name, at(coordinates, i)]));
  }

  /** By which link the devices that differ along these axes reach each other: the slowest that lies between any. */
  linkOver(...axes: readonly string[]): Link {
    for (const name of axes) this.axisSize(name);
    return linkOver(this.axes, placesOfDevices(this.engine, this.deviceIds), axes);
  }

  /** The size of an axis. */
  axisSize(name: string): number {
    const axis = this.axes.find((candidate) => candidate.name === name);
    if (!axis) throw unknownAxis(this, name, "Mesh.axisSize");
    return axis.size;
  }

  /**
   * The same devices with one axis split into several, whose sizes multiply to its size:
   * `mesh.splitAxis("data", { replica: 2, fsdp: 4 })`.
   */
  splitAxis(name: string, parts: Readonly<Record<string, number>>): Mesh {
    const size = this.axisSize(name);
    const subAxes = Object.entries(parts).map(([part, n]) => ({ name: part, size: n }));
    if (axesSize(subAxes) !== size) {
      throw new AxisError(
        `[Mesh.splitAxis] axis "${name}" of size ${size} does not split into ${formatMesh({ axes: subAxes })} (${subAxes.map((a) => a.size).join(" x ")} = ${axesSize(subAxes)})`,
      );
    }
    const axes = this.axes.flatMap((axis) => (axis.name === name ? subAxes : [axis]));
    if (new Set(axes.map((axis) => axis.name)).size !== axes.length) {
      throw new AxisError(`[Mesh.splitAxis] ${formatMesh({ axes })} would have an axis name twice`);
    }
    return new Mesh(axes, this.engine, this.deviceIds);
  }

  toString(): string {
    return `Mesh ${formatMesh(this)} on ${this.engine.name}`;
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }

  /** Axes and devices; the engine is not data. */
  toJSON(): { readonly axes: readonly MeshAxis[]; readonly devices: readonly number[] } {
    return { axes: this.axes, devices: this.deviceIds };
  }
}

/** The mesh that a target was made from; undefined for a single device. */
export function meshAt({ mesh }: ExecutionTarget): Mesh | undefined {
  return isMesh(mesh) ? mesh : undefined;
}

/** The error for an axis that a mesh does not have. */
export function unknownAxis(mesh: MeshShape, name: string, caller: string): AxisError {
  return new AxisError(`[${caller}] axis "${name}" is not in the mesh ${formatMesh(mesh)}`);
}
