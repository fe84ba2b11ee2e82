/** Collectives in which every process gets the sources of all members once. */
import { byteSize } from "../../../ir/dtype.js";
import { range } from "../../../ir/shape.js";
import type { PreparedCollective } from "../../collectives/collectives.js";
import { prepareCombine } from "../../collectives/collectiveWork.js";
import { roundUp } from "../../memory/heap.js";
import type { Exchange } from "../exchange/messageExchange.js";
import { PHASE } from "../library/messages.js";
import { blockBytes } from "../library/mpiGroup.js";

/** Where a member's contribution lies once it is in this process: in whose memory, and how to find it there. */
interface Contribution {
  readonly device: number;
  /** Its place among the members of this process. */
  readonly place: number;
  /** Undefined for a source that is here; else an offset into what was received. */
  readonly offset: number | undefined;
}

/** Where the sources of all members lie when each process has received those of the others once. */
function gatheredContributions(exchange: Exchange, stride: number): Contribution[] {
  const { group } = exchange;
  const received = new Map(group.here.map((i) => [i, group.receivedBy(i)]));
  return range(group.size).map((member) => {
    const isHere = group.here.includes(member);
    const holder = isHere ? member : group.receiver(member, group.here);
    const slot = received.get(holder)?.indexOf(member) ?? 0;
    return {
      device: exchange.device(holder),
      place: exchange.placeOf(holder),
      offset: isHere ? undefined : slot * stride,
    };
  });
}

/** Sends the own source to one member of every other process, and receives those that come to this one. */
function gatherSources(exchange: Exchange, bytes: number) {
  const { group, me } = exchange;
  const senders = group.receivedBy(me);
  const receivers = group.processes.map((members) => group.receiver(me, members));
  const batch = exchange.batch(...[...senders, ...receivers].map(() => bytes));
  return {
    batch,
    senders,
    begin(source: number, place: (sender: number, slot: number) => number) {
      senders.forEach((sender, slot) => {
        exchange.receive(batch, sender, PHASE.sources, place(sender, slot), bytes);
      });
      for (const receiver of receivers) exchange.send(batch, receiver, PHASE.sources, source, bytes);
    },
  };
}

/** Every process gets all sources, and every member combines them for itself. */
export function reduceWhole(exchange: Exchange): PreparedCollective {
  const { bytes, host, staging, group } = exchange;
  const stride = roundUp(bytes);
  const gather = gatherSources(exchange, bytes);
  const isAlone = group.here.length === 1;
  const received = isAlone ? staging : staging + stride;
  const contributions = gatheredContributions(exchange, stride);
  const devices = contributions.map(({ device }) => device);
  const combine = prepareCombine(exchange.spec, devices, host);
  const addresses: number[] = [];
  return exchange.collective(gather.batch, {
    start(source, target) {
      // The result may take the place of the source, which neighbours read.
      if (!isAlone) host.kernels.copy(staging, source, bytes);
      const own = isAlone ? source : staging;
      exchange.begin(own, target, received);
      gather.begin(own, (_, slot) => received + slot * stride);
    },
    arrived() {
      exchange.awaitArrivals();
      contributions.forEach(({ place, offset }, i) => {
        const base =
          offset === undefined ? exchange.sources[place] : isAlone ? received : exchange.received[place];
        addresses[i] = (base ?? 0) + (offset ?? 0);
      });
      combine(exchange.target, addresses, 0, bytes);
    },
  });
}

/** Every process gets all blocks once, and every member puts them side by side. */
export function allGather(exchange: Exchange): PreparedCollective {
  const { spec, host, staging } = exchange;
  const inner = spec.inner * byteSize(spec.dtype);
  const block = blockBytes(spec);
  const stride = roundUp(block);
  const isDense = spec.outer === 1;
  const gather = gatherSources(exchange, block);
  // Dense blocks are received where they belong; others are set aside first.
  const contributions = gatheredContributions(exchange, stride);
  const isAlone = exchange.neighbours.length === 0;
  const row = exchange.group.size * inner;
  return exchange.collective(gather.batch, {
    start(source, target) {
      exchange.begin(source, target, isDense ? target : staging);
      gather.begin(source, (sender, slot) => (isDense ? target + sender * inner : staging + slot * stride));
    },
    arrived() {
      exchange.awaitArrivals();
      const { target, sources, received } = exchange;
      contributions.forEach(({ device, place, offset }, member) => {
        const to = target + member * inner;
        const base = isAlone ? (isDense ? target : staging) : (received[place] ?? 0);
        const from =
          offset === undefined ? (sources[place] ?? 0) : base + (isDense ? member * inner : offset);
        if (isDense && offset !== undefined && place === exchange.link.me) return;
        if (isDense) host.peers.pull(to, device, from, inner);
        else host.peers.pullRows(to, device, from, inner, spec.outer, row, inner);
      });
    },
  });
}
