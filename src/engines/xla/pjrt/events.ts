import type { Plugin } from "./plugin.js";

interface Ticket {
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
  /** What native code may still use until the event. */
  readonly keep: unknown;
}

/**
 * Events of a plug-in as promises. One callback serves all of them: every event carries the number of a ticket.
 * Callbacks of native code do not keep Node running, so a timer does while tickets are out.
 */
export class Events {
  private readonly tickets = new Map<bigint, Ticket>();
  private readonly pending = new Set<Promise<void>>();
  private readonly callback: bigint;
  private next = 1n;
  private alive: NodeJS.Timeout | undefined;

  constructor(private readonly plugin: Plugin) {
    const { koffi } = plugin;
    const type = koffi.proto("void", ["void *", "void *"]);
    const ready = (error: unknown, user: unknown) => this.settle(error, BigInt(String(user ?? 0)));
    this.callback = koffi.register(ready, koffi.pointer(type));
  }

  /** Settles when an event has happened, and gives the event back. */
  when(event: bigint, keep?: unknown): Promise<void> {
    const { plugin } = this;
    const number = this.next++;
    const happened = new Promise<void>((resolve, reject) => {
      this.tickets.set(number, { resolve, reject, keep });
      this.alive ??= setInterval(() => {}, 2 ** 30);
      const args = plugin.args("Event_OnReady").set("event", event).set("user", number);
      try {
        plugin.call("Event_OnReady", args.set("callback", this.callback));
      } catch (error) {
        this.take(number)?.reject(error);
      }
    });
    const over = happened.finally(() => {
      this.pending.delete(over);
      plugin.call("Event_Destroy", plugin.args("Event_Destroy").set("event", event));
    });
    this.pending.add(over);
    return over;
  }

  /** Settles when all events that are waited for have happened. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.pending);
  }

  private take(number: bigint): Ticket | undefined {
    const ticket = this.tickets.get(number);
    this.tickets.delete(number);
    if (this.tickets.size === 0) {
      clearInterval(this.alive);
      this.alive = undefined;
    }
    return ticket;
  }

  private settle(error: unknown, number: bigint): void {
    const ticket = this.take(number);
    if (typeof error === "bigint") ticket?.reject(this.plugin.takeError("run", error));
    else ticket?.resolve();
  }
}
