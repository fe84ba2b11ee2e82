import { ShardingError } from "../../ir/errors.js";
import { formatMesh, positionAlong, type Spec, sameSpec, splitCount } from "../../ir/mesh.js";
import { at } from "../../ir/shape.js";
import { isFullyAddressable, isSameTarget } from "../../trace/executionTarget.js";
import type { Prefix } from "../../trace/prefix.js";
import { needTensor } from "../../trace/promote.js";
import {
  blockOffsets,
  bytesPerDevice,
  onDevice,
  type Placement,
  place,
  Storage,
} from "../../trace/storage.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { type Device, type Mesh, meshAt } from "./mesh.js";
import { type PartitionSpec, resolveSpec, toPartitionSpec } from "./partitionSpec.js";

/** A mesh together with a spec: where the blocks of a tensor lie. */
// biome-ignore lint/suspicious/noExplicitAny: as in Mesh
export class NamedSharding<Axes extends string = any> {
  readonly mesh: Mesh<Axes>;
  readonly spec: PartitionSpec<Axes>;

  constructor(mesh: Mesh<Axes>, spec: PartitionSpec<NoInfer<Axes>>) {
    this.mesh = mesh;
    this.spec = spec;
  }

  /** Whether this process holds all devices of the mesh. */
  get isFullyAddressable(): boolean {
    return this.mesh.addressablePositions.length === this.mesh.size;
  }

  toString(): string {
    return `NamedSharding(${formatMesh(this.mesh)}, ${this.spec})`;
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }
}

/** A block of a tensor on one device. */
export interface Shard {
  readonly device: Device;
  /** The first index and the end of the block along each dim. */
  readonly index: readonly (readonly [start: number, end: number])[];
  /** A tensor of the block alone. */
  readonly data: Tensor;
}

/** The placement of a tensor of some rank under a resolved spec. */
export function placementOn(mesh: Mesh, spec: Spec): Placement {
  return { ...mesh.target, spec };
}

/** Whether two placements put every block in the same place. */
export function samePlacement(a: Placement, b: Placement): boolean {
  return a === b || (isSameTarget(a, b) && sameSpec(a.spec, b.spec));
}

/** The part of a tensor that lies where all of it does: both parts of complex numbers lie in the same places. */
const realPart = (tensor: Tensor): Tensor => tensor.parts?.[0] ?? tensor;

/** The sharding of a concrete tensor, or `undefined` for one that lies on a single device. */
export function shardingOf(tensor: Tensor): NamedSharding | undefined {
  const { placement } = realPart(tensor).storage("Tensor.sharding");
  const mesh = meshAt(placement);
  return mesh && new NamedSharding(mesh, toPartitionSpec(placement.spec));
}

/**
 * The blocks of a concrete tensor on the devices that this process holds, each as a copy on its device.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const x = await devicePut(np.arange(4), new NamedSharding(mesh, P("data")));
 * addressableShards(x).map(({ data }) => data); // [[0, 1], [2, 3]]
 * ```
 */
export function addressableShards(tensor: Tensor): Shard[] {
  needTensor(tensor, "tensor", "addressableShards");
  if (tensor.parts) {
    const [real, imag] = tensor.parts.map(addressableShards);
    return (real ?? []).map((shard, i) => ({
      ...shard,
      data: Tensor.complex(shard.data, at(imag ?? [], i).data),
    }));
  }
  const caller = "Tensor.addressableShards";
  const storage = tensor.storage(caller);
  // What is kept split is gathered where that is done, which one of several processes cannot do alone.
  const isHere = isFullyAddressable(storage.placement);
  const { engine, mesh, devices, positions, spec } = isHere ? storage.placement : storage.held;
  const buffers = isHere ? storage.read(caller) : storage.readHeld(caller);
  return buffers.map((buffer, i): Shard => {
    const position = at(positions, i);
    const id = at(devices, position);
    const offsets = blockOffsets(tensor.shape, spec, mesh, position);
    const index = offsets.map((start, d) => [start, start + at(buffer.type.shape, d)] as const);
    const coordinates = meshAt(storage.placement)?.coordinatesOf(position) ?? {};
    const copy = new Storage(onDevice(engine, id), buffer.type, [engine.transfer(buffer, id)]);
    return { device: { id, coordinates }, index, data: Tensor.stored(copy) };
  });
}

/**
 * Puts the tensors of a tree on the devices of a mesh.
 *
 * @param sharding one sharding for all leaves, or a tree of them that is a prefix of `values`
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const x = await devicePut(np.arange(4), new NamedSharding(mesh, P("data")));
 * x.addressableShards.length; // 2
 * ```
 */
export async function devicePut<T>(values: T, sharding: Prefix<T, NamedSharding>): Promise<T> {
  const { structure } = tree.flatten(values);
  const shardings = tree.broadcastPrefix(
    sharding,
    structure,
    "devicePut",
    (node) => node instanceof NamedSharding,
  );
  const placed = await Promise.all(
    tree.flattenWithPath(values).map(async ({ path, leaf }, i) => {
      const target = shardings[i];
      if (!(leaf instanceof Tensor))
        throw new ShardingError(`[devicePut] the leaf at "${path}" is not a tensor`);
      if (!(target instanceof NamedSharding)) {
        throw new ShardingError(`[devicePut] no NamedSharding is given for the leaf at "${path}"`);
      }
      return putTensor(leaf, target, path);
    }),
  );
  return tree.unflatten<T>(structure, placed);
}

async function putTensor(tensor: Tensor, sharding: NamedSharding, path: string): Promise<Tensor> {
  if (tensor.parts) {
    const [real, imag] = tensor.parts;
    return Tensor.complex(await putTensor(real, sharding, path), await putTensor(imag, sharding, path));
  }
  const spec = resolveSpec(sharding.spec, sharding.mesh, tensor.shape, "devicePut", path || "the tensor");
  const placement = placementOn(sharding.mesh, spec);
  const storage = tensor.storage("devicePut");
  await storage.settled();
  if (samePlacement(storage.placement, placement)) return tensor;
  return Tensor.stored(place(placement, tensor.type, await storage.download("devicePut")));
}

/**
 * A picture of which device holds which block of a tensor of one or two dims; further dims are named below it.
 *
 * ```
 * ┌─────┬─────┐
 * │ 0,1 │ 2,3 │
 * └─────┴─────┘
 * ```
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const x = await devicePut(np.arange(4), new NamedSharding(mesh, P("data")));
 * visualizeSharding(x).split("\n")[1]; // "│  0  │  1  │"
 * ```
 */
export function visualizeSharding(tensor: Tensor): string {
  needTensor(tensor, "tensor", "visualizeSharding");
  const { placement } = realPart(tensor).storage("visualizeSharding");
  const { mesh, devices, spec } = placement;
  const counts = spec.map((axes) => splitCount(mesh, axes));
  const rows = counts.length > 1 ? at(counts, 0) : 1;
  const columns = counts.length > 1 ? at(counts, 1) : (counts[0] ?? 1);
  const cells = Array.from({ length: rows }, () => Array.from({ length: columns }, (): number[] => []));
  devices.forEach((device, position) => {
    const along = spec.map((axes) => positionAlong(mesh, position, axes));
    const [row, column] = along.length > 1 ? [at(along, 0), at(along, 1)] : [0, along[0] ?? 0];
    cells[row]?.[column]?.push(device);
  });
  const texts = cells.map((row) => row.map((ids) => ids.join(",")));
  const width = Math.max(3, ...texts.flat().map((text) => text.length)) + 2;
  const line = (left: string, middle: string, right: string) =>
    left + Array.from({ length: columns }, () => "─".repeat(width)).join(middle) + right;
  const body = texts.map((row) => `│${row.map((text) => center(text, width)).join("│")}│`);
  const picture = body.flatMap((row, i) => (i === 0 ? [row] : [line("├", "┼", "┤"), row]));
  const caption = `${tensor} ${toPartitionSpec(spec)} on ${formatMesh(mesh)}: ${bytesPerDevice(tensor.type, placement)} bytes a device`;
  const more = counts.slice(2).some((n) => n > 1)
    ? `\ndims 2 … are split ${counts.slice(2).join(" x ")} ways`
    : "";
  return [line("┌", "┬", "┐"), ...picture, line("└", "┴", "┘"), caption].join("\n") + more;
}

function center(text: string, width: number): string {
  const left = Math.floor((width - text.length) / 2);
  return " ".repeat(left) + text + " ".repeat(width - text.length - left);
}
