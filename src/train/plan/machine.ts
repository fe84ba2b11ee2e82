/** Machines described by numbers, as on a data sheet, and the prices derived from them. */

import type { CollectiveSpec } from "../../compiler/steps.js";
import { parseBytes } from "../../engines/settings.js";
import { need } from "../../ir/arguments.js";
import { byteSize } from "../../ir/dtype.js";
import { ConfigError } from "../../ir/errors.js";
import { type DeviceSpeed, kernelSeconds } from "./deviceSpeed.js";
import type { Prices } from "./prices.js";

/** A link between devices. */
export interface LinkSpeed {
  /** Bytes per second in each direction. */
  readonly bandwidth: number;
  /** Seconds of an empty message. */
  readonly latency: number;
}

/** The network of a machine: devices of one node have a faster link than those of different ones. */
export interface Links {
  readonly network: LinkSpeed;
  readonly intra: LinkSpeed;
  /** How many devices a node has. */
  readonly nodeSize: number;
}

/** Reads a rate such as `900GB/s`, `400Gbit` or `3.35TB/s` as bytes a second. */
export function parseBandwidth(text: string): number | undefined {
  const [, digits, prefix = "", unit = ""] =
    /^\s*(\d+(?:\.\d+)?)\s*([kKMGT]?i?)(bit|b|B)(?:\/s|ps)?\s*$/.exec(text) ?? [];
  const factor = digits === undefined ? undefined : prefixes[prefix];
  if (digits === undefined || factor === undefined) return undefined;
  const bytes = Number(digits) * factor * (unit === "B" ? 1 : 1 / 8);
  return bytes > 0 ? bytes : undefined;
}

/** Reads a rate such as `989TFLOP/s` or `50GFLOPS` as floating-point operations a second. */
export function parseFlops(text: string): number | undefined {
  const [, digits, prefix = ""] =
    /^\s*(\d+(?:\.\d+)?)\s*([kKMGTP]?)(?:FLOP(?:S|\/s)?|flop(?:s|\/s)?)?\s*$/.exec(text) ?? [];
  const factor = digits === undefined ? undefined : prefixes[prefix];
  const flops = digits === undefined || factor === undefined ? 0 : Number(digits) * factor;
  return flops > 0 ? flops : undefined;
}

/** Reads a time such as `5us` or `0.2ms` as seconds. */
export function parseSeconds(text: string): number | undefined {
  const [, digits, unit = ""] = /^\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s)\s*$/.exec(text) ?? [];
  const factor = times[unit];
  return digits === undefined || factor === undefined ? undefined : Number(digits) * factor;
}

/** Reads a size such as `80GiB` or `80GB`; the latter in powers of ten. */
export function parseSize(text: string): number | undefined {
  const [, digits, prefix = ""] = /^\s*(\d+(?:\.\d+)?)\s*([kMGT])B\s*$/.exec(text) ?? [];
  const factor = prefixes[prefix];
  return digits !== undefined && factor !== undefined ? Number(digits) * factor : parseBytes(text);
}

const prefixes: Readonly<Record<string, number>> = {
  "": 1,
  k: 1e3,
  K: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
};

const times: Readonly<Record<string, number>> = { ns: 1e-9, us: 1e-6, µs: 1e-6, ms: 1e-3, s: 1 };

/** How the devices of a collective's group lie on nodes. */
function nodesOf({ groups }: CollectiveSpec, nodeSize: number): { numNodes: number; onNode: number } {
  const [group = []] = groups;
  const nodes = new Map<number, number>();
  for (const device of group) {
    const node = Math.floor(device / nodeSize);
    nodes.set(node, (nodes.get(node) ?? 0) + 1);
  }
  return { numNodes: Math.max(1, nodes.size), onNode: Math.max(1, ...nodes.values()) };
}

/** The bytes that each device sends in a ring, by operand bytes and number of devices. */
const ringBytes: { readonly [K in CollectiveSpec["kind"]]: (bytes: number, size: number) => number } = {
  allReduce: (bytes, size) => (2 * bytes * (size - 1)) / size,
  allGather: (bytes, size) => bytes * (size - 1),
  reduceScatter: (bytes, size) => (bytes * (size - 1)) / size,
  allToAll: (bytes, size) => (bytes * (size - 1)) / size,
  permute: (bytes) => bytes,
};

/** The messages of a collective that wait for each other: inside nodes, and between them. */
type Hops = (group: { readonly size: number; readonly numNodes: number; readonly onNode: number }) => {
  readonly inside: number;
  readonly between: number;
};

const depth = (count: number) => Math.ceil(Math.log2(count));

/** A ring visits every device of a group, and enters each of its nodes once. */
const ring: Hops = ({ size, numNodes }) => ({ inside: size - numNodes, between: numNodes - 1 });

/** Messages between any two devices, which the network carries if the group has several nodes. */
const direct = (count: number, numNodes: number): ReturnType<Hops> =>
  numNodes === 1 ? { inside: count, between: 0 } : { inside: 0, between: count };

/**
 * As NCCL counts them: gathers and scatters are rings, so that their latency grows with the number of devices; sums go
 * up and down a tree.
 */
const hops: { readonly [K in CollectiveSpec["kind"]]: Hops } = {
  allReduce: ({ numNodes, onNode }) => ({ inside: 2 * depth(onNode), between: 2 * depth(numNodes) }),
  allGather: ring,
  reduceScatter: ring,
  allToAll: ({ size, numNodes }) => direct(Math.min(size - 1, 2 * depth(size)), numNodes),
  permute: ({ numNodes }) => direct(1, numNodes),
};

/**
 * The price of collectives over given links. A group inside a node uses the fast link. One that spans nodes uses rings
 * that leave a node once for every device in it, so that the network carries a share of the bytes and the fast link the
 * rest.
 *
 * @internal
 */
export function linkPrices({ network, intra, nodeSize }: Links): Prices["collective"] {
  if (!(network.bandwidth > 0) || !(intra.bandwidth > 0)) {
    throw new ConfigError("[planTraining] links need a bandwidth above 0 bytes a second");
  }
  return (spec) => {
    const bytes = spec.elements * byteSize(spec.dtype);
    if (spec.size < 2) return 0;
    const moved = ringBytes[spec.kind](bytes, spec.size);
    const { numNodes, onNode } = nodesOf(spec, nodeSize);
    const { inside: hopsInside, between } = hops[spec.kind]({ size: spec.size, numNodes, onNode });
    const latency = hopsInside * intra.latency + between * network.latency;
    if (numNodes === 1) return latency + moved / intra.bandwidth;
    // Every device of a node has a network link of its own and sends its share of what leaves the node over it.
    const outside = spec.kind === "permute" ? moved : moved / onNode;
    const inside = onNode > 1 ? moved / intra.bandwidth : 0;
    return latency + Math.max(outside / network.bandwidth, inside);
  };
}

/**
 * The prices of a machine from its devices and links.
 *
 * @example
 * ```ts
 * const device = { flops: 1e15, efficiency: 0.5, memoryBandwidth: 3e12, launch: 5e-6 };
 * const link = { bandwidth: 1e11, latency: 1e-5 };
 * const prices = train.machinePrices(device, { network: link, intra: link, nodeSize: 8 });
 * typeof prices.collective; // function
 * ```
 */
export function machinePrices(device: DeviceSpeed, links: Links): Prices {
  need("object", device, "device", "machinePrices");
  need("object", links, "links", "machinePrices");
  need("object", links.network, "the network of the links", "machinePrices");
  return {
    peakFlops: device.flops,
    call: 0,
    numCores: Number.POSITIVE_INFINITY,
    overlaps: true,
    device,
    step: (_, info) => kernelSeconds(device, info.bytes),
    collective: linkPrices(links),
  };
}

/** Default figures. */
export const usualFigures = {
  nodeSize: 8,
  /** The share of the data sheet's speed that products reach. */
  efficiency: 0.6,
  /** Floating-point operations in the time of reading one byte of memory. */
  flopsPerByte: 250,
  /** Bytes a second between a core and its memory. */
  hostMemory: 10e9,
  /** Seconds that a kernel takes to start. */
  launch: 4e-6,
  networkLatency: 8e-6,
  intraLatency: 3e-6,
} as const;
