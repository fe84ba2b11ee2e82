import { at } from "../../../ir/shape.js";
import type { Plugin } from "./plugin.js";

/** An event on a device for which an immediate notification is optional. */
export interface DeviceEvent {
  /** Settles some time after the event. */
  readonly over: Promise<void>;
  /** Whether it has happened, without waiting. */
  poll(): boolean;
  /** Makes {@link over} settle as soon as it happens. */
  hurry(): void;
}

/** An event being tracked. */
class Ticket implements DeviceEvent {
  isCalledBack = false;
  isOver = false;
  private failure: Error | undefined;
  private promise: Promise<void> | undefined;
  private settlePromise: (() => void) | undefined;

  /** @param keep what native code may still use until the event happens */
  constructor(
    readonly event: bigint,
    readonly keep: unknown,
    private readonly events: Events,
  ) {}

  get over(): Promise<void> {
    this.promise ??= new Promise((resolve, reject) => {
      this.settlePromise = () => (this.failure ? reject(this.failure) : resolve());
      if (this.isOver) this.settlePromise();
    });
    return this.promise;
  }

  poll(): boolean {
    return this.isOver || this.events.poll(this);
  }

  hurry(): void {
    this.events.hurry(this);
  }

  settle(failure: Error | undefined): void {
    this.isOver = true;
    this.failure = failure;
    this.settlePromise?.();
  }
}

/**
 * A callback from native code takes about 50 µs to reach JavaScript, so an event that is waited for is polled for that
 * many milliseconds first: short programs have finished by then.
 */
const LOOK_MS = 0.05;

/**
 * After polling in vain, the next this many waits use callbacks directly; the number doubles each time, up to a
 * maximum.
 */
const FEWEST_BLIND = 4;
const MAX_BLIND = 256;

/**
 * Waits that end by polling never leave the current task, so after this many milliseconds one yields to other tasks.
 */
const TURN_MS = 2;

/**
 * A plug-in's events as promises. One callback serves all of them: every event carries the number of its ticket. A
 * callback from native code costs more than starting a small program, so of the events that are not awaited only the
 * newest gets one, requested when the current task has ended; when it fires, the earlier events are polled. Callbacks
 * do not keep Node running, so a timer does while tickets are open.
 */
export class Events {
  private readonly tickets = new Map<bigint, Ticket>();
  /** Events without a callback, in the order in which they were started. */
  private readonly quiet = new Set<Ticket>();
  private sentinel: Ticket | undefined;
  private willWatch = false;
  private isAsking = false;
  private readonly rung: { readonly error: unknown; readonly number: bigint }[] = [];
  private readonly callback: bigint;
  private next = 1n;
  private alive: NodeJS.Timeout | undefined;
  private numBlind = 0;
  private blindness = FEWEST_BLIND;
  private lastTurn = performance.now();

  constructor(private readonly plugin: Plugin) {
    const { koffi } = plugin;
    const type = koffi.proto("void", ["void *", "void *"]);
    const ready = (error: unknown, user: unknown) => this.ring(error, BigInt(String(user ?? 0)));
    this.callback = koffi.register(ready, koffi.pointer(type));
  }

  /** Settles when an event has happened, and destroys the event. */
  when(event: bigint, keep?: unknown): Promise<void> {
    const ticket = new Ticket(event, keep, this);
    this.quiet.add(ticket);
    this.hurry(ticket);
    return ticket.over;
  }

  /** Tracks an event that is not awaited yet, and destroys it when it has happened. */
  follow(event: bigint, keep?: unknown): DeviceEvent {
    const ticket = new Ticket(event, keep, this);
    this.quiet.add(ticket);
    this.watchSoon();
    return ticket;
  }

  /** Settles when all awaited events have happened. */
  async settled(): Promise<void> {
    for (const ticket of this.quiet) this.callBack(ticket);
    await Promise.allSettled([...this.tickets.values()].map(({ over }) => over));
  }

  /** Makes a ticket settle as soon as its event happens: by polling for a moment, then by a callback. */
  hurry(ticket: Ticket): void {
    if (ticket.isOver || ticket.isCalledBack) return;
    if (this.numBlind > 0) this.numBlind--;
    else if (this.look(ticket)) return;
    this.callBack(ticket);
  }

  /** Whether an event has happened; if it has no callback, it is settled then. */
  poll(ticket: Ticket): boolean {
    if (ticket.isOver) return true;
    const { plugin } = this;
    const isReady = plugin.callWith("Event_IsReady", "event", ticket.event, "isReady") & 1n;
    if (isReady === 0n) return false;
    // An event with a pending callback must stay alive until the callback has run.
    if (ticket.isCalledBack) return true;
    let failure: Error | undefined;
    try {
      plugin.callWith("Event_Error", "event", ticket.event, "event", "run");
    } catch (error) {
      failure = error instanceof Error ? error : new Error(String(error));
    }
    this.end(ticket, failure);
    return true;
  }

  /** Polls an event for a short while, unless polling failed recently or other tasks have waited for long. */
  private look(ticket: Ticket): boolean {
    const begin = performance.now();
    if (begin - this.lastTurn > TURN_MS) return false;
    do {
      if (!this.poll(ticket)) continue;
      this.blindness = FEWEST_BLIND;
      return true;
    } while (performance.now() - begin < LOOK_MS);
    this.numBlind = this.blindness;
    this.blindness = Math.min(2 * this.blindness, MAX_BLIND);
    return false;
  }

  /** Requests a callback, once. */
  private callBack(ticket: Ticket): void {
    if (ticket.isCalledBack || ticket.isOver) return;
    const { plugin } = this;
    const number = this.next++;
    ticket.isCalledBack = true;
    this.quiet.delete(ticket);
    this.tickets.set(number, ticket);
    this.keepAwake();
    const args = plugin.args("Event_OnReady").set("event", ticket.event).set("user", number);
    this.isAsking = true;
    try {
      plugin.call("Event_OnReady", args.set("callback", this.callback));
    } catch (error) {
      this.tickets.delete(number);
      this.end(ticket, error instanceof Error ? error : new Error(String(error)));
    } finally {
      this.isAsking = false;
    }
    for (const answer of this.rung.splice(0)) this.answer(answer.error, answer.number);
  }

  /** Requests a callback for the newest event that is not awaited, unless one of them has a callback already. */
  private watchSoon(): void {
    if (this.willWatch || this.sentinel !== undefined) return;
    this.willWatch = true;
    setImmediate(() => {
      this.willWatch = false;
      this.lastTurn = performance.now();
      this.watchNewest();
    });
  }

  private watchNewest(): void {
    for (const earlier of this.quiet) if (!this.poll(earlier)) break;
    if (this.sentinel !== undefined || this.quiet.size === 0) return;
    const newest = at([...this.quiet], this.quiet.size - 1);
    this.sentinel = newest;
    this.callBack(newest);
    // If requesting a callback failed, none will come.
    if (newest.isOver && this.sentinel === newest) this.sentinel = undefined;
  }

  /** Handles a callback; the event must not be destroyed while its callback is being requested. */
  private ring(error: unknown, number: bigint): void {
    if (this.isAsking) this.rung.push({ error, number });
    else this.answer(error, number);
  }

  private answer(error: unknown, number: bigint): void {
    this.lastTurn = performance.now();
    const ticket = this.tickets.get(number);
    this.tickets.delete(number);
    const failure = typeof error === "bigint" ? this.plugin.takeError("run", error) : undefined;
    if (ticket === this.sentinel) this.sentinel = undefined;
    if (ticket) this.end(ticket, failure);
    this.watchNewest();
  }

  private end(ticket: Ticket, failure: Error | undefined): void {
    this.quiet.delete(ticket);
    ticket.settle(failure);
    this.plugin.callWith("Event_Destroy", "event", ticket.event);
    if (this.tickets.size > 0 || this.alive === undefined) return;
    clearInterval(this.alive);
    this.alive = undefined;
  }

  /** Keeps Node running; events without a callback yet are polled by an immediate, which keeps Node running itself. */
  private keepAwake(): void {
    this.alive ??= setInterval(() => {}, 2 ** 30);
  }
}
