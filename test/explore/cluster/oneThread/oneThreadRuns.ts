/** Runs a page whose devices take turns in one worker, on a simulated machine where messages are late. */
import { COLLECTIVE_SCRATCH_BYTES } from "../../../../src/engines/collectives/collectiveWork.js";
import { roundUp } from "../../../../src/engines/memory/heap.js";
import { type Change, type Exports, loadModules, type Setting } from "../../load.js";
import { Failure } from "../../machine.js";
import { type Callable, current, invoke } from "../../runtime.js";
import { randomFrom } from "../../search.js";
import { ClusterPromise } from "../eventLoop.js";
import { ClusterMachine } from "../machine.js";
import { SimulatedProcess } from "../process.js";
import { clusterGlobals, giveBackMemories, takeMemory } from "../setting.js";
import { conditions, enterConditions } from "./conditions.js";
import { type PageProgram, programsFor, sizes } from "./programs.js";

const here = "test/explore/cluster/oneThread";
const engine = "src/engines/oneThread/engine.ts";
const memory = "src/engines/inline/inlineMemory.ts";

const setting: Setting = {
  simulated: [
    "src/engines/collectives/meeting.ts",
    "src/engines/devices/turns.ts",
    "src/engines/oneThread/",
    "src/engines/shell.ts",
    memory,
    "test/explore/simulated/",
    `${here}/simulated/`,
  ],
  standIns: {
    "src/engines/kernels/compileWith.ts": "test/explore/cluster/cached/compileWith.ts",
    "src/engines/system/v8Flags.ts": "test/explore/cluster/cached/v8Flags.ts",
    "src/platform/system.ts": "test/explore/simulated/system.ts",
    "src/platform/threads.ts": `${here}/simulated/threads.ts`,
    "test/explore/simulated/eventLoop.ts": "test/explore/cluster/simulated/eventLoop.ts",
  },
  constants: [
    // A constructor is no coroutine.
    { file: engine, from: "void this.start({ deadlineMs });", to: "soon(() => this.start({ deadlineMs }));" },
    { file: engine, from: 'await import("#engines/oneThread/workerCode")', to: "await workerModule()" },
    {
      file: memory,
      from: "new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })",
      to: "takeMemory(pages)",
    },
    { file: memory, from: "maxBytes = MAX_PAGES * PAGE", to: "maxBytes = MIN_PAGES * PAGE" },
    { file: memory, from: "(64 * 1024 * 1024) / PAGE", to: "(8 * 1024 * 1024) / PAGE" },
    {
      file: "src/engines/oneThread/devices.ts",
      from: "new InlineMachine(memory, gemm, (compiled, devices) => this.prepare(compiled, devices));",
      to: "new InlineMachine(memory, gemm, (compiled, devices) => this.prepare(compiled, devices));\n    usesMemory(memory);",
    },
  ],
  globals: (): Exports => ({
    ...clusterGlobals(),
    takeMemory,
    usesMemory: (used: { readonly used: number }) => {
      state.memory = used;
    },
    soon: (action: Callable) => {
      const { loop } = current.machine as ClusterMachine;
      loop.queue(() => invoke(action, undefined, []));
    },
    // The code of the worker is loaded late.
    workerModule: () =>
      new ClusterPromise((resolve) => {
        const machine = current.machine as ClusterMachine;
        machine.after(conditions().delay(), () => resolve({ workerCode: () => "worker" }));
      }),
  }),
};

/** What the worker of the run has in use. */
const state: { memory: { readonly used: number } | undefined } = { memory: undefined };

export type PageCode = () => Callable;

export async function loadPage(changes: readonly Change[] = []): Promise<PageCode> {
  // Machine code lies outside of the memory that is simulated.
  process.env.SHARDWISE_KERNELS = "wasm";
  const instantiate = await loadModules(`${here}/simulated/job.ts`, changes, setting);
  return () => instantiate().usePage as Callable;
}

const actionKinds = ["upload", "run", "run", "run", "copy", "read", "read", "release", "unload"] as const;

/** What a function of the page does. */
export interface Action {
  readonly kind: (typeof actionKinds)[number] | "close";
  /** Which of the sizes an upload has. */
  readonly size: number;
  readonly program: number;
  /** Which of its tensors the function takes. */
  readonly pick: number;
  readonly values: number;
  /** Milliseconds until it does something else. */
  readonly pause: number;
}

/** `throw`: a host callback throws; `die`: the worker ends; `close`: the page closes the engine in the middle. */
export const faultKinds = ["throw", "die", "close", "diverge"] as const;
type FaultKind = (typeof faultKinds)[number];

export interface PagePlan {
  readonly numDevices: number;
  readonly delays: { readonly usual: number; readonly slow: number; readonly slowShare: number };
  readonly users: readonly (readonly Action[])[];
  readonly fault:
    | { readonly kind: FaultKind; readonly after: number; readonly alsoNext: boolean }
    | undefined;
}

/** The places of the programs that call the host, and that diverge, among those of a mesh. */
const [CALLS, DIVERGES] = [3, 4];

export function pagePlan(seed: number): PagePlan {
  const random = randomFrom(seed ^ 0x0ae7);
  const below = (n: number) => Math.floor(random() * n);
  const pick = <T>(list: readonly T[]): T => list[below(list.length)] as T;
  const numDevices = pick([1, 2, 2, 3]);
  const kind = random() < 0.6 ? pick(faultKinds) : undefined;
  const users = Array.from({ length: pick([1, 2, 3]) }, () =>
    Array.from({ length: 3 + below(14) }, (): Action => {
      const diverges = kind === "diverge" && numDevices > 1 && random() < 0.1;
      return {
        kind: diverges ? "run" : kind === "close" && random() < 0.05 ? "close" : pick(actionKinds),
        size: below(sizes.length),
        program: diverges ? DIVERGES : kind === "throw" && random() < 0.4 ? CALLS : below(DIVERGES),
        pick: below(100),
        values: below(50),
        pause: random() < 0.3 ? random() * 20 : 0,
      };
    }),
  );
  return {
    numDevices,
    delays: { usual: pick([0, 0.1, 3]), slow: pick([5, 60]), slowShare: pick([0, 0.1, 0.4]) },
    users,
    fault: kind && { kind, after: 1 + below(kind === "die" ? 40 : 8), alsoNext: random() < 0.5 },
  };
}

/** What the page tried to do when it failed. */
export type Attempt = "act" | "read" | "read what failed";

/** What the code of the page is told, and tells. */
export interface PageJob {
  readonly numDevices: number;
  readonly mesh: { readonly axes: readonly { readonly name: string; readonly size: number }[] };
  readonly sizes: readonly number[];
  readonly programs: readonly (readonly PageProgram[])[];
  readonly users: readonly (readonly Action[])[];
  /** Whether one of the first calls of the host throws. */
  throwsBefore(numCalls: number): boolean;
  /** A run was started that fails, or the engine is closed while it may be in use. */
  happens(kind: FaultKind): void;
  failed(error: unknown, what: Attempt): void;
  wrong(what: string): void;
  /** How many bytes a device has in use, after all was released. */
  released(bytes: number): void;
  closed(state: string): void;
}

export interface PageResult {
  readonly plan: PagePlan;
  readonly happened: readonly FaultKind[];
  readonly errors: readonly string[];
  readonly failure: Failure | undefined;
}

const promised: { readonly [K in FaultKind]: RegExp } = {
  throw:
    /^DeviceFailedError: \[engine\] device [0-2], program "host": a host callback threw Error: of the host/,
  diverge: /^DesyncError: \[engine\] the devices of program "diverge" came to different collectives/,
  die: /^DeviceFailedError: \[engine\] device 0: its worker exited with code 1/,
  close: /^DisposedError: \[\w+\] the oneThread engine (was|is) closed/,
};

/** Says what a promised error is, and throws if nothing explains it. */
function explain(error: unknown, what: Attempt, happened: readonly FaultKind[]): string {
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  // What was computed before a run that fails can be read after it.
  const causes = happened.filter((kind) => what !== "read" || kind === "die" || kind === "close");
  if (causes.some((kind) => promised[kind].test(text))) return text;
  throw new Failure("wrong result", `${what}: after ${happened.join(", ") || "nothing"}: ${text}`);
}

/** A page is through after this time. */
const LONGEST_MS = 60_000;

/** Runs the plan of a seed. */
export function runPagePlan(code: PageCode, seed: number, plan = pagePlan(seed)): PageResult {
  const [happened, errors]: [FaultKind[], string[]] = [[], []];
  const result = { plan, happened, errors };
  try {
    runPage(code, seed, plan, happened, errors);
    return { ...result, failure: undefined };
  } catch (error) {
    return { ...result, failure: error instanceof Failure ? error : new Failure("exception", String(error)) };
  } finally {
    giveBackMemories();
  }
}

const programs = new Map<number, readonly (readonly PageProgram[])[]>();

function runPage(
  code: PageCode,
  seed: number,
  plan: PagePlan,
  happened: FaultKind[],
  errors: string[],
): void {
  const random = randomFrom(seed);
  const machine = new ClusterMachine(random);
  current.machine = machine;
  const page = new SimulatedProcess(machine, 0, 1);
  const { numDevices, users, fault, delays } = plan;
  const note = (kind: FaultKind) => {
    if (!happened.includes(kind)) happened.push(kind);
  };
  const throwsAt = (call: number) =>
    fault?.kind === "throw" && (call === fault.after || (fault.alsoNext && call === fault.after + 1));
  let [numCalls, numMessages] = [0, 0];
  const wrong = (what: string) => {
    throw new Failure("wrong result", what);
  };
  state.memory = undefined;
  enterConditions({
    delay: () => random() * (random() < delays.slowShare ? delays.slow : delays.usual),
    dies: () => {
      const isDue = fault?.kind === "die" && ++numMessages === fault.after;
      if (isDue) note("die");
      return isDue;
    },
    called: () => {
      numCalls++;
      if (throwsAt(numCalls)) throw new Error("of the host");
    },
  });
  const mesh = { axes: [{ name: "x", size: numDevices }] };
  const made = programs.get(numDevices) ?? programsFor(mesh);
  programs.set(numDevices, made);
  const job: PageJob = {
    numDevices,
    mesh,
    sizes,
    programs: made,
    users,
    throwsBefore: (count) => fault?.kind === "throw" && count >= fault.after,
    happens: note,
    failed: (error, what) => errors.push(explain(error, what, happened)),
    wrong,
    released: (bytes) => {
      if (bytes !== 0) wrong(`${bytes} bytes of a device are in use after all was released`);
      const used = state.memory?.used ?? 0;
      // The worker keeps a place for exchanges of devices.
      if (used !== 0 && used !== roundUp(COLLECTIVE_SCRATCH_BYTES))
        wrong(`${used} bytes of the worker are in use after all was released`);
    },
    closed: (is) => {
      if (is !== "closed") wrong(`the engine is ${is} after closing`);
    },
  };
  const run = code();
  const call = Object.assign(() => run(job), { $twin: () => run.$twin?.(job) }) as Callable;
  page.start(call);
  machine.run(() => {
    if (machine.time > LONGEST_MS) throw new Failure("no end", `no end after ${LONGEST_MS} ms`);
    return page.ending !== undefined;
  });
  const { ending } = page;
  if (ending?.how === "failed") throw new Failure("exception", String(ending.error));
}

/** Plants a bug and looks for a seed that finds it. */
export async function findPageBug(
  mutant: Change,
  first: number,
  count: number,
): Promise<{ readonly seed: number; readonly failure: Failure } | undefined> {
  const code = await loadPage([mutant]);
  for (let seed = first; seed < first + count; seed++) {
    const { failure } = runPagePlan(code, seed);
    if (failure) return { seed, failure };
  }
  return undefined;
}
