import { describe, expect, test } from "vitest";
import { detectLaunch, isOneOfSeveral } from "./launch.js";

describe("a process knows its launcher", () => {
  test.each([
    [
      "Open MPI",
      { OMPI_COMM_WORLD_RANK: "3", OMPI_COMM_WORLD_SIZE: "8", OMPI_COMM_WORLD_LOCAL_RANK: "1" },
      { rank: 3, size: 8, localRank: 1, localSize: undefined },
    ],
    [
      "Hydra",
      { PMI_RANK: "0", PMI_SIZE: "2", MPI_LOCALRANKID: "0", MPI_LOCALNRANKS: "2" },
      { rank: 0, size: 2, localRank: 0, localSize: 2 },
    ],
    [
      "Slurm",
      {
        SLURM_PROCID: "5",
        SLURM_NTASKS: "6",
        SLURM_STEP_NUM_TASKS: "6",
        SLURM_LOCALID: "2",
        SLURM_STEP_TASKS_PER_NODE: "3(x2)",
      },
      { rank: 5, size: 6, localRank: 2, localSize: undefined },
    ],
  ])("%s", (launcher, environment, expected) => {
    expect(detectLaunch(environment)).toEqual({ launcher, ...expected });
    expect(isOneOfSeveral(environment)).toBe(true);
  });

  test("Open MPI under Slurm is Open MPI", () => {
    const environment = {
      OMPI_COMM_WORLD_RANK: "1",
      OMPI_COMM_WORLD_SIZE: "2",
      SLURM_PROCID: "0",
      SLURM_STEP_NUM_TASKS: "1",
    };
    expect(detectLaunch(environment)).toMatchObject({ launcher: "Open MPI", rank: 1, size: 2 });
  });

  test.each([
    ["nothing", {}],
    ["a batch script of Slurm, which runs once", { SLURM_PROCID: "0", SLURM_NTASKS: "8" }],
    ["numbers that are none", { PMI_RANK: "x", PMI_SIZE: "2" }],
    ["a rank outside of the size", { PMI_RANK: "2", PMI_SIZE: "2" }],
    ["one process alone", { PMI_RANK: "0", PMI_SIZE: "1" }],
  ])("and is not one of several by %s", (_, environment) => {
    expect(isOneOfSeveral(environment)).toBe(false);
  });
});
