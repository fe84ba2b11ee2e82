import { getOrInsert } from "../../../ir/collections.js";
import {
  axisSizeIn,
  type DimAxes,
  formatSpec,
  type MeshAxis,
  type MeshShape,
  type Spec,
  sameSpec,
} from "../../../ir/mesh.js";
import { at } from "../../../ir/shape.js";
import * as ops from "../../../trace/ops.js";
import type { Tensor } from "../../../trace/tensor.js";
import type { Factor } from "../placement/factors.js";
import { namedAxes } from "../placement/reshard.js";
import type { DeviceBlocks } from "../placement/rowValues.js";

/** A sum over devices. */
interface Sum {
  /** This device's contribution. */
  readonly partial: Tensor;
  readonly axes: readonly string[];
  /** Its shares that were computed, by the specs of the sum and of the share. */
  readonly shares: Map<string, DeviceBlocks>;
}

/** The values of a per-device program that are sums over devices: if a share of one is enough, only that is summed. */
export class DeviceSums {
  private readonly known = new WeakMap<Tensor, Sum>();

  constructor(private readonly mesh: MeshShape) {}

  /** Whether a value is a sum over devices. */
  has(value: Tensor): boolean {
    return this.known.has(value);
  }

  /** The sum of what devices contribute. */
  total(partial: Tensor, axes: readonly MeshAxis[]): Tensor {
    const total = ops.psum(partial, axes);
    this.known.set(total, { partial, axes: axes.map(({ name }) => name), shares: new Map() });
    return total;
  }

  /** The sum of two sums over the same devices is such a sum, too. */
  add(operands: readonly Tensor[], result: Tensor): void {
    const [a, b] = operands.map((x) => this.known.get(x));
    if (!a || !b || a.axes.join() !== b.axes.join()) return;
    this.known.set(result, { partial: ops.add(a.partial, b.partial), axes: a.axes, shares: new Map() });
  }

  /** A sum of which only a share is needed: then no device has to hold the whole. */
  share(value: DeviceBlocks, to: Spec): DeviceBlocks {
    const sum = this.known.get(value.block);
    const splitsSum = (spec: Spec) => spec.flat().some((axis) => sum?.axes.includes(axis));
    // A shard map may lay copies of a sum side by side along its axes.
    if (!sum || !splitsSum(to) || splitsSum(value.spec)) return value;
    // Its results have different specs outside and inside its body.
    const key = `${formatSpec(value.spec)} ${formatSpec(to)}`;
    return getOrInsert(sum.shares, key, () => {
      const share = this.sum(sum.partial, value.spec, sum.axes, to);
      return sameSpec(share.spec, value.spec) ? value : share;
    });
  }

  /** Sums (or maxima, minima) over the devices that hold partial results, scattered where the result is split. */
  combine(
    { block, spec }: DeviceBlocks,
    wanted: Spec,
    factors: readonly Factor[],
    assigned: readonly DimAxes[],
  ): DeviceBlocks {
    const partial = (kind: string) =>
      assigned.flatMap((axes, f) => (at(factors, f).kind === kind ? axes : []));
    const sum = this.sum(block, spec, partial("sum"), wanted);
    const largest = ops.pmax(sum.block, namedAxes(this.mesh, partial("max")));
    return { ...sum, block: ops.pmin(largest, namedAxes(this.mesh, partial("min"))) };
  }

  /** The sum of partial results over axes; if the wanted spec splits a dim over them, only this device's share. */
  private sum(block: Tensor, spec: Spec, axes: readonly string[], wanted: Spec): DeviceBlocks {
    let share = block;
    let now = spec;
    let rest = [...axes];
    wanted.forEach((dimAxes, d) => {
      const mine = now[d] ?? [];
      const extra = dimAxes.slice(mine.length);
      const fits = mine.every((axis, i) => axis === dimAxes[i]) && extra.every((axis) => rest.includes(axis));
      const parts = extra.reduce((n, axis) => n * this.size(axis), 1);
      if (extra.length === 0 || !fits || at(share.shape, d) % parts !== 0) return;
      share = ops.psumScatter(share, namedAxes(this.mesh, extra), d);
      now = share.shape.map((_, other) => (other === d ? dimAxes : (now[other] ?? [])));
      rest = rest.filter((axis) => !extra.includes(axis));
    });
    const total = ops.psum(share, namedAxes(this.mesh, rest));
    if (rest.length > 0) this.known.set(total, { partial: share, axes: rest, shares: new Map() });
    return { kind: "blocks", block: total, spec: now };
  }

  private size(axis: string): number {
    return axisSizeIn(this.mesh, axis) ?? 1;
  }
}
