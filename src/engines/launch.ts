import { environment } from "#platform/system";

/** What a launcher told the processes that it started. */
export interface Launch {
  /** The launcher that started the processes. */
  readonly launcher: "Open MPI" | "Hydra" | "Slurm";
  /** The number of this process. */
  readonly rank: number;
  /** How many processes there are. */
  readonly size: number;
  /** The number of this process among those of its host. */
  readonly localRank: number;
  /** How many processes its host has; undefined where the launcher does not say. */
  readonly localSize: number | undefined;
}

/** Variables by name. */
export type EnvironmentVariables = Readonly<Record<string, string | undefined>>;

/** The variables by which each launcher numbers its processes, the most specific first. */
const launchers: readonly {
  readonly launcher: Launch["launcher"];
  readonly rank: string;
  readonly size: string;
  readonly localRank: string;
  readonly localSize: string;
}[] = [
  {
    launcher: "Open MPI",
    rank: "OMPI_COMM_WORLD_RANK",
    size: "OMPI_COMM_WORLD_SIZE",
    localRank: "OMPI_COMM_WORLD_LOCAL_RANK",
    localSize: "OMPI_COMM_WORLD_LOCAL_SIZE",
  },
  {
    // MPICH, Intel MPI and MVAPICH.
    launcher: "Hydra",
    rank: "PMI_RANK",
    size: "PMI_SIZE",
    localRank: "MPI_LOCALRANKID",
    localSize: "MPI_LOCALNRANKS",
  },
  {
    // A batch script has a rank and a number of tasks too, but no step: only `srun` starts one.
    launcher: "Slurm",
    rank: "SLURM_PROCID",
    size: "SLURM_STEP_NUM_TASKS",
    localRank: "SLURM_LOCALID",
    localSize: "SLURM_STEP_TASKS_PER_NODE",
  },
];

/** The launcher that started this process together with others, by its environment; undefined if it runs alone. */
export function detectLaunch(variables: EnvironmentVariables = environment): Launch | undefined {
  for (const { launcher, ...names } of launchers) {
    const [rank, size] = [wholeNumber(variables[names.rank]), wholeNumber(variables[names.size])];
    if (rank === undefined || size === undefined || size < 1 || rank >= size) continue;
    return {
      launcher,
      rank,
      size,
      localRank: wholeNumber(variables[names.localRank]) ?? 0,
      localSize: wholeNumber(variables[names.localSize]),
    };
  }
  return undefined;
}

/** Whether a launcher started this process as one of several. */
export function isOneOfSeveral(variables: EnvironmentVariables = environment): boolean {
  return (detectLaunch(variables)?.size ?? 1) > 1;
}

/** An integer that an environment variable holds; undefined for anything else. */
export function wholeNumber(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : undefined;
}
