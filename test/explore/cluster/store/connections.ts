/**
 * Connections between the processes of a simulated cluster, as TCP promises them and no more: the bytes of one
 * direction arrive in their order, in pieces of any size, late; a connection that ends tells its other side after what
 * was sent before. A connection that is cut loses what is under way and resets both sides at different moments; one
 * whose machine has lost its power or its cable says nothing any more.
 */
import type { Twin } from "../../machine.js";
import { type Callable, current, invoke } from "../../runtime.js";
import type { EventLoop } from "../eventLoop.js";
import type { ClusterMachine } from "../machine.js";
import type { Traffic } from "../network.js";
import { SimulatedProcess } from "../process.js";

/** Tells listeners of events on the event loop of the thread that has made it. */
class Emitter {
  private readonly listeners = new Map<string, { readonly listener: Callable; readonly isOnce: boolean }[]>();

  constructor(
    readonly process: SimulatedProcess,
    protected readonly loop: EventLoop,
  ) {}

  on(event: string, listener: Callable, isOnce = false): this {
    this.listeners.set(event, [...this.of(event), { listener, isOnce }]);
    return this;
  }

  once(event: string, listener: Callable): this {
    return this.on(event, listener, true);
  }

  off(event: string, listener: Callable): this {
    this.listeners.set(
      event,
      this.of(event).filter((one) => one.listener !== listener),
    );
    return this;
  }

  emit(event: string, ...args: unknown[]): void {
    const of = () => this.of(event);
    const off = (listener: Callable) => this.off(event, listener);
    this.loop.queue(function* (): Twin {
      for (const { listener, isOnce } of of()) {
        if (isOnce) off(listener);
        yield* invoke(listener, undefined, args);
      }
      return undefined;
    });
  }

  private of(event: string) {
    return this.listeners.get(event) ?? [];
  }
}

/** One side of a connection. */
export class SimulatedSocket extends Emitter {
  destroyed = false;
  other: SimulatedSocket | undefined;
  /** When the last bytes that were sent arrive. */
  private arrival = 0;
  /** Whether nothing that is sent arrives any more. */
  isSilent = false;

  constructor(
    private readonly connections: Connections,
    process = connections.machine.process,
    loop = connections.machine.loop,
  ) {
    super(process, loop);
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  write(bytes: Uint8Array): boolean {
    this.connections.called(this.process);
    if (this.destroyed || this.process.ending) return false;
    const { random } = this.connections;
    for (let begin = 0; begin < bytes.length; ) {
      const length = random() < 0.7 ? bytes.length : 1 + Math.floor(random() * 12);
      const piece = Buffer.from(bytes.subarray(begin, begin + length));
      begin += length;
      this.send(() => {
        if (this.other && !this.other.destroyed) this.other.emit("data", piece);
      });
    }
    return true;
  }

  /** Sends the end of the stream; the connection is over when it has arrived. */
  end(): void {
    this.send(() => {
      this.other?.lose();
      this.lose();
    });
  }

  destroy(error?: Error): void {
    if (this.destroyed) return;
    this.send(() => this.other?.lose());
    this.lose(error);
  }

  /** Ends this side. */
  lose(error?: Error): void {
    if (this.destroyed) return;
    this.destroyed = true;
    if (error) this.emit("error", error);
    this.emit("close");
  }

  /** Something that arrives after all that was sent before. */
  private send(arrive: () => void): void {
    const { machine } = this.connections;
    this.arrival = Math.max(this.arrival, machine.time + this.connections.delay());
    machine.after(this.arrival - machine.time, () => {
      if (!this.isSilent) arrive();
    });
  }
}

/** What listens for connections. */
export class SimulatedServer extends Emitter {
  private port: number | undefined;

  constructor(
    private readonly connections: Connections,
    private readonly accept: Callable,
  ) {
    super(connections.machine.process, connections.machine.loop);
  }

  listen({ port }: { readonly port: number }, done: Callable): void {
    const { listening } = this.connections;
    if (listening.has(port)) {
      this.emit("error", new Error(`listen EADDRINUSE: address already in use :::${port}`));
      return;
    }
    this.port = port;
    listening.set(port, this);
    this.loop.queue(() => invoke(done, undefined, []));
  }

  address(): { readonly port: number } | null {
    return this.port === undefined ? null : { port: this.port };
  }

  close(): void {
    if (this.port !== undefined) this.connections.listening.delete(this.port);
  }

  /** Takes a connection in. */
  take(from: SimulatedSocket): void {
    const { accept, connections } = this;
    this.loop.queue(function* (): Twin {
      const socket = new SimulatedSocket(connections);
      connections.sockets.push(socket);
      socket.other = from;
      from.other = socket;
      if (from.destroyed) socket.lose();
      yield* invoke(accept, undefined, [socket]);
      connections.machine.after(connections.delay(), () => from.emit("connect"));
      return undefined;
    });
  }
}

export class Connections {
  readonly sockets: SimulatedSocket[] = [];
  readonly listening = new Map<number, SimulatedServer>();

  /** @param called told of every write before it happens */
  constructor(
    readonly machine: ClusterMachine,
    readonly random: () => number,
    private readonly traffic: Traffic,
    readonly called: (process: SimulatedProcess) => void,
  ) {}

  connect(port: number, socket = new SimulatedSocket(this)): SimulatedSocket {
    this.sockets.push(socket);
    this.machine.after(this.delay(), () => {
      const server = this.listening.get(port);
      if (server === undefined || server.process.ending)
        socket.lose(new Error(`connect ECONNREFUSED :${port}`));
      else server.take(socket);
    });
    return socket;
  }

  /** Resets the connections of a process. */
  cut(process: SimulatedProcess): void {
    for (const side of this.sidesOf(process)) {
      side.isSilent = true;
      this.machine.after(this.delay(), () => side.lose(new Error("read ECONNRESET")));
    }
  }

  /** Ends the connections of a process that is gone: its system says so to the other sides. */
  end(process: SimulatedProcess): void {
    for (const socket of this.sockets) if (socket.process === process) socket.destroy();
  }

  /** Lets nothing through any more, in either direction, and says so to nobody. */
  silence(process: SimulatedProcess): void {
    for (const side of this.sidesOf(process)) side.isSilent = true;
  }

  /** Lets somebody connect who is no process of the job, and send something. */
  stranger(port: number, messages: readonly Uint8Array[]): void {
    const outside = new SimulatedProcess(this.machine, -1, 0);
    const socket = this.connect(port, new SimulatedSocket(this, outside, outside.loop));
    const end = 10 * this.delay();
    this.machine.after(end / 2, () => {
      for (const message of messages) socket.write(message);
    });
    this.machine.after(end, () => socket.destroy());
  }

  delay(): number {
    const { usual, slow, slowShare } = this.traffic;
    return this.random() * (this.random() < slowShare ? slow : usual);
  }

  /** Both sides of all connections of a process. */
  private sidesOf(process: SimulatedProcess): SimulatedSocket[] {
    const own = this.sockets.filter((socket) => socket.process === process);
    return own.flatMap((socket) => (socket.other ? [socket, socket.other] : [socket]));
  }
}

const state: { connections: Connections | undefined } = { connections: undefined };

/** Sets the connections that code uses, and the machine that it runs on. */
export function enterConnections(connections: Connections): void {
  state.connections = connections;
  current.machine = connections.machine;
}

/** The connections that code uses. */
export function connections(): Connections {
  if (state.connections === undefined) throw new Error("there is no cluster");
  return state.connections;
}
