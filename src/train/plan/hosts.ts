/** The cost of collectives between hosts, from the messages between processes. */
import { hostTraffic } from "../../engines/mpi/exchange/traffic.js";
import type { DevicePlace } from "../../ir/engine.js";
import type { LinkSpeed } from "./machine.js";
import type { Prices } from "./prices.js";

/** The share of a frame of Ethernet that is not headers: 1448 of 1538 bytes, its gap included. */
const FRAME_SHARE = 1448 / 1538;

/**
 * The price of collectives of processes on several hosts, each with one network link that its devices share.
 *
 * @param places the location of the device at every position of the mesh
 * @param inside the price of collectives within one host
 */
export function hostPrices(
  { bandwidth, latency }: LinkSpeed,
  places: readonly DevicePlace[],
  inside: Prices["collective"],
): Prices["collective"] {
  return (spec) => {
    const { bytes, exchanges } = hostTraffic(spec, places);
    return exchanges === 0 ? inside(spec) : exchanges * latency + bytes / (bandwidth * FRAME_SHARE);
  };
}
