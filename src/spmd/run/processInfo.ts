import { needIfGiven } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { InternalError, ShapeError, ShardingError } from "../../ir/errors.js";
import { formatMesh, positionAlong, splitCount } from "../../ir/mesh.js";
import { at, range, type Shape } from "../../ir/shape.js";
import { needTensor } from "../../trace/promote.js";
import { type Placement, place } from "../../trace/storage.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { type Device, defaultEngine, defaultProcess, Mesh, meshAt } from "../mesh/mesh.js";
import { axesOf, P, replicatedSpec, resolveSpec } from "../mesh/partitionSpec.js";
import { NamedSharding, placementOn } from "../mesh/sharding.js";
import { reshardInPlace } from "./execute.js";

/**
 * Which of the processes that run this program together this one is: 0 unless a launcher started several.
 *
 * @example
 * ```ts
 * processIndex(); // 0
 * ```
 */
export function processIndex(): number {
  return defaultProcess().index;
}

/**
 * How many processes run this program together: 1 unless a launcher started several.
 *
 * @example
 * ```ts
 * processCount(); // 1
 * ```
 */
export function processCount(): number {
  return defaultProcess().count;
}

/**
 * The devices of the shared engine that this process holds.
 *
 * @example
 * ```ts
 * localDevices().length === localDeviceCount(); // true
 * ```
 */
export function localDevices(): Device[] {
  const engine = defaultEngine(1);
  return devices().filter(({ id }) => engine.isAddressable(id));
}

/**
 * All devices of the default engine, those of other processes among them.
 *
 * @example
 * ```ts
 * devices().length === deviceCount(); // true
 * ```
 */
export function devices(): Device[] {
  return range(deviceCount()).map((id) => ({ id, coordinates: {} }));
}

/**
 * How many devices the default engine has in all processes; 1 where as many as a mesh asks for are made.
 *
 * @example
 * ```ts
 * deviceCount() > 0; // true
 * ```
 */
export function deviceCount(): number {
  const { numDevices } = defaultEngine(1);
  return Number.isFinite(numDevices) ? numDevices : 1;
}

/**
 * How many devices of the default engine belong to this process.
 *
 * @example
 * ```ts
 * localDeviceCount() === localDevices().length; // true
 * ```
 */
export function localDeviceCount(): number {
  return localDevices().length;
}

/** Which blocks along one dim the devices of this process hold: how many there are, from which to which. */
interface Extent {
  readonly count: number;
  readonly first: number;
  readonly last: number;
}

function extentOf({ mesh, positions, spec }: Placement, dim: number): Extent {
  const axes = spec[dim] ?? [];
  const held = [...new Set(positions.map((position) => positionAlong(mesh, position, axes)))].sort(
    (a, b) => a - b,
  );
  const [first = 0, last = first] = [held[0], held.at(-1)];
  if (held.length > 0 && last - first + 1 !== held.length) {
    throw new ShardingError(
      `[makeArrayFromProcessLocalData] this process holds the blocks ${held.join(", ")} along dim ${dim}, which are not side by side: give the whole dim, or lay the mesh ${formatMesh(mesh)} out so that they are`,
    );
  }
  return { count: splitCount(mesh, axes), first, last };
}

/**
 * Makes one tensor of what every process has: each gives the elements of its own devices' blocks, side by side as
 * they are in the whole, and none sees those of the others.
 *
 * @param globalShape the shape of the whole; by default every dim grows by what other processes hold of it. A dim
 * in which the local data is as long as the whole is cut to what this process holds
 *
 * @example
 * ```ts
 * const sharding = new NamedSharding(Mesh.create({ data: 2 }), P("data"));
 * makeArrayFromProcessLocalData(sharding, np.array([1, 2, 3, 4])); // [1, 2, 3, 4]
 * ```
 */
export async function makeArrayFromProcessLocalData(
  sharding: NamedSharding,
  localData: Tensor,
  globalShape?: Shape,
): Promise<Tensor> {
  if (!(sharding instanceof NamedSharding)) {
    throw new ShardingError(
      `[makeArrayFromProcessLocalData] sharding must be a NamedSharding, got ${describe(sharding)}`,
    );
  }
  needTensor(localData, "localData", "makeArrayFromProcessLocalData");
  needIfGiven("list", globalShape, "globalShape", "makeArrayFromProcessLocalData");
  const caller = "makeArrayFromProcessLocalData";
  const { shape: local, type } = localData;
  const rank = globalShape?.length ?? local.length;
  if (rank !== local.length) {
    throw new ShapeError(
      `[${caller}] the local data has shape [${local}], the whole [${globalShape ?? []}]: they need as many dims`,
    );
  }
  const axes = range(rank).map((dim) => axesOf(sharding.spec.entries[dim]));
  const draft = placementOn(sharding.mesh, axes);
  const extents = range(rank).map((dim) => extentOf(draft, dim));
  const shape =
    globalShape ??
    extents.map(({ count, first, last }, dim) => (at(local, dim) * count) / (last - first + 1));
  const spec = resolveSpec(sharding.spec, sharding.mesh, shape, caller, "the tensor");
  const offsets = extents.map(({ count, first, last }, dim) => {
    const [part, whole, given] = [at(shape, dim) / count, at(shape, dim), at(local, dim)];
    if (given === (last - first + 1) * part) return first * part;
    if (given === whole) return 0;
    throw new ShapeError(
      `[${caller}] dim ${dim} of the local data has ${given} elements, but this process holds ${last - first + 1} of ${count} blocks of ${part}: give ${(last - first + 1) * part}, or the whole ${whole}`,
    );
  });
  const data = await localData.storage(caller).download(caller);
  const whole = { dtype: type.dtype, shape };
  const placement = placementOn(sharding.mesh, spec);
  return Tensor.stored(place(placement, whole, data, { shape: local, offsets }));
}

/**
 * Gives every process the whole of tensors that are spread over all of them; all processes call it together.
 * A tensor that differs between processes gets a new first dim, along which those of all processes lie.
 *
 * @example
 * ```ts
 * processAllGather({ loss: np.array([0.5]) }); // { "loss": [[0.5]] }
 * ```
 */
export async function processAllGather<T>(values: T): Promise<T> {
  const { leaves, structure } = tree.flatten(values);
  const gathered: unknown[] = [];
  // One after the other, so that all processes begin the same programs in the same order.
  for (const leaf of leaves) gathered.push(leaf instanceof Tensor ? await gatherOne(leaf) : leaf);
  return tree.unflatten<T>(structure, gathered);
}

async function gatherOne(tensor: Tensor): Promise<Tensor> {
  if (tensor.parts) return Tensor.complex(await gatherOne(tensor.parts[0]), await gatherOne(tensor.parts[1]));
  if (meshAt(tensor.storage("processAllGather").placement) !== undefined) return replicated(tensor);
  const { index, count } = defaultProcess();
  if (count === 1) return tensor.reshape([1, ...tensor.shape]);
  const engine = defaultEngine(1);
  const perProcess = engine.numDevices / count;
  const ranks = Mesh.create({ process: count }, { engine, devices: range(count).map((r) => r * perProcess) });
  if (!engine.isAddressable(index * perProcess)) throw new InternalError("[processAllGather] no device here");
  const own = tensor.reshape([1, ...tensor.shape]);
  const all = await makeArrayFromProcessLocalData(new NamedSharding(ranks, P("process")), own);
  return replicated(all);
}

/** A copy of a tensor that lies whole on every device of its mesh. */
async function replicated(tensor: Tensor): Promise<Tensor> {
  const storage = tensor.storage("processAllGather");
  const to = { ...storage.placement, spec: replicatedSpec(tensor.shape.length) };
  const whole = Tensor.stored(reshardInPlace(storage, to));
  await whole.ready();
  return whole;
}
