import { createHash } from "node:crypto";
import { getOrInsert } from "../../ir/collections.js";
import type { CompileOptions } from "../../ir/engine.js";
import type { FlightAgreement } from "../../ir/flight.js";
import { formatMesh } from "../../ir/mesh.js";
import { forEachEqn, type Program } from "../../ir/program.js";
import { printProgram } from "../../ir/text/print.js";
import { ProgramsDifferError } from "../errors.js";
import { describeVersion } from "../flight/fingerprint.js";
import { type Channel, type Channels, listenUntil } from "./library/calls.js";

/** How long the text of another process's program is waited for, which only shows where programs differ. */
const TEXT_MS = 2000;

/** What one process says about a program: its ordinal among those of the same processes, and what it holds. */
interface Claim {
  readonly key: string;
  readonly name: string;
  readonly fingerprint: string;
  /** The program itself, which is only told where fingerprints differ. */
  readonly text?: string;
}

/** A program of this process that others have not confirmed yet. */
interface Pending extends Required<Claim> {
  readonly missing: Set<number>;
  readonly since: number;
}

/**
 * The agreement finds processes that have diverged before their devices do (docs/divergence.md): each tells the others
 * the fingerprint of every program that they run together, when it runs it for the first time. Devices need not wait
 * for that, but nothing that came of a program can be read before all have confirmed it.
 */
export class Agreement {
  private readonly channel: Channel;
  /** How many programs some processes have begun together. */
  private readonly counts = new Map<string, number>();
  private readonly pending = new Map<string, Pending>();
  /** What others said before this process came to the same place. */
  private readonly early = new Map<string, Map<number, Claim>>();
  private readonly texts = new Map<string, string>();
  private dispute: Promise<never> | undefined;

  /** @param deadlineMs for how long others may not come to a program that this process runs */
  constructor(
    calls: Channels,
    private readonly rank: number,
    private readonly deadlineMs: number,
  ) {
    this.channel = calls.open((from, text) => this.hear(from, JSON.parse(text) as Claim));
  }

  close(): void {
    this.channel.close();
  }

  /** Whether all others have confirmed what this process runs. */
  get isSettled(): boolean {
    return this.pending.size === 0 && this.dispute === undefined;
  }

  /**
   * Tells the others what they are about to run together.
   *
   * @param processes those that hold devices of the program
   */
  propose(
    program: Program,
    { name = "", mesh, devices }: CompileOptions,
    processes: readonly number[],
  ): FlightAgreement {
    const others = processes.filter((process) => process !== this.rank);
    const group = processes.join(", ");
    const count = (this.counts.get(group) ?? 0) + 1;
    this.counts.set(group, count);
    const key = `program ${count} of processes ${group}`;
    const text = `${sharedText(program)}\nmesh ${formatMesh(mesh)} of devices ${devices.join(", ")}\n`;
    const fingerprint = createHash("sha256").update(text).digest("hex");
    const own = { key, name, fingerprint, text, missing: new Set(others), since: performance.now() };
    this.pending.set(key, own);
    const claim: Claim = { key, name, fingerprint };
    this.channel.tell(JSON.stringify(claim), others);
    const said = this.early.get(key);
    this.early.delete(key);
    for (const [rank, other] of said ?? []) this.compare(own, rank, other);
    return { key, fingerprint };
  }

  /** Waits until all others have confirmed what this process has begun; throws where one runs something else. */
  async settled(): Promise<void> {
    for (let pause = 1; !this.isSettled; pause = Math.min(20, 2 * pause)) {
      this.channel.listen();
      if (this.dispute !== undefined) await this.dispute;
      this.checkDeadline();
      if (!this.isSettled) await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  /** What others run instead, if that is known by now or soon; an error that came of it is better told so. */
  async difference(): Promise<unknown> {
    this.channel.listen();
    await listenUntil(this.channel, () => this.isSettled || this.dispute !== undefined, TEXT_MS);
    return this.dispute?.catch((error: unknown) => error);
  }

  private hear(rank: number, claim: Claim): void {
    if (claim.text !== undefined) {
      this.texts.set(`${rank} ${claim.key}`, claim.text);
      return;
    }
    const own = this.pending.get(claim.key);
    if (own !== undefined) {
      this.compare(own, rank, claim);
      return;
    }
    getOrInsert(this.early, claim.key, () => new Map()).set(rank, claim);
  }

  private compare(own: Pending, rank: number, other: Claim): void {
    if (own.fingerprint === other.fingerprint) {
      own.missing.delete(rank);
      if (own.missing.size === 0) this.pending.delete(own.key);
      return;
    }
    const { key, name, fingerprint, text } = own;
    this.channel.tell(JSON.stringify({ key, name, fingerprint, text } satisfies Claim), [rank]);
    this.dispute ??= this.explain(own, rank, other);
    this.dispute.catch(() => {});
  }

  /** Throws what differs, with the first lines that do where the other process still tells its program. */
  private async explain(own: Pending, rank: number, other: Claim): Promise<never> {
    const text = () => this.texts.get(`${rank} ${own.key}`);
    await listenUntil(this.channel, () => text() !== undefined, TEXT_MS);
    const sides = [
      { process: this.rank, claim: own, text: own.text },
      { process: rank, claim: other, text: text() ?? "" },
    ].sort((a, b) => a.process - b.process);
    const lines = firstDifference(sides.map((side) => side.text));
    const values = sides.map(({ process, claim }, i) => {
      const line = lines[i] === undefined ? "" : `, line ${lines[i]}`;
      return `process ${process} has ${describeVersion(claim)}${line}`;
    });
    throw new ProgramsDifferError(own.key, values);
  }

  private checkDeadline(): void {
    for (const { key, name, missing, since } of this.pending.values()) {
      if (performance.now() - since < this.deadlineMs) continue;
      const values = [
        `process ${this.rank} has ${JSON.stringify(name)}`,
        ...[...missing].map((rank) => `process ${rank} has not come to it for ${this.deadlineMs} ms`),
      ];
      throw new ProgramsDifferError(key, values);
    }
  }
}

/** For each of two texts the number and the words of the first line that differs; nothing where one is unknown. */
function firstDifference(texts: readonly string[]): string[] {
  const [a = [], b = []] = texts.map((text) => text.split("\n"));
  if (texts.includes("")) return [];
  const at = a.findIndex((line, i) => line !== b[i]);
  const line = at < 0 ? a.length : at;
  return [a, b].map((lines) => `${line + 1}: ${(lines[line] ?? "the end").trim()}`);
}

/** The text of a program without what is each process's own: the numbers of host callbacks. */
function sharedText(program: Program): string {
  let text = printProgram(program);
  forEachEqn(program, (eqn) => {
    if (eqn.op !== "callback") return;
    const { label, name } = eqn.params.fn;
    text = text.replaceAll(JSON.stringify(label), JSON.stringify(name));
  });
  return text;
}
