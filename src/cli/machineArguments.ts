/** Options that describe a machine and its network, and the prices of steps that follow from them. */
import { Mesh } from "../spmd/mesh/mesh.js";
import { type Calibration, calibratedPrices } from "../train/plan/calibration.js";
import {
  type DeviceSpeed,
  type LinkSpeed,
  type Links,
  linkPrices,
  machinePrices,
  parseBandwidth,
  parseFlops,
  parseSeconds,
  usualFigures,
} from "../train/plan/machine.js";
import type { Prices } from "../train/plan/prices.js";
import { measurePeak } from "../train/report/peak.js";
import { type Arguments, UsageError } from "./arguments.js";
import type { CommandOption } from "./command.js";
import { integerOption, numberOption } from "./runArguments.js";

/** The options by which a machine is described. */
export const machineOptions: readonly CommandOption[] = [
  { name: "network", help: "what a device sends to other nodes, such as 400Gbit or 50GB/s" },
  { name: "intra", help: "what a device sends inside its node, such as 900GB/s; the network's by default" },
  { name: "node", help: `number of devices of a node; ${usualFigures.nodeSize} by default` },
  { name: "flops", help: "what a device computes, such as 989TFLOP/s; measured here by default" },
  {
    name: "efficiency",
    help: `the share of --flops that products reach; ${usualFigures.efficiency} by default`,
  },
  { name: "memory-speed", help: "the speed of a device's memory, such as 3.35TB/s" },
  { name: "latency", help: "latency of a message between nodes, such as 8us" },
  { name: "calibration", help: "the file with the measurements of plan --calibrate" },
];

/** The prices of a machine, and a sentence about where they come from. */
export interface PricedMachine {
  readonly prices: Prices;
  readonly note: string;
  /** The network, where one is described. */
  readonly network: LinkSpeed | undefined;
}

/**
 * What steps cost on the machine that the options describe, or on this one.
 *
 * @param usual what holds of its links where no option says otherwise
 */
export async function pricesOf(
  args: Arguments,
  calibration: Calibration | undefined,
  numDevices: number,
  usual: Pick<Links, "nodeSize"> & Partial<Links> = usualFigures,
): Promise<PricedMachine> {
  const links = linksOf(args, usual);
  const flops = parsedOption(args, "flops", parseFlops, "a rate such as 989TFLOP/s");
  if (flops !== undefined) {
    if (!links)
      throw new UsageError(
        "--flops describes another machine: give --network too, such as --network 400Gbit",
      );
    return {
      prices: machinePrices(deviceOf(args, flops), links),
      note: `${formatRate(flops)} each, as given`,
      network: links.network,
    };
  }
  if (calibration) {
    const prices = calibratedPrices(calibration, links ? 1 : numDevices);
    const note = `${formatRate(prices.peakFlops)} each, as calibrated on ${calibration.day}`;
    if (!links) return { prices, note, network: undefined };
    const others = { numCores: Number.POSITIVE_INFINITY, overlaps: true, collective: linkPrices(links) };
    return { prices: { ...prices, ...others }, note, network: links.network };
  }
  if (!links) {
    throw new UsageError(
      "this machine is not calibrated: run shardwise plan --calibrate first, or describe another one with --flops, --network and --intra",
    );
  }
  const peak = await measurePeak(Mesh.create({ device: 1 }));
  if (peak === undefined) throw new UsageError("the engine does not tell how fast it is: give --flops");
  return {
    prices: machinePrices(deviceOf(args, peak, usualFigures.hostMemory), links),
    note: `${formatRate(peak)} each, measured now`,
    network: links.network,
  };
}

function deviceOf(
  args: Arguments,
  flops: number,
  usualMemory = flops / usualFigures.flopsPerByte,
): DeviceSpeed {
  const speed = parsedOption(args, "memory-speed", parseBandwidth, "a rate such as 3.35TB/s");
  return {
    flops,
    efficiency: numberOption(args, "efficiency", usualFigures.efficiency, 0.01),
    memoryBandwidth: speed ?? usualMemory,
    launch: usualFigures.launch,
  };
}

function linksOf(args: Arguments, { nodeSize, intra: inside }: Partial<Links>): Links | undefined {
  const accepted = "a rate such as 400Gbit or 900GB/s";
  const network = parsedOption(args, "network", parseBandwidth, accepted);
  const intra = parsedOption(args, "intra", parseBandwidth, accepted) ?? inside?.bandwidth ?? network;
  const latency = parsedOption(args, "latency", parseSeconds, "a time such as 8us");
  if (intra === undefined) return undefined;
  return {
    network: { bandwidth: network ?? intra, latency: latency ?? usualFigures.networkLatency },
    intra: { bandwidth: intra, latency: inside?.latency ?? usualFigures.intraLatency },
    nodeSize: integerOption(args, "node", nodeSize ?? usualFigures.nodeSize, 1),
  };
}

/** The text of an option. */
export function textOption(args: Arguments, name: string): string | undefined {
  const given = args.options.get(name);
  return typeof given === "string" ? given : undefined;
}

/** The value of an option with a unit. */
export function parsedOption(
  args: Arguments,
  name: string,
  parse: (text: string) => number | undefined,
  accepted: string,
): number | undefined {
  const text = textOption(args, name);
  if (text === undefined) return undefined;
  const value = parse(text);
  if (value !== undefined) return value;
  throw new UsageError(`--${name} is "${text}": use ${accepted}`);
}

function formatRate(flops: number): string {
  return flops >= 1e12 ? `${(flops / 1e12).toFixed(0)} TFLOP/s` : `${(flops / 1e9).toFixed(1)} GFLOP/s`;
}
