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

/** An event that is waited for. */
class Ticket implements Happening {
  readonly over: Promise<void>;
  isCalledBack = false;
  isOver = false;
  private resolve: () => void = () => {};
  private reject: (error: unknown) => void = () => {};

  /** @param keep what native code may still use until the event */
  constructor(
    readonly event: bigint,
    readonly keep: unknown,
    private readonly events: Events,
  ) {
    this.over = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }

  poll(): boolean {
    return this.events.poll(this);
  }

  hurry(): void {
    this.events.callBack(this);
  }

  settle(error: Error | undefined): void {
    this.isOver = true;
    if (error) this.reject(error);
    else this.resolve();
  }
}

/**
 * Events of a plug-in as promises. One callback serves all of them: every event carries the number of a ticket.
 * A callback from native code costs more than starting a small program, so of the events that nobody waits for only
 * the newest has one; when it comes, those before it are looked at. Callbacks do not keep Node running, so a timer
 * does while tickets are out.
 */
export class Events {
  private readonly tickets = new Map<bigint, Ticket>();
  /** What has happened or will, without a callback, in the order in which it was started. */
  private readonly quiet = new Set<Ticket>();
  private sentinel: Ticket | undefined;
  private readonly callback: bigint;
  private next = 1n;
  private alive: NodeJS.Timeout | undefined;

  constructor(private readonly plugin: Plugin) {
    const { koffi } = plugin;
    const type = koffi.proto("void", ["void *", "void *"]);
    const ready = (error: unknown, user: unknown) => this.ring(error, BigInt(String(user ?? 0)));
    this.callback = koffi.register(ready, koffi.pointer(type));
  }

  /** Settles when an event has happened, and gives the event back. */
  when(event: bigint, keep?: unknown): Promise<void> {
    const ticket = new Ticket(event, keep, this);
    this.callBack(ticket);
    return ticket.over;
  }

  /** Follows an event that nobody waits for yet, and gives it back when it has happened. */
  follow(event: bigint, keep?: unknown): Happening {
    const ticket = new Ticket(event, keep, this);
    this.quiet.add(ticket);
    this.keepAwake();
    if (this.sentinel === undefined) this.watch(ticket);
    return ticket;
  }

  /** Settles when all events that are waited for have happened. */
  async settled(): Promise<void> {
    for (const ticket of this.quiet) this.callBack(ticket);
    await Promise.allSettled([...this.tickets.values()].map(({ over }) => over));
  }

  /** Asks for a callback, once. */
  callBack(ticket: Ticket): void {
    if (ticket.isCalledBack || ticket.isOver) return;
    const { plugin } = this;
    const number = this.next++;
    ticket.isCalledBack = true;
    this.quiet.delete(ticket);
    this.tickets.set(number, ticket);
    this.keepAwake();
    const args = plugin.args("Event_OnReady").set("event", ticket.event).set("user", number);
    try {
      plugin.call("Event_OnReady", args.set("callback", this.callback));
    } catch (error) {
      this.tickets.delete(number);
      this.end(ticket, error instanceof Error ? error : new Error(String(error)));
    }
  }

  /** Whether an event has happened; one without a callback is settled then. */
  poll(ticket: Ticket): boolean {
    if (ticket.isOver) return true;
    const { plugin } = this;
    const asked = plugin.call("Event_IsReady", plugin.args("Event_IsReady").set("event", ticket.event));
    if ((asked.get("isReady") & 1n) === 0n) return false;
    // An event that will call back must live until it has.
    if (ticket.isCalledBack) return true;
    this.quiet.delete(ticket);
    let failure: Error | undefined;
    try {
      plugin.call("Event_Error", plugin.args("Event_Error").set("event", ticket.event), "run");
    } catch (error) {
      failure = error instanceof Error ? error : new Error(String(error));
    }
    this.end(ticket, failure);
    return true;
  }

  private watch(ticket: Ticket): void {
    this.sentinel = ticket;
    this.callBack(ticket);
  }

  /** A callback came. */
  private ring(error: unknown, number: bigint): void {
    const ticket = this.tickets.get(number);
    this.tickets.delete(number);
    const failure = typeof error === "bigint" ? this.plugin.takeError("run", error) : undefined;
    if (ticket) this.end(ticket, failure);
    for (const earlier of this.quiet) if (!this.poll(earlier)) break;
    if (ticket === this.sentinel) this.sentinel = undefined;
    if (this.sentinel === undefined && this.quiet.size > 0)
      this.watch(at([...this.quiet], this.quiet.size - 1));
  }

  private end(ticket: Ticket, failure: Error | undefined): void {
    const { plugin } = this;
    ticket.settle(failure);
    plugin.call("Event_Destroy", plugin.args("Event_Destroy").set("event", ticket.event));
    if (this.tickets.size > 0 || this.quiet.size > 0) return;
    clearInterval(this.alive);
    this.alive = undefined;
  }

  private keepAwake(): void {
    this.alive ??= setInterval(() => {}, 2 ** 30);
  }
}
