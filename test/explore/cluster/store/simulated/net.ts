/** Stands in for the connections of the system. */
import type { Callable } from "../../../runtime.js";
import { connections, SimulatedServer, type SimulatedSocket } from "../connections.js";

export type Server = SimulatedServer;
export type Socket = SimulatedSocket;

export function createServer(accept: Callable): SimulatedServer {
  return new SimulatedServer(connections(), accept);
}

export function connect({ port }: { readonly port: number }): SimulatedSocket {
  return connections().connect(port);
}
