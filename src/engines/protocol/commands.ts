import { deviceBase, ring, SLEEP, WORD } from "./control.js";
import { layout } from "./layout.js";
import type { Signals } from "./signals.js";

/**
 * A ring of commands from the main thread to one worker. A command is `[length, kind, …words]`; what does not
 * fit into words (programs, elements to upload) is sent through the worker's message port, in the same order. Addresses
 * and sizes are given in units of {@link ADDRESS_UNIT}.
 */
export const COMMAND = {
  /** Take one message from the port: a program to load, elements to copy in, a trace to record into. */
  message: 1,
  /** Forget a program. */
  unload: 2,
  /** Run a program. */
  run: 3,
  /** Copy from a peer when it has finished a command. */
  pull: 4,
} as const;

/** Addresses and sizes of memory blocks are multiples of this number of bytes; commands give them in this unit. */
export const ADDRESS_UNIT = 64;

/** Where commands hold the id of their program; in a run, the addresses of inputs and then of outputs follow it. */
export const PROGRAM_WORD = layout({ kind: 1, program: 1 });

const PULL_WORD = layout({ kind: 1, target: 1, source: 1, bytes: 1, peer: 1, after: 1 });

/** What a device copies; addresses and sizes are in bytes. */
export interface PullCommand {
  readonly target: number;
  readonly source: number;
  readonly bytes: number;
  /** The device that holds the source. */
  readonly peer: number;
  /** The command that the peer must have finished before. */
  readonly after: number;
}

/** The command to copy from a peer. */
export function pullCommand({ target, source, bytes, peer, after }: PullCommand): number[] {
  const command = new Array<number>(PULL_WORD.size).fill(COMMAND.pull);
  command[PULL_WORD.target] = target / ADDRESS_UNIT;
  command[PULL_WORD.source] = source / ADDRESS_UNIT;
  command[PULL_WORD.bytes] = bytes / ADDRESS_UNIT;
  command[PULL_WORD.peer] = peer;
  command[PULL_WORD.after] = after;
  return command;
}

/** Reads a command to copy. */
export function readPull(command: Uint32Array): PullCommand {
  const word = (index: number) => command[index] ?? 0;
  return {
    target: word(PULL_WORD.target) * ADDRESS_UNIT,
    source: word(PULL_WORD.source) * ADDRESS_UNIT,
    bytes: word(PULL_WORD.bytes) * ADDRESS_UNIT,
    peer: word(PULL_WORD.peer),
    after: word(PULL_WORD.after) | 0,
  };
}

const RING_WORDS = 1 << 17;
const MASK = RING_WORDS - 1;

/** The most words a single command may have. */
export const MAX_COMMAND_WORDS = RING_WORDS / 2;

/** A zeroed ring. */
export function newCommandRing(): Int32Array<SharedArrayBuffer> {
  return new Int32Array(new SharedArrayBuffer(4 * RING_WORDS));
}

/** The main thread's end: commands for which the ring has no room are kept in a list and sent later, in order. */
export class CommandWriter {
  private tail = 0;
  private readonly overflow: (readonly number[])[] = [];
  private readonly base: number;

  constructor(
    private readonly control: Int32Array,
    private readonly words: Int32Array,
    private readonly device: number,
  ) {
    this.base = deviceBase(device);
  }

  /** Sends a command, or keeps it until {@link flush} finds room. */
  send(command: readonly number[]): void {
    if (this.overflow.length > 0 || !this.write(command)) this.overflow.push(command);
  }

  /** Sends kept commands for which there is room now. */
  flush(): void {
    let sent = 0;
    for (const command of this.overflow) {
      if (!this.write(command)) break;
      sent++;
    }
    if (sent > 0) this.overflow.splice(0, sent);
  }

  private write(command: readonly number[]): boolean {
    const used = (this.tail - Atomics.load(this.control, this.base + WORD.head)) | 0;
    if (used + command.length + 1 > RING_WORDS) return false;
    const { words } = this;
    let at = this.tail;
    words[at++ & MASK] = command.length;
    for (let i = 0; i < command.length; i++) words[at++ & MASK] = command[i] ?? 0;
    this.tail = at | 0;
    Atomics.store(this.control, this.base + WORD.tail, this.tail);
    ring(this.control, this.device, SLEEP.forCommand);
    return true;
  }
}

/** The worker's end. */
export class CommandReader {
  private head = 0;
  private readonly base: number;
  /** The words of the command read last; only the first `length` count. */
  readonly command = new Uint32Array(MAX_COMMAND_WORDS);

  constructor(
    private readonly signals: Signals,
    private readonly words: Int32Array,
  ) {
    this.base = deviceBase(signals.device);
  }

  /** Waits for the next command, reads it and returns its number of words. */
  next(): number {
    const { signals, words, command } = this;
    signals.waitForChange(this.base + WORD.tail, this.head);
    let at = this.head;
    const length = words[at++ & MASK] ?? 0;
    for (let i = 0; i < length; i++) command[i] = words[at++ & MASK] ?? 0;
    this.head = at | 0;
    Atomics.store(signals.control, this.base + WORD.head, this.head);
    return length;
  }
}
