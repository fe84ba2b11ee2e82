import { at } from "../../../ir/shape.js";
import type { Plugin } from "./plugin.js";

/** Something that happens on a device, of which nobody has to be told at once. */
export interface Happening {
  /** Settles some time after the event. */
  readonly over: Promise<void>;
  /** Whether it has happened, found out without waiting. */
  poll(): boolean;
  /** Lets {@link over} settle as soon as it happens. */
  hurry(): void;
}

/** An event that is followed. */
class Ticket implements Happening {
  isCalledBack = false;
  isOver = false;
  private failure: Error | undefined;
  private promise: Promise<void> | undefined;
  private settlePromise: (() => void) | undefined;

  /** @param keep what native code may still use until the event */
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
 * A callback from native code takes some 50 µs until JavaScript runs it, so an event that is waited for is asked for
 * that long before, in milliseconds: short programs are over by then.
 */
const LOOK_MS = 0.05;

/** After looking in vain so many events are waited for by callbacks at once; twice as many each time, up to the most. */
const FEWEST_BLIND = 4;
const MOST_BLIND = 256;

/** Waits that end by looking never leave the current task, so some let others have their turn, in milliseconds. */
const TURN_MS = 2;

/**
 * Events of a plug-in as promises. One callback serves all of them: every event carries the number of a ticket.
 * A callback from native code costs more than starting a small program, so of the events that nobody waits for only
 * the newest has one, asked for when the current task is over; when it comes, those before it are looked at. Callbacks
 * do not keep Node running, so a timer does while tickets are out.
 */
export class Events {
  private readonly tickets = new Map<bigint, Ticket>();
  /** What has happened or will, without a callback, in the order in which it was started. */
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

  /** Settles when an event has happened, and gives the event back. */
  when(event: bigint, keep?: unknown): Promise<void> {
    const ticket = new Ticket(event, keep, this);
    this.quiet.add(ticket);
    this.hurry(ticket);
    return ticket.over;
  }

  /** Follows an event that nobody waits for yet, and gives it back when it has happened. */
  follow(event: bigint, keep?: unknown): Happening {
    const ticket = new Ticket(event, keep, this);
    this.quiet.add(ticket);
    this.watchSoon();
    return ticket;
  }

  /** Settles when all events that are waited for have happened. */
  async settled(): Promise<void> {
    for (const ticket of this.quiet) this.callBack(ticket);
    await Promise.allSettled([...this.tickets.values()].map(({ over }) => over));
  }

  /** Lets a ticket settle as soon as its event happens: it may be about to, else there is a callback. */
  hurry(ticket: Ticket): void {
    if (ticket.isOver || ticket.isCalledBack) return;
    if (this.numBlind > 0) this.numBlind--;
    else if (this.look(ticket)) return;
    this.callBack(ticket);
  }

  /** Whether an event has happened; one without a callback is settled then. */
  poll(ticket: Ticket): boolean {
    if (ticket.isOver) return true;
    const { plugin } = this;
    const isReady = plugin.callWith("Event_IsReady", "event", ticket.event, "isReady") & 1n;
    if (isReady === 0n) return false;
    // An event that will call back must live until it has.
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

  /** Looks for a short while whether an event happens, unless that was in vain lately or others had no turn for long. */
  private look(ticket: Ticket): boolean {
    const begin = performance.now();
    if (begin - this.lastTurn > TURN_MS) return false;
    do {
      if (!this.poll(ticket)) continue;
      this.blindness = FEWEST_BLIND;
      return true;
    } while (performance.now() - begin < LOOK_MS);
    this.numBlind = this.blindness;
    this.blindness = Math.min(2 * this.blindness, MOST_BLIND);
    return false;
  }

  /** Asks for a callback, once. */
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

  /** Has the newest of the events called back that nobody waits for, unless one of them is already. */
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
    // One that could not be asked for will not ring.
    if (newest.isOver && this.sentinel === newest) this.sentinel = undefined;
  }

  /** A callback came; while its event is asked for it must not be given back. */
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

  /** Keeps Node running; what nobody is called back for yet is looked at by an immediate, which does so itself. */
  private keepAwake(): void {
    this.alive ??= setInterval(() => {}, 2 ** 30);
  }
}
