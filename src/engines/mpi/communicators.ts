import { getOrInsert } from "../../ir/collections.js";
import type { CompileOptions } from "../../ir/engine.js";
import { type DimAxes, deviceGroups } from "../../ir/mesh.js";
import { forEachEqn, type Program } from "../../ir/program.js";
import { at } from "../../ir/shape.js";
import type { DeviceLocations } from "../protocol/locations.js";
import { MpiGroup, sharersName } from "./library/mpiGroup.js";
import type { World } from "./world.js";

/**
 * The communicators on which MPI adds up tensors itself, one for every set of devices that does so together: those
 * along some axes of a mesh, one in each process. They are made when a program first needs them, and kept.
 */
export class Communicators {
  private readonly made = new Map<string, number>();

  /** @param meanwhile called again and again while other processes are waited for */
  constructor(
    private readonly world: World,
    private readonly meanwhile: () => void,
  ) {}

  /** Those that a program needs, by their names; all its processes ask for them in the same order. */
  for(
    program: Program,
    { mesh }: CompileOptions,
    locations: DeviceLocations,
  ): Readonly<Record<string, number>> {
    const needed: Record<string, number> = {};
    for (const axes of summedAxes(program)) {
      for (const positions of deviceGroups(mesh, axes)) {
        const own = positions.filter((position) => at(locations.processes, position) === locations.process);
        for (const position of own) {
          const group = new MpiGroup(positions, position, locations);
          const name = sharersName(group);
          if (name !== undefined) needed[name] = this.get(name, group);
        }
      }
    }
    return needed;
  }

  /** Gives all of them up; nothing is under way any more. */
  close(): void {
    for (const comm of this.made.values()) this.world.mpi.freeCommunicator(comm);
    this.made.clear();
  }

  private get(name: string, group: MpiGroup): number {
    const ranks = (group.sharers ?? []).map(({ process }) => process);
    return getOrInsert(this.made, name, () => this.world.communicatorOf(ranks, this.meanwhile));
  }
}

/** The sets of axes over which a program adds up, in the order in which it names them. */
function summedAxes(program: Program): readonly DimAxes[] {
  const found = new Map<string, DimAxes>();
  forEachEqn(program, (eqn) => {
    if (eqn.op !== "psum") return;
    const axes = eqn.params.axes.map(({ name }) => name);
    found.set(JSON.stringify(axes), axes);
  });
  return [...found.values()];
}
