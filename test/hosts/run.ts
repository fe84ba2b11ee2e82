/**
 * Training across hosts, played by network namespaces of this machine that are joined at 100 Mbit/s; needs root and Open
 * MPI:
 *
 *   npm run test:hosts
 *
 * 1. Three hosts train over TCP: losses and state are those of worker threads, bit for bit, and the time of a step is
 *    what `shardwise inspect` says of such a network.
 * 2. One host is cut off in the middle: all three end with an error before the deadline is long past.
 * 3. The run goes on from its last checkpoint and ends with the same bits.
 *
 * The kernel must know `tc tbf`. Latency is what the machine has: only `tc netem` could add to it.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import "../../src/index.js";
import { createThreadsEngine } from "../../src/engines/index.js";
import { at, range } from "../../src/ir/shape.js";
import { readRunConfig } from "../../src/train/config/runConfig.js";
import { openCheckpoint, openCheckpoints } from "../../src/train/files/checkpoints/checkpoint.js";
import { readMetrics } from "../../src/train/report/metrics.js";
import { trainRun } from "../../src/train/run/trainRun.js";
import { ended } from "../support/launchers.js";
import { silent, temporaryFolder, writeText } from "../support/runs.js";
import { Network } from "./network.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const shardwise = ["--import", join(root, "scripts/typescript.mjs"), join(root, "src/cli/main.ts")];

const NUM_HOSTS = 3;
const RATE = "100Mbit";
/** What a message takes here besides its bytes: the queue of `tbf`, two wake-ups, TCP and MPI. */
const LATENCY = "0.3ms";
const STEPS = 10;
const DEADLINE_S = 10;
/** How long after the deadline processes may still write what they know. */
const GRACE_S = 10;
const LIMIT_MS = 240_000;

const folder = temporaryFolder();
const network = new Network(NUM_HOSTS, RATE.toLowerCase());

/** A model whose gradients take much longer to send than to compute. */
const fields: Readonly<Record<string, string>> = {
  "model.width": "384",
  "model.numLayers": "2",
  "model.numHeads": "4",
  "model.numKvHeads": "4",
  "model.mlpWidth": "1024",
  "mesh.data": String(NUM_HOSTS),
  "data.source": writeText(folder.path),
  "data.sequence": "16",
  "data.batch": String(NUM_HOSTS),
  "engine.deadline": String(DEADLINE_S),
  steps: String(STEPS),
  checkpointEvery: "4",
  evalEvery: "1000",
  sample: "0",
};
const options = Object.entries(fields).flatMap(([name, value]) => [`--${name}`, value]);

/** Starts a process of the command on every host; each writes what it says into a file of its own. */
function train(name: string, agent: string, resume = false): ChildProcess {
  const logs = join(folder.path, `${name}-logs`);
  mkdirSync(logs, { recursive: true });
  const own = `exec "$@" > "${logs}/$OMPI_COMM_WORLD_RANK" 2>&1`;
  const subnet = `${at(network.addresses, 0).replace(/\d+$/, "0")}/24`;
  const tcp = { plm_rsh_agent: agent, plm_rsh_no_tree_spawn: "1", pml: "ob1", btl: "tcp,self" };
  // Two hosts that send long messages to each other at once would otherwise take turns; see docs/clusters.md.
  const limits = ["eager_limit", "rndv_eager_limit", "max_send_size"];
  const eager = Object.fromEntries(limits.map((name) => [`btl_tcp_${name}`, "8388608"]));
  const parameters = { ...tcp, ...eager, oob_tcp_if_include: subnet, btl_tcp_if_include: subnet };
  const { SHARDWISE_ENGINE: _, ...inherited } = process.env;
  return spawn(
    "mpirun.openmpi",
    [
      ...Object.entries(parameters).flatMap(([key, value]) => ["--mca", key, value]),
      ...["--host", network.addresses.join(","), "--bind-to", "none", "-n", String(NUM_HOSTS)],
      ...["bash", "-c", own, "bash", process.execPath, ...shardwise],
      ...["train", ...(resume ? ["--resume"] : []), ...options, "--out", join(folder.path, name)],
    ],
    {
      env: { ...inherited, OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" },
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
}

const said = (name: string, rank: number): string => {
  const path = join(folder.path, `${name}-logs`, String(rank));
  return existsSync(path) ? readFileSync(path, "utf8") : "";
};

const allSaid = (name: string): string =>
  range(NUM_HOSTS)
    .map((rank) => `process ${rank}: ${said(name, rank).trim().split("\n").slice(-12).join("\n  ")}`)
    .join("\n");

let failed = 0;
function check(what: string, isSo: boolean, detail = ""): void {
  if (!isSo) failed++;
  console.log(`${isSo ? "ok" : "FAILED"}  ${what}${detail === "" ? "" : `: ${detail}`}`);
}

const metrics = (name: string) => {
  const file = join(folder.path, name, "metrics.jsonl");
  return existsSync(file) ? readMetrics(file) : [];
};

async function until(isSo: () => boolean, limitMs: number): Promise<boolean> {
  const begin = performance.now();
  while (!isSo() && performance.now() - begin < limitMs) await new Promise((next) => setTimeout(next, 100));
  return isSo();
}

/** Losses and state at the end of a run. */
async function outcome(name: string) {
  const losses = metrics(name).map(({ step, loss }) => ({ step, loss }));
  const newest = await openCheckpoints(join(folder.path, name, "checkpoints")).latest();
  const tensors = newest && (await (await openCheckpoint(newest.folder)).read());
  const state = [...(tensors ?? [])].map(
    ([path, { data }]) => `${path} ${Buffer.from(data.buffer).toString("base64")}`,
  );
  return JSON.stringify({ losses, step: newest?.manifest.step, state });
}

async function onThreads(): Promise<void> {
  const list = Object.entries(fields).map(([path, value]) => ({ path, value }));
  const { config } = readRunConfig({ out: join(folder.path, "threads") }, list);
  const engine = createThreadsEngine({ numDevices: NUM_HOSTS });
  await trainRun({ config, engine, stream: silent, finish: false });
  await engine.close();
}

/** The seconds of a step that `inspect` tells for this network. */
async function predicted(): Promise<number> {
  const args = ["inspect", ...options, "--hosts", String(NUM_HOSTS), "--network", RATE, "--latency", LATENCY];
  const { out, err } = await ended(spawn(process.execPath, [...shardwise, ...args]), LIMIT_MS);
  const [line = err] = /a step on this network: .*/.exec(out) ?? [];
  console.log(`    ${line}`);
  return Number(/network: ([\d.]+) ms/.exec(line)?.[1] ?? Number.NaN) / 1000;
}

/** Ends what a launcher that lost a host cannot end by itself. */
async function putDown(job: ChildProcess): Promise<void> {
  if (job.exitCode !== null || job.signalCode !== null) return;
  job.kill("SIGTERM");
  const hasEnded = () => job.exitCode !== null || job.signalCode !== null;
  if (!(await until(hasEnded, 10_000))) job.kill("SIGKILL");
}

async function main(): Promise<void> {
  network.open();
  const agent = network.writeAgent(folder.path);
  await onThreads();
  const expected = await outcome("threads");

  const whole = await ended(train("whole", agent), LIMIT_MS);
  check(
    "three hosts train to the end",
    whole.code === 0,
    whole.code === 0 ? "" : allSaid("whole") + whole.err,
  );
  check("with the bits of worker threads", (await outcome("whole")) === expected);
  const seconds = metrics("whole")
    .slice(2)
    .map((record) => Number(record.seconds))
    .sort((a, b) => a - b);
  const median = seconds[Math.floor(seconds.length / 2)] ?? Number.NaN;
  const guess = await predicted();
  const off = Math.abs(guess / median - 1);
  const figures = `${(1000 * median).toFixed(0)} ms measured, ${(1000 * guess).toFixed(0)} ms predicted`;
  check("a step takes what inspect says, within 20 %", off <= 0.2, figures);

  const job = train("cut", agent);
  const end = ended(job, LIMIT_MS);
  check("a run reaches its sixth step", await until(() => metrics("cut").length >= 6, LIMIT_MS / 2));
  network.plug(1, false);
  const begin = performance.now();
  const hasFailed = (rank: number) => /says nothing|Error/.test(said("cut", rank));
  const areOut = await until(() => range(NUM_HOSTS).every(hasFailed), 1000 * (DEADLINE_S + GRACE_S));
  const took = `${((performance.now() - begin) / 1000).toFixed(1)} s, the deadline is ${DEADLINE_S} s`;
  check("all hosts say that one is cut off", areOut, areOut ? took : allSaid("cut"));
  check("and name it", /process 1 on host1.* says nothing/.test(said("cut", 0)), said("cut", 0).slice(-400));
  network.plug(1, true);
  await putDown(job);
  check("the job does not end well", (await end).code !== 0);

  const again = await ended(train("cut", agent, true), LIMIT_MS);
  check(
    "it goes on from the last checkpoint",
    /from step [48]/.test(said("cut", 0)),
    said("cut", 0).slice(0, 300),
  );
  check("and ends with the same bits", again.code === 0 && (await outcome("cut")) === expected);
}

try {
  await main();
} finally {
  network.close();
  folder.remove();
}
console.log(failed === 0 ? "all as it should be" : `${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
