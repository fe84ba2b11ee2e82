/** Runs processes that find each other through the key-value store, on a simulated cluster. */
import { encodeFrame } from "../../../../src/engines/xla/store/messageFrames.js";
import { type Change, loadModules, type Setting } from "../../load.js";
import { Failure } from "../../machine.js";
import type { Callable } from "../../runtime.js";
import { randomFrom } from "../../search.js";
import { ClusterMachine } from "../machine.js";
import type { Traffic } from "../network.js";
import { type Ending, SimulatedProcess } from "../process.js";
import { clusterGlobals } from "../setting.js";
import { Connections, enterConnections } from "./connections.js";
import type { StoreJob } from "./simulated/job.js";

const here = "test/explore/cluster/store";
const store = "src/engines/xla/store";

const setting: Setting = {
  simulated: [`${store}/`, `${here}/simulated/`],
  standIns: {
    "node:net": `${here}/simulated/net.ts`,
    "node:os": `${here}/simulated/os.ts`,
    "node:timers/promises": `${here}/simulated/timers.ts`,
    "node:worker_threads": `${here}/simulated/workerThreads.ts`,
    "src/platform/startWorker.ts": `${here}/simulated/startWorker.ts`,
    [`${store}/workerCode.ts`]: "test/explore/simulated/workerCode.ts",
    [`${store}/callbackWorkerCode.ts`]: "test/explore/simulated/workerCode.ts",
  },
  // What a thread does when its code is loaded, it does here when it is started.
  constants: [
    { file: `${store}/worker.ts`, from: "void run(workerData);", to: "runStore(run);" },
    {
      file: `${store}/worker.ts`,
      from: 'import { StoreServer } from "./server.js";',
      to: 'import { StoreServer } from "./server.js";\nimport { runStore } from "../../../../test/explore/cluster/store/simulated/startWorker.js";',
    },
  ],
  globals: () => clusterGlobals(),
};

export type StoreCode = () => Callable;

export async function loadStore(changes: readonly Change[] = []): Promise<StoreCode> {
  const instantiate = await loadModules(`${here}/simulated/job.ts`, changes, setting);
  return () => instantiate().share as Callable;
}

export const faultKinds = ["kill", "cut", "silence", "stop", "clock", "never", "stranger"] as const;
type FaultKind = (typeof faultKinds)[number];

/** Something that happens when a process writes to a connection. */
interface Fault {
  readonly kind: FaultKind;
  readonly process: number;
  readonly call: number;
  readonly amount: number;
}

export interface StorePlan {
  readonly count: number;
  readonly traffic: Traffic;
  readonly faults: readonly Fault[];
}

const PORT = 8476;
const COORDINATOR = `node0:${PORT}`;
const TIMEOUT_MS = 2000;
const NUM_ROUNDS = 5;

/** Processes are through, with or without a result, after this time. */
const LONGEST_MS = 6 * TIMEOUT_MS + 60_000;

export function storePlan(seed: number): StorePlan {
  const random = randomFrom(seed ^ 0x57012e);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const count = pick([2, 3, 4]);
  const traffic = {
    usual: pick([0.05, 1, 20]),
    slow: pick([5, 60]),
    slowShare: pick([0, 0.05, 0.3]),
    lateShare: 0,
  };
  const faults = Array.from({ length: Math.floor(random() * 3) }, (): Fault => {
    const kind = pick(faultKinds);
    return {
      kind,
      process: Math.floor(random() * count),
      // Strangers are most dangerous while processes join.
      call: 1 + Math.floor(random() * (kind === "stranger" ? 4 : 30)),
      amount: Math.ceil(random() * 1.5 * TIMEOUT_MS),
    };
  });
  return { count, traffic, faults };
}

export interface StoreResult {
  readonly plan: StorePlan;
  readonly happened: readonly FaultKind[];
  readonly errors: readonly string[];
  readonly failure: Failure | undefined;
}

/** Runs the plan of a seed. */
export function runStorePlan(code: StoreCode, seed: number, plan = storePlan(seed)): StoreResult {
  const happened: FaultKind[] = [];
  const errors: string[] = [];
  try {
    const endings = startProcesses(code, seed, plan, happened);
    check(plan, endings, happened, errors);
    return { plan, happened, errors, failure: undefined };
  } catch (error) {
    const failure = error instanceof Failure ? error : new Failure("exception", String(error));
    return { plan, happened, errors, failure };
  }
}

function startProcesses(code: StoreCode, seed: number, plan: StorePlan, happened: FaultKind[]) {
  const random = randomFrom(seed);
  const machine = new ClusterMachine(random);
  const { count, faults, traffic } = plan;
  const processes = Array.from({ length: count }, (_, rank) => new SimulatedProcess(machine, rank, count));
  const connections = new Connections(machine, random, traffic, (process) => {
    process.numCalls++;
    for (const fault of faults)
      if (fault.process === process.rank && fault.call === process.numCalls) happen(fault, process);
  });
  const happen = ({ kind, amount }: Fault, process: SimulatedProcess) => {
    happened.push(kind);
    if (kind === "stop") process.stoppedUntil = machine.time + amount;
    else if (kind === "clock") process.clockAhead += amount;
    else if (kind === "cut") connections.cut(process);
    else if (kind === "kill") process.kill();
    else if (kind === "silence") {
      connections.silence(process);
      process.kill();
    } else if (kind === "stranger") connections.stranger(PORT, strangersMessages(random, count));
  };
  enterConnections(connections);
  const isAbsent = (rank: number) => faults.some((one) => one.kind === "never" && one.process === rank);
  for (const process of processes) {
    const job: StoreJob = {
      coordinator: COORDINATOR,
      index: process.rank,
      count,
      secret: "a secret of all processes",
      timeoutMs: TIMEOUT_MS,
      numRounds: NUM_ROUNDS,
      work: () => random() * 30,
    };
    if (isAbsent(process.rank)) {
      happened.push("never");
      process.kill();
      continue;
    }
    const run = code();
    const call = () => run(job);
    // Processes do not start at the same time.
    machine.after(random() * 500, () =>
      process.start(Object.assign(call, { $twin: () => run.$twin?.(job) }) as Callable),
    );
  }
  const told = new Set<SimulatedProcess>();
  machine.run(() => {
    for (const process of processes) {
      if (process.ending === undefined || told.has(process)) continue;
      told.add(process);
      connections.end(process);
    }
    if (machine.time > LONGEST_MS)
      throw new Failure("no end", `processes are not through after ${LONGEST_MS} ms`);
    return processes.every(({ ending }) => ending !== undefined);
  });
  return processes.flatMap(({ ending }) => ending ?? []);
}

const promised = [
  /^XlaPluginError: .*waited for the others: .*(is lost|has ended|never joined|are here and have diverged)/,
  /^XlaPluginError: .*waited for the others: process 0 at node0:8476 is gone: /,
  /^XlaPluginError: .*did not find the others at node0:8476: (process 0 at node0:8476 is gone|process 0 did not answer|not all processes have joined)/,
];

/** Throws unless all processes end as they must: with the same result, or with an error that a fault explains. */
function check(
  { count }: StorePlan,
  endings: readonly Ending[],
  happened: readonly FaultKind[],
  errors: string[],
): void {
  const harmless: readonly FaultKind[] = ["stranger"];
  const causes = happened.filter((kind) => !harmless.includes(kind));
  for (const ending of endings) {
    if (ending.how === "finished") {
      const hosts = JSON.stringify(ending.value);
      const expected = JSON.stringify(Array.from({ length: count }, (_, i) => `node${i}`));
      if (hosts !== expected) throw new Failure("wrong result", `a process finds ${hosts}`);
    } else if (ending.how === "failed") {
      const { error } = ending;
      const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
      errors.push(text);
      if (causes.length === 0) throw new Failure("wrong result", `a process failed without a fault: ${text}`);
      if (!promised.some((one) => one.test(text)))
        throw new Failure("wrong result", `a process failed after ${causes.join(", ")}: ${text}`);
    }
  }
  // Who is told that a connection has ended need not wait for a timeout.
  const isTold = causes.every((kind) => kind === "kill" || kind === "cut");
  const late = errors.find((text) => /no process has put .* within|has not answered within/.test(text));
  if (isTold && late !== undefined)
    throw new Failure("wrong result", `after ${causes.join(", ")}, a process waited for nothing: ${late}`);
}

/** What somebody sends who does not know the secret: requests, a wrong proof, or bytes. */
function strangersMessages(random: () => number, count: number): Uint8Array[] {
  const frame = (head: unknown) => encodeFrame({ id: 1, head, value: new Uint8Array(3) });
  const process = 1 + Math.floor(random() * (count - 1));
  const join = { kind: "join", process, count, host: "elsewhere", proof: "0".repeat(64) };
  const lists = [
    [frame({ kind: "put", key: "share 0 of process 1" }), frame({ kind: "leave", timeoutMs: 1 })],
    [frame({ kind: "hello" }), frame(join)],
    [Uint8Array.of(255, 255, 255, 127, 0, 0, 0, 0), new Uint8Array(9000)],
    [frame({ kind: "hello" }).subarray(0, 11)],
    [frame({ kind: "remove" }), Uint8Array.from({ length: 40 }, () => Math.floor(random() * 256))],
  ];
  return lists[Math.floor(random() * lists.length)] ?? [];
}

/** Plants a bug and looks for a seed that finds it. */
export async function findStoreBug(
  mutant: Change,
  first: number,
  count: number,
): Promise<{ readonly seed: number; readonly failure: Failure } | undefined> {
  const code = await loadStore([mutant]);
  for (let seed = first; seed < first + count; seed++) {
    const { failure } = runStorePlan(code, seed);
    if (failure) return { seed, failure };
  }
  return undefined;
}
