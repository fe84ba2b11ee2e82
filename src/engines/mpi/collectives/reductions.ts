/** Collectives in which every member combines its part of all sources. */
import { byteSize } from "../../../ir/dtype.js";
import { at, range } from "../../../ir/shape.js";
import type { PreparedCollective } from "../../collectives/collectives.js";
import { type CombineSources, prepareCombine } from "../../collectives/collectiveWork.js";
import { roundUp } from "../../memory/heap.js";
import type { PendingCollective } from "../exchange/links.js";
import type { Exchange } from "../exchange/messageExchange.js";
import { type MessageBatch, PHASE } from "../library/messages.js";
import { blockBytes, partBounds } from "../library/mpiGroup.js";

/** A range of the device's memory. */
interface Range {
  readonly at: number;
  readonly bytes: number;
}

/**
 * Whether a contribution may be received where the result goes, so that less memory is touched: it is the only one,
 * and neither the sources that are sent nor those that neighbours read lie there.
 */
function canReceiveIn({ group, neighbours }: Exchange, target: Range, source: Range): boolean {
  const isApart = target.at + target.bytes <= source.at || source.at + source.bytes <= target.at;
  return isApart && group.elsewhere.length === 1 && neighbours.length === 0;
}

/** Every member combines one part from all sources and sends it to all processes. */
export class PartsReduction implements PreparedCollective, PendingCollective {
  private readonly bounds: readonly number[];
  /** Where the others' contributions to the own part arrive, unless it is where the result goes. */
  private readonly slots: readonly (readonly [member: number, address: number])[];
  private isReceivedInPlace = false;
  private readonly senders: readonly number[];
  private readonly receivers: readonly number[];
  private readonly first: MessageBatch;
  private readonly second: MessageBatch;
  private readonly combine: CombineSources;
  private readonly addresses: number[] = [];
  private isCombined = false;

  constructor(private readonly exchange: Exchange) {
    const { bytes, host, staging, group, me } = exchange;
    this.bounds = partBounds(bytes, group.size);
    const part = this.partOf(me);
    this.slots = group.elsewhere.map((member, i) => [member, staging + i * roundUp(part)] as const);
    this.senders = group.receivedBy(me);
    this.receivers = group.processes.map((members) => group.receiver(me, members));
    const sizes = (members: readonly number[]) => members.map((member) => this.partOf(member));
    const same = (members: readonly number[]) => members.map(() => part);
    this.first = exchange.batch(...same(group.elsewhere), ...sizes(group.elsewhere));
    this.second = exchange.batch(...same(this.receivers), ...sizes(this.senders));
    this.combine = prepareCombine(exchange.spec, exchange.holders, host);
  }

  start(source: number, target: number): void {
    const { exchange, first } = this;
    this.isCombined = false;
    exchange.begin(source, target, 0);
    const [begin, part] = [at(this.bounds, exchange.me), this.partOf(exchange.me)];
    const own = { at: target + begin, bytes: part };
    this.isReceivedInPlace = canReceiveIn(exchange, own, { at: source, bytes: exchange.bytes });
    for (const [member, address] of this.slots) {
      exchange.receive(first, member, PHASE.sources, this.isReceivedInPlace ? own.at : address, part);
    }
    for (const member of exchange.group.elsewhere) {
      exchange.send(first, member, PHASE.sources, source + at(this.bounds, member), this.partOf(member));
    }
    first.begin();
    exchange.links.begin(this);
  }

  /** With neighbours, the second half waits for them and therefore for `work`. */
  advance(): void {
    if (this.isCombined) {
      this.second.isDone();
    } else if (this.first.isDone() && this.exchange.neighbours.length === 0) {
      this.combineOwn();
    }
  }

  work(): void {
    const { exchange } = this;
    if (!this.isCombined) {
      exchange.links.wait(this.first);
      this.combineOwn();
    }
    this.push(exchange.me);
    exchange.links.wait(this.second);
    exchange.links.end(this);
    for (const sender of this.senders) this.push(sender);
  }

  settle(): void {
    this.exchange.finish();
  }

  private partOf(member: number): number {
    return at(this.bounds, member + 1) - at(this.bounds, member);
  }

  /** Combines the own part, all of whose sources are here, and sends the result. */
  private combineOwn(): void {
    const { exchange, addresses, second, bounds } = this;
    const [begin, part] = [at(bounds, exchange.me), this.partOf(exchange.me)];
    exchange.awaitNeighbours();
    for (const member of exchange.group.here) {
      addresses[member] = exchange.sourceOf(member) + begin;
    }
    const { target } = exchange;
    for (const [member, address] of this.slots) {
      addresses[member] = this.isReceivedInPlace ? target + begin : address;
    }
    this.combine(target + begin, addresses, 0, part);
    for (const sender of this.senders) {
      exchange.receive(second, sender, PHASE.results, target + at(bounds, sender), this.partOf(sender));
    }
    for (const receiver of this.receivers) {
      exchange.send(second, receiver, PHASE.results, target + begin, part);
    }
    second.begin();
    this.isCombined = true;
  }

  /** Copies a member's part of the result to the neighbours. */
  private push(member: number): void {
    const { exchange } = this;
    const offset = at(this.bounds, member);
    for (const place of exchange.neighbours) {
      const [device, target] = [at(exchange.link.members, place), exchange.targets[place] ?? 0];
      exchange.host.peers.push(device, target + offset, exchange.target + offset, this.partOf(member));
    }
  }
}

/** Every member gets its block of all sources and combines them. */
export function reduceScatter(exchange: Exchange): PreparedCollective {
  const { spec, host, staging, group, me } = exchange;
  const inner = spec.inner * byteSize(spec.dtype);
  const block = blockBytes(spec);
  const stride = roundUp(block);
  const numOthers = group.elsewhere.length;
  const batch = exchange.batch(...range(2 * numOthers).map(() => block));
  const combine = prepareCombine(spec, exchange.holders, host);
  const row = group.size * inner;
  const [bases, strides, addresses]: [number[], number[], number[]] = [[], [], []];
  let slots = staging;
  return exchange.collective(batch, {
    start(source, target) {
      exchange.begin(source, target, 0);
      const isFree = canReceiveIn(
        exchange,
        { at: target, bytes: block },
        { at: source, bytes: spec.outer * row },
      );
      slots = isFree ? target : staging;
      group.elsewhere.forEach((member, i) => {
        exchange.receive(batch, member, PHASE.sources, slots + i * stride, block);
      });
      group.elsewhere.forEach((member, i) => {
        let from = source + member * inner;
        if (spec.outer > 1) {
          from = staging + (numOthers + i) * stride;
          host.kernels.copyRows(from, source + member * inner, inner, spec.outer, inner, row);
        }
        exchange.send(batch, member, PHASE.sources, from, block);
      });
    },
    arrived() {
      exchange.awaitNeighbours();
      for (const member of group.here) {
        bases[member] = exchange.sourceOf(member) + me * inner;
        strides[member] = row;
      }
      group.elsewhere.forEach((member, i) => {
        bases[member] = slots + i * stride;
        strides[member] = inner;
      });
      for (let o = 0; o < spec.outer; o++) {
        for (let i = 0; i < group.size; i++) addresses[i] = (bases[i] ?? 0) + o * (strides[i] ?? 0);
        combine(exchange.target + o * inner, addresses, 0, inner);
      }
    },
  });
}
