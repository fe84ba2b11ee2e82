import { backgroundTimer, beforeExit } from "#platform/system";
import { startThread, type Thread } from "#platform/threads";
import { compileWorkerCode } from "#spmd/mesh/compileWorkerCode";
import type { Engine } from "../../ir/engine.js";
import { DisposedError } from "../../ir/errors.js";
import { nextValueId, type Program } from "../../ir/program.js";
import type { CompileAnswer, CompileMessage, CompileResult } from "./compileJob.js";

/** How long a thread waits for another program before it ends, in milliseconds. */
const IDLE_MS = 5000;

/** Threads without work, which compile the next program faster than a new one would: at most one of each engine. */
const idle = new Map<Engine, Compiler>();

/** A thread that compiles programs for an engine, one after the other; it ends with the engine at the latest. */
class Compiler {
  private readonly thread: Thread;
  private readonly forget: readonly (() => void)[];
  private answer: (answer: CompileAnswer | "closed") => void = () => {};
  private stopTimer: () => void = () => {};
  private hasEnded = false;

  constructor(private readonly engine: Engine) {
    this.thread = startThread({
      code: compileWorkerCode(),
      name: "shardwise compiler",
      data: {},
      told: (message) => this.answer(message as CompileAnswer),
      failed: () => this.end("failed"),
    });
    const end = () => this.end("closed");
    this.forget = [engine.onClose?.(end) ?? (() => {}), beforeExit(end)];
  }

  /** Compiles a program; throws if it cannot be sent. */
  async compile(message: CompileMessage): Promise<CompileAnswer | "closed"> {
    this.stopTimer();
    const answer = new Promise<CompileAnswer | "closed">((resolve) => {
      this.answer = resolve;
    });
    try {
      this.thread.post(message);
      this.thread.keepAlive(true);
      return await answer;
    } finally {
      this.thread.keepAlive(false);
      this.rest();
    }
  }

  /** Waits for the next program, if no other thread does. */
  private rest(): void {
    if (this.hasEnded) return;
    if (idle.has(this.engine)) this.end("failed");
    else {
      idle.set(this.engine, this);
      this.stopTimer = backgroundTimer(() => this.end("failed"), IDLE_MS);
    }
  }

  private end(answer: "failed" | "closed"): void {
    this.hasEnded = true;
    this.stopTimer();
    if (idle.get(this.engine) === this) idle.delete(this.engine);
    for (const forget of this.forget) forget();
    this.answer(answer);
    this.thread.terminate();
  }
}

/**
 * Partitions and compiles a program in a thread of its own, so that this one stays responsive. Undefined where that is
 * not possible or fails: functions, such as host callbacks, cannot be sent, and errors are better explained by the
 * thread that compiles instead.
 */
export async function compileElsewhere(
  engine: Engine,
  program: Program,
  job: Omit<CompileMessage, "program" | "firstId">,
): Promise<CompileResult | undefined> {
  // The thread that asks is told why.
  if (engine.isOpen === false) return undefined;
  const waiting = idle.get(engine);
  idle.delete(engine);
  let answer: CompileAnswer | "closed";
  try {
    const compiler = waiting ?? new Compiler(engine);
    answer = await compiler.compile({ ...job, program, firstId: nextValueId() });
  } catch {
    return undefined;
  }
  if (answer === "closed")
    throw new DisposedError("[compile] the engine was closed before the program was compiled");
  if (answer === "failed") return undefined;
  // Passes over its program must not number new values as it numbers its own.
  nextValueId.skipTo(answer.nextId);
  return answer;
}
