/** Options that describe a machine and its network, and the prices of steps that follow from them. */
import { availableParallelism } from "node:os";
import { Mesh } from "../spmd/mesh/mesh.js";
import {
  type Config,
  decimal,
  measure,
  optionalInteger,
  optionalText,
} from "../train/config/configSchema.js";
import { calibrate } from "../train/plan/calibrate.js";
import { type Calibration, calibratedPrices } from "../train/plan/calibration.js";
import { type DeviceSpeed, usualAttention } from "../train/plan/deviceSpeed.js";
import {
  type LinkSpeed,
  type Links,
  linkPrices,
  machinePrices,
  parseBandwidth,
  parseFlops,
  parseSeconds,
  usualFigures,
} from "../train/plan/machine.js";
import type { MeasuredDevices } from "../train/plan/measureDevices.js";
import type { Prices } from "../train/plan/prices.js";
import { measurePeak } from "../train/report/peak.js";
import { UsageError } from "./commandLine.js";

const rate = "a rate such as 400Gbit or 900GB/s";

/** The options that describe a machine. */
export const machineOptions = {
  network: measure("what a device sends to other nodes, such as 400Gbit or 50GB/s", rate, parseBandwidth),
  intra: measure(
    "what a device sends inside its node, such as 900GB/s; the network's by default",
    rate,
    parseBandwidth,
  ),
  node: optionalInteger(`number of devices of a node; ${usualFigures.nodeSize} by default`),
  flops: measure(
    "what a device computes, such as 989TFLOP/s; measured here by default",
    "a rate such as 989TFLOP/s",
    parseFlops,
  ),
  efficiency: decimal(usualFigures.efficiency, "the share of --flops that products reach", 0.01),
  attention: decimal(usualAttention, "the share of --flops that attention reaches in one kernel", 0.01),
  float8: measure(
    "price products with weights as float8, which a device computes at this rate",
    "a rate such as 1979TFLOP/s",
    parseFlops,
  ),
  "memory-speed": measure(
    "the speed of a device's memory, such as 3.35TB/s",
    "a rate such as 3.35TB/s",
    parseBandwidth,
  ),
  latency: measure("latency of a message between nodes, such as 8us", "a time such as 8us", parseSeconds),
  calibration: optionalText("the file with the measurements of plan --calibrate"),
};

/** The values of {@link machineOptions}; a command that knows the size of a node has no option for it. */
type MachineValues = Partial<Config<typeof machineOptions>> &
  Pick<Config<typeof machineOptions>, "efficiency" | "attention">;

/** The prices of a machine, and a sentence about where they come from. */
export interface PricedMachine {
  readonly prices: Prices;
  readonly note: string;
  /** The network, if one is described. */
  readonly network: LinkSpeed | undefined;
}

/**
 * What steps cost on the machine that the options describe, or on this one.
 *
 * @param usual the default speeds of its links
 */
export async function pricesOf(
  values: MachineValues,
  calibration: Calibration | undefined,
  numDevices: number,
  usual: Pick<Links, "nodeSize"> & Partial<Links> = usualFigures,
): Promise<PricedMachine> {
  const links = linksOf(values, usual);
  const { flops } = values;
  if (flops !== undefined) {
    if (!links)
      throw new UsageError(
        "--flops describes another machine: give --network too, such as --network 400Gbit",
      );
    return {
      prices: machinePrices(deviceOf(values, flops), links),
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
  if (!links) return { ...(await measuredNow(numDevices)), network: undefined };
  const peak = await measurePeak(Mesh.create({ device: 1 }));
  if (peak === undefined) throw new UsageError("the engine does not report its speed: give --flops");
  return {
    prices: machinePrices(deviceOf(values, peak, usualFigures.hostMemory), links),
    note: `${formatRate(peak)} each, measured now`,
    network: links.network,
  };
}

/** What steps cost on measured devices of an engine whose compiler fuses, with a network if the options describe one. */
export function pricesOfDevices(
  values: MachineValues,
  { device, link, numDevices: onNode, deviceKind, day }: MeasuredDevices,
  numDevices: number,
): PricedMachine {
  const links = linksOf(values, { nodeSize: onNode, ...(link && { intra: link }) });
  if (!links && numDevices > 1) {
    throw new UsageError("one device was measured: give --intra, --network or both for several");
  }
  const none = { bandwidth: device.memoryBandwidth, latency: 0 };
  const float8 = values.float8 === undefined ? {} : { float8: values.float8 };
  return {
    prices: machinePrices(
      { ...device, ...float8 },
      links ?? { network: none, intra: none, nodeSize: onNode },
    ),
    note: `${deviceKind}, ${formatRate(device.flops)} each, as measured on ${day}`,
    network: links?.network,
  };
}

/** The prices of this machine from a measurement of a few seconds. */
async function measuredNow(numDevices: number): Promise<Omit<PricedMachine, "network">> {
  process.stderr.write(
    "this machine is not calibrated: measuring it for a few seconds (shardwise plan --calibrate measures closely)\n",
  );
  const here = Math.min(numDevices, availableParallelism());
  const prices = calibratedPrices(await calibrate({ devices: [here], isQuick: true }), numDevices);
  return { prices, note: `${formatRate(prices.peakFlops)} each, measured roughly now` };
}

function deviceOf(
  values: MachineValues,
  flops: number,
  usualMemory = flops / usualFigures.flopsPerByte,
): DeviceSpeed {
  return {
    flops,
    efficiency: values.efficiency,
    attention: values.attention,
    ...(values.float8 !== undefined && { float8: values.float8 }),
    memoryBandwidth: values["memory-speed"] ?? usualMemory,
    launch: usualFigures.launch,
  };
}

function linksOf(values: MachineValues, { nodeSize, intra: inside }: Partial<Links>): Links | undefined {
  const { network, latency, intra = inside?.bandwidth ?? network } = values;
  if (intra === undefined) return undefined;
  return {
    network: { bandwidth: network ?? intra, latency: latency ?? usualFigures.networkLatency },
    intra: { bandwidth: intra, latency: inside?.latency ?? usualFigures.intraLatency },
    nodeSize: values.node ?? nodeSize ?? usualFigures.nodeSize,
  };
}

function formatRate(flops: number): string {
  return flops >= 1e12 ? `${(flops / 1e12).toFixed(0)} TFLOP/s` : `${(flops / 1e9).toFixed(1)} GFLOP/s`;
}
