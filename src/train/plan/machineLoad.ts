/** How busy the machine is: other processes slow it down, for milliseconds or for minutes. */
import type { Engine } from "../../ir/engine.js";
import * as np from "../../numpy/index.js";
import { Mesh } from "../../spmd/mesh/mesh.js";
import { P } from "../../spmd/mesh/partitionSpec.js";
import { devicePut, NamedSharding } from "../../spmd/mesh/sharding.js";
import { jit } from "../../spmd/run/jit.js";
import type { Tensor } from "../../trace/tensor.js";

/** How much slower than at its best the machine may be while something is measured. */
const tolerance = 1.1;

/** The load from other processes, measured by timing a fixed matrix product on all devices at once. */
export class MachineLoad {
  private best = Number.POSITIVE_INFINITY;

  private constructor(private readonly multiply: () => Promise<void>) {}

  /** Compiles the product for the devices of an engine. @param side the rows of its matrices */
  static async open(engine: Engine, side = 512): Promise<MachineLoad> {
    const mesh = Mesh.create({ device: engine.numDevices }, { engine });
    const split = new NamedSharding(mesh, P("device"));
    const x = await devicePut(np.ones([engine.numDevices, side, side]).mul(1 / side), split);
    const product = jit((a: Tensor) => np.matmul(a, a), { mesh, outShardings: split });
    const load = new MachineLoad(async () => (await product(x).ready()).dispose());
    for (let i = 0; i < 3; i++) await load.probe();
    return load;
  }

  /** The seconds that the product takes now. */
  async probe(): Promise<number> {
    let fastest = Number.POSITIVE_INFINITY;
    for (let i = 0; i < 2; i++) {
      const begin = performance.now();
      await this.multiply();
      fastest = Math.min(fastest, (performance.now() - begin) / 1000);
    }
    this.best = Math.min(this.best, fastest);
    return fastest;
  }

  /** Measures something, and probes the load before and after it. */
  async observe<T>(measure: () => Promise<T>): Promise<Observed<T>> {
    const before = await this.probe();
    const value = await measure();
    return { value, probeSeconds: Math.max(before, await this.probe()) };
  }

  /**
   * Observations made while the machine was about as fast as at its best; if these are few, the third that comes
   * nearest to that.
   */
  undisturbed<T>(observed: readonly Observed<T>[]): T[] {
    const least = Math.max(1, Math.floor(observed.length / 3), this.numUndisturbed(observed));
    const sorted = [...observed].sort((a, b) => a.probeSeconds - b.probeSeconds);
    return sorted.slice(0, least).map(({ value }) => value);
  }

  /** The number of observations made while the machine was about as fast as at its best. */
  numUndisturbed(observed: readonly Observed<unknown>[]): number {
    return observed.filter(({ probeSeconds }) => probeSeconds <= tolerance * this.best).length;
  }
}

/** A measurement, and the seconds of {@link MachineLoad}'s product before and after it. */
export interface Observed<T> {
  readonly value: T;
  readonly probeSeconds: number;
}
