/** Threads that compile for engines: several programs at once, idle threads, failures and engines that close. */
import type { Engine } from "../../../src/ir/engine.js";
import { range } from "../../../src/ir/shape.js";
import type { compileElsewhere } from "../../../src/spmd/mesh/compileElsewhere.js";
import { type Change, loadModules, type Setting } from "../load.js";
import { randomFrom } from "../search.js";
import { enterRun, Turns, type TurnsResult, turnsResult } from "./turns.js";

const here = "test/explore/turns/standIns";
const elsewhere = "src/spmd/mesh/compileElsewhere.ts";

const setting: Setting = {
  isPlain: true,
  simulated: [elsewhere],
  standIns: {
    "src/platform/system.ts": `${here}/system.ts`,
    "src/platform/threads.ts": `${here}/threads.ts`,
    "src/spmd/mesh/compileWorkerCode.ts": `${here}/code.ts`,
  },
  constants: [],
  globals: () => ({}),
};

export type CompilerCode = () => typeof compileElsewhere;

export async function loadCompiler(changes: readonly Change[] = []): Promise<CompilerCode> {
  const instantiate = await loadModules(elsewhere, changes, setting);
  return () => instantiate().compileElsewhere as typeof compileElsewhere;
}

const faults = ["fails", "fails when idle", "answers failed", "cannot be sent"] as const;
type Fault = (typeof faults)[number];

export interface CompilingPlan {
  readonly numEngines: number;
  /** What callers compile, each one program after the other: for which engine, and how many moments later. */
  readonly callers: readonly (readonly { readonly engine: number; readonly delay: number }[])[];
  readonly fault: Fault | undefined;
  /** An engine that is closed, or the end of the process, and how many moments come before. */
  readonly end: { readonly engine: number | "process"; readonly after: number } | undefined;
}

export function compilingPlan(seed: number): CompilingPlan {
  const random = randomFrom(seed ^ 0xc031);
  const below = (n: number) => Math.floor(random() * n);
  const numEngines = 1 + below(2);
  const callers = range(1 + below(4)).map(() =>
    range(1 + below(4)).map(() => ({ engine: below(numEngines), delay: below(8) })),
  );
  return {
    numEngines,
    callers,
    fault: random() < 0.5 ? faults[below(faults.length)] : undefined,
    end:
      random() < 0.3
        ? { engine: random() < 0.3 ? "process" : below(numEngines), after: below(25) }
        : undefined,
  };
}

interface SimulatedThread {
  readonly isTerminated: boolean;
  readonly isKeptAlive: boolean;
}

/** A run of a plan, as the threads see it. */
export class CompilingRun {
  readonly exits = new Set<() => void>();
  readonly threads: SimulatedThread[] = [];
  readonly problems: string[] = [];
  /** How many threads have ended by themselves. */
  numFailures = 0;
  private readonly random: () => number;

  constructor(
    readonly turns: Turns,
    readonly plan: CompilingPlan,
    seed: number,
  ) {
    this.random = randomFrom(seed ^ 0xfa11);
  }

  happens(fault: Fault): boolean {
    return this.plan.fault === fault && this.random() < 0.4;
  }

  wrong(what: string): void {
    this.problems.push(what);
  }
}

/** An engine that can be closed, and knows who wants to be told. */
class ClosingEngine {
  isOpen = true;
  readonly listeners = new Set<() => void>();

  onClose(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  close(): void {
    this.isOpen = false;
    for (const listener of [...this.listeners]) listener();
  }
}

/** Runs the plan of a seed. */
export async function runCompiling(
  code: CompilerCode,
  seed: number,
  plan = compilingPlan(seed),
): Promise<TurnsResult<CompilingPlan>> {
  const turns = new Turns(randomFrom(seed));
  const run = new CompilingRun(turns, plan, seed);
  enterRun(run);
  return turnsResult(turns, run, compileAll(code, run));
}

async function compileAll(code: CompilerCode, run: CompilingRun): Promise<void> {
  const { plan, turns } = run;
  const compile = code();
  const engines = range(plan.numEngines).map(() => new ClosingEngine());
  let program = 0;
  const use = async (calls: CompilingPlan["callers"][number]) => {
    for (const { engine, delay } of calls) {
      for (let i = 0; i < delay; i++) await turns.moment();
      await compileOne(compile, run, engines[engine], program++);
    }
  };
  const ending = plan.end && endLater(run, engines, plan.end);
  await turns.until(Promise.all([ending, ...plan.callers.map(use)]), "a program");
  // One thread of an engine may wait for the next program, but it keeps no process alive.
  const alive = run.threads.filter(({ isTerminated }) => !isTerminated);
  if (alive.length > plan.numEngines) run.wrong(`${alive.length} threads are idle`);
  if (alive.some(({ isKeptAlive }) => isKeptAlive)) run.wrong("an idle thread keeps the process alive");
  await turns.rest();
  if (run.threads.some(({ isTerminated }) => !isTerminated)) run.wrong("a thread is left");
  const numListeners = engines.reduce((sum, { listeners }) => sum + listeners.size, run.exits.size);
  if (numListeners > 0) run.wrong("a thread that has ended is still to be told of the end");
}

async function endLater(
  { turns, exits }: CompilingRun,
  engines: readonly ClosingEngine[],
  { engine, after }: NonNullable<CompilingPlan["end"]>,
): Promise<void> {
  for (let i = 0; i < after; i++) await turns.moment();
  if (engine === "process") for (const action of [...exits]) action();
  else engines[engine]?.close();
}

async function compileOne(
  compile: ReturnType<CompilerCode>,
  run: CompilingRun,
  engine: ClosingEngine | undefined,
  program: number,
): Promise<void> {
  const { fault, end } = run.plan;
  try {
    const made: unknown = await compile(engine as unknown as Engine, program as never, {} as never);
    const isExplained = fault !== undefined || engine?.isOpen === false;
    if (made === undefined && !isExplained) run.wrong(`program ${program} is not compiled`);
    if (made === undefined) return;
    const { compiled } = made as { readonly compiled: number };
    if (compiled !== program) run.wrong(`program ${program} is answered with program ${compiled}`);
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    if (end === undefined || !text.includes("was closed before"))
      run.wrong(`program ${program} ended with ${text}`);
  }
}
