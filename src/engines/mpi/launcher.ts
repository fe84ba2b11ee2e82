/** What a launcher told the processes that it started. */
export interface Launch {
  /** Who started the processes. */
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

type Environment = Readonly<Record<string, string | undefined>>;

/** The variables by which each launcher numbers its processes, the most particular first. */
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

/** Who started this process together with others, by its environment; undefined when it was started alone. */
export function detectLaunch(environment: Environment = process.env): Launch | undefined {
  for (const { launcher, ...names } of launchers) {
    const [rank, size] = [wholeNumber(environment[names.rank]), wholeNumber(environment[names.size])];
    if (rank === undefined || size === undefined || size < 1 || rank >= size) continue;
    return {
      launcher,
      rank,
      size,
      localRank: wholeNumber(environment[names.localRank]) ?? 0,
      localSize: wholeNumber(environment[names.localSize]),
    };
  }
  return undefined;
}

/** Whether a launcher started this process as one of several. */
export function isOneOfSeveral(environment: Environment = process.env): boolean {
  return (detectLaunch(environment)?.size ?? 1) > 1;
}

function wholeNumber(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : undefined;
}

/** The numbers in a list as the system writes it: `0-2,5` is 0, 1, 2 and 5. */
export function parseCpuList(text: string): number[] {
  return text
    .trim()
    .split(",")
    .filter((part) => part !== "")
    .flatMap((part) => {
      const [first = 0, last = first] = part.split("-").map(Number);
      return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
    });
}

/**
 * How many cores each process has when those that may use the same core share it, rounded down but at least one.
 *
 * @param cpus for every process of one host the cores that it may use
 */
export function shareCores(cpus: readonly (readonly number[])[]): number[] {
  const users = new Map<number, number>();
  for (const cpu of cpus.flat()) users.set(cpu, (users.get(cpu) ?? 0) + 1);
  return cpus.map((list) => {
    const share = list.reduce((sum, cpu) => sum + 1 / (users.get(cpu) ?? 1), 0);
    return Math.max(1, Math.floor(share + 1e-9));
  });
}
