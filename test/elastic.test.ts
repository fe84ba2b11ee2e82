/** A run that goes on with the hosts that are left, by the loop around `mpirun` that is among the examples. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import "../src/index.js";
import { createThreadsEngine } from "../src/engines/index.js";
import { readMetrics } from "../src/train/report/metrics.js";
import { trainRun } from "../src/train/run/trainRun.js";
import { ended, type Launcher } from "./support/launchers.js";
import { bothOf, extended, mpi, orSkip } from "./support/optional.js";
import { silent, temporaryFolder, tinyConfig, writeText } from "./support/runs.js";

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const wholeSuite = extended("npm run test:mpi", process.env.SHARDWISE_ALL_MPI === "1");
const [, launchers = []] = orSkip(bothOf(wholeSuite, mpi)) ?? [];

const folder = temporaryFolder();
writeText(folder.path);
afterAll(folder.remove);

const STEPS = 40;
const fields = { steps: STEPS, checkpointEvery: 5, keep: 100, "data.batch": 6 };

/** Hosts of one machine: each is there as long as there is a file of its name, and killing its process takes that away. */
function start({ command, options }: Launcher, name: string): ChildProcess {
  const script = (file: string, text: string) => {
    const made = join(folder.path, file);
    writeFileSync(made, `#!/bin/sh\n${text}\n`);
    chmodSync(made, 0o755);
    return made;
  };
  for (const host of ["a", "b", "c"]) writeFileSync(join(folder.path, `${name}-${host}`), "");
  const config = tinyConfig(folder.path, fields);
  const file = join(folder.path, `${name}.json`);
  writeFileSync(file, JSON.stringify({ ...config, out: undefined, mesh: undefined }));
  const typescript = path("../scripts/typescript.mjs");
  const train = `${process.execPath} --import ${typescript} ${path("../src/cli/main.ts")} train ${file}`;
  const { SHARDWISE_ENGINE: _, ...inherited } = process.env;
  return spawn("sh", [path("../examples/elastic.sh")], {
    env: {
      ...inherited,
      HOSTS: "a,b,c",
      OUT: join(folder.path, name),
      BATCH: "6",
      PAUSE: "0",
      RESTARTS: "1",
      REACH: script(`${name}-reach`, `[ -e "${folder.path}/${name}-$1" ]`),
      // All hosts are this one, so that their names are left out.
      LAUNCH: script(
        `${name}-launch`,
        `count=$2; shift 4; exec ${command} ${options.join(" ")} -n "$count" sh -c 'echo $$ > "${folder.path}/${name}-pid-\${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"; exec "$@"' sh "$@"`,
      ),
      TRAIN: train,
      OMPI_ALLOW_RUN_AS_ROOT: "1",
      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1",
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
}

const losses = (run: string) =>
  readMetrics(join(run, "metrics.jsonl")).map(({ step, loss }) => ({ step, loss }));

/** The same on worker threads: three devices up to a checkpoint, then two. */
async function onThreads(name: string, step: number) {
  const out = join(folder.path, name);
  const engine = createThreadsEngine({ numDevices: 3 });
  const train = (data: number, resume: boolean) => {
    const config = tinyConfig(folder.path, { ...fields, "mesh.data": data, out });
    return trainRun({ config, engine, resume, stream: silent, finish: false });
  };
  await train(3, false);
  const checkpoints = join(out, "checkpoints");
  for (const entry of readdirSync(checkpoints)) {
    if (Number(entry.slice(-8)) > step) rmSync(join(checkpoints, entry), { recursive: true });
  }
  await train(2, true);
  await engine.close();
  return losses(out);
}

test("the loop is one that every shell understands", () => {
  const { status, stderr } = spawnSync("sh", ["-n", path("../examples/elastic.sh")], { encoding: "utf8" });
  expect(status, stderr).toBe(0);
});

describe.each(launchers)("a job of $name that loses a host", (launcher) => {
  test("goes on from the last checkpoint with those that are left", { timeout: 300_000 }, async () => {
    const name = launcher.name.replace(" ", "");
    const run = join(folder.path, name);
    const job = start(launcher, name);
    const whole = ended(job, 240_000);
    const checkpoints = join(run, "checkpoints");
    const hasSaved = () =>
      existsSync(checkpoints) && readdirSync(checkpoints).some((entry) => /^step-/.test(entry));
    while (!hasSaved() && job.exitCode === null) await new Promise((resolve) => setTimeout(resolve, 20));
    rmSync(join(folder.path, `${name}-b`));
    process.kill(Number(readFileSync(join(folder.path, `${name}-pid-1`), "utf8")), "SIGKILL");
    const { code, out, err } = await whole;
    expect(code, out + err).toBe(0);
    expect(out).toContain("elastic: 3 of 3 hosts: a,b,c");
    expect(out).toContain("elastic: 2 of 3 hosts: a,c --resume");
    const step = Number(/from step (\d+)/.exec(out + err)?.[1]);
    expect(step).toBeGreaterThanOrEqual(5);
    expect(step).toBeLessThan(STEPS);
    expect(losses(run)).toEqual(await onThreads(`${name}-threads`, step));
  });
});
