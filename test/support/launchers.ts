/** Starts programs of several processes with the MPI launchers of this machine. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { withoutChoices } from "./environment.js";

/** A launcher that is installed here. */
export interface Launcher {
  readonly name: "Open MPI" | "MPICH";
  readonly command: string;
  /** Arguments before the number of processes. */
  readonly options: readonly string[];
}

// Processes are not tied to cores: there are more of them than cores, and each has threads.
const known: readonly Launcher[] = [
  {
    name: "Open MPI",
    command: "mpirun.openmpi",
    options: ["--bind-to", "none", "--oversubscribe"],
  },
  { name: "Open MPI", command: "mpirun", options: ["--bind-to", "none", "--oversubscribe"] },
  { name: "MPICH", command: "mpiexec.hydra", options: [] },
];

/** The launchers of this machine, one of each family. */
export function findLaunchers(): Launcher[] {
  const found = new Map<string, Launcher>();
  for (const launcher of known) {
    const { error, stdout } = spawnSync(launcher.command, ["--version"], { encoding: "utf8" });
    const isIt = launcher.name === "Open MPI" ? /Open MPI|OpenRTE/ : /HYDRA/i;
    if (error === undefined && isIt.test(stdout) && !found.has(launcher.name))
      found.set(launcher.name, launcher);
  }
  return [...found.values()];
}

/** Why tests that need a launcher are skipped. */
export const noLauncher = "no MPI is installed here (Debian: openmpi-bin or mpich)";

/** Starts `count` processes of Node with these arguments. */
export function launch(
  { command, options }: Launcher,
  count: number,
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
  program: readonly string[] = [process.execPath],
): ChildProcess {
  const env = {
    ...withoutChoices,
    ...environment,
    // Open MPI asks whether root means it; containers have nobody else.
    OMPI_ALLOW_RUN_AS_ROOT: "1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1",
  };
  return spawn(command, [...options, "-n", String(count), ...program, ...args], {
    env,
    stdio: ["ignore", "pipe", "pipe"],
  });
}

/** How a job ended. */
export interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
  readonly milliseconds: number;
}

/** Waits for the end of a job, which comes after `limitMs` at the latest. */
export function ended(child: ChildProcess, limitMs = 60_000): Promise<Ended> {
  const begin = performance.now();
  let [out, err] = ["", ""];
  child.stdout?.on("data", (text) => {
    out += text;
  });
  child.stderr?.on("data", (text) => {
    err += text;
  });
  const limit = setTimeout(() => child.kill("SIGKILL"), limitMs);
  return new Promise((resolve) => {
    child.on("close", (code) => {
      clearTimeout(limit);
      resolve({ code, out, err, milliseconds: performance.now() - begin });
    });
  });
}
