import type { CollectiveSpec } from "../../../compiler/steps.js";
import { byteSize } from "../../../ir/dtype.js";
import { InternalError } from "../../../ir/errors.js";
import { at, range } from "../../../ir/shape.js";
import { PeerLink } from "../../collectives/collectiveGroup.js";
import type { CollectiveHost, PreparedCollective } from "../../collectives/collectives.js";
import { WORDS } from "../../collectives/collectiveWords.js";
import type { CollectiveProgress } from "../../collectives/desyncDetector.js";
import { fingerprintOf } from "../../flight/fingerprint.js";
import { type MessageBatch, numPieces, PHASE } from "../library/messages.js";
import type { MpiGroup } from "../library/mpiGroup.js";
import { type DevicePair, tagOf } from "../library/tags.js";
import type { ProcessLinks } from "./links.js";

/** A member of another process, and what messages from and to it are called. */
interface Way {
  readonly process: number;
  readonly pair: DevicePair;
  /** The number of the collective between both. */
  sequence: number;
  /** By phase, the kinds of tags. */
  readonly sent: readonly number[];
  readonly received: readonly number[];
}

/** What a collective does before its messages are sent, and when all have arrived. */
interface MessageSteps {
  readonly start: PreparedCollective["start"];
  readonly arrived: () => void;
}

/** What all kinds of collectives between processes have in common, for one member. */
export class Exchange {
  readonly bytes: number;
  readonly me: number;
  /** The group's members in this process, in shared memory; `Link` names them by their place in `group.here`. */
  readonly link: PeerLink;
  private readonly progress: CollectiveProgress;
  readonly neighbours: readonly number[];
  readonly sources: number[] = [];
  readonly targets: number[] = [];
  readonly received: number[] = [];
  source = 0;
  target = 0;
  private sequence = 0;
  /** The members of other processes, by their index in the group. */
  private readonly ways: readonly (Way | undefined)[];
  private readonly others: readonly Way[];
  private readonly neighbourDevices: readonly number[];

  constructor(
    readonly spec: CollectiveSpec,
    index: number,
    readonly host: CollectiveHost,
    readonly staging: number,
    readonly links: ProcessLinks,
    readonly group: MpiGroup,
  ) {
    this.bytes = spec.elements * byteSize(spec.dtype);
    this.me = group.me;
    const positions = group.here.map((i) => at(group.positions, i));
    this.link = new PeerLink(index, host, positions);
    this.neighbours = range(positions.length).filter((i) => i !== this.link.me);
    this.link.reads = this.neighbours;
    this.progress = host.desyncDetector.follow(index, this.link);
    this.neighbourDevices = this.neighbours.map((i) => at(this.link.members, i));
    const all = range(group.size).map((i) => (group.here.includes(i) ? undefined : this.wayTo(i)));
    this.ways = all;
    this.others = all.filter((way) => way !== undefined);
  }

  private wayTo(index: number): Way {
    const { group, links } = this;
    const member = at(group.members, index);
    const fingerprint = fingerprintOf(this.spec);
    const own = this.device(this.me);
    const kinds = (from: number, to: number) =>
      Object.values(PHASE).map((phase) => links.tags.kind(fingerprint, phase, from, to));
    const [sent, received] = [kinds(own, member.device), kinds(member.device, own)];
    return { process: member.process, pair: links.pairWith(member), sequence: 0, sent, received };
  }

  /** In whose memory contributions lie that others send to this member: neighbours' where they are, the rest here. */
  get holders(): number[] {
    const { group, me } = this;
    return range(group.size).map((i) => this.device(group.here.includes(i) ? i : me));
  }

  /** The device of a member. */
  device(member: number): number {
    return at(this.group.members, member).device;
  }

  /** Room for the messages of a phase, of that many bytes each. */
  batch(...messages: readonly number[]): MessageBatch {
    return this.links.batch(messages.reduce((sum, bytes) => sum + numPieces(bytes), 0));
  }

  /** Begins one more use: counts it, and tells the neighbours where things are. */
  begin(source: number, target: number, received: number): void {
    this.links.signals.throwIfAborted();
    this.sequence = (this.sequence + 1) | 0;
    this.source = source;
    this.target = target;
    for (const way of this.others) way.sequence = way.pair.next();
    const { link, progress } = this;
    progress.stamp(this.sequence);
    if (this.neighbours.length > 0) {
      link.putAddress(WORDS.source, source);
      link.putAddress(WORDS.target, target);
      link.putAddress(WORDS.received, received);
      link.tell(WORDS.ready, this.sequence, this.neighbourDevices);
    }
    progress.publish();
  }

  send(batch: MessageBatch, member: number, phase: number, address: number, bytes: number): void {
    const { process, sequence, sent } = at(this.ways, member) ?? notElsewhere(member);
    batch.send(this.links.base + address, bytes, process, tagOf(sent[phase] ?? 0, sequence));
  }

  receive(batch: MessageBatch, member: number, phase: number, address: number, bytes: number): void {
    const { process, sequence, received } = at(this.ways, member) ?? notElsewhere(member);
    batch.receive(this.links.base + address, bytes, process, tagOf(received[phase] ?? 0, sequence));
  }

  /** Waits until all neighbours have begun, and looks where their things are. */
  awaitNeighbours(): void {
    if (this.neighbours.length > 0) {
      this.link.awaitMembers(this.neighbours, WORDS.ready, this.sequence, this.progress.verifyWait);
    }
    this.look();
  }

  /** Tells the neighbours that what was received for them has arrived, and waits for theirs. */
  awaitArrivals(): void {
    if (this.neighbours.length > 0) {
      this.link.tell(WORDS.arrived, this.sequence, this.neighbourDevices);
      this.link.awaitMembers(this.neighbours, WORDS.arrived, this.sequence);
    }
    this.look();
  }

  /** Waits until nobody reads or writes this member's memory any more. */
  finish(): void {
    if (this.neighbours.length > 0) {
      this.link.tell(WORDS.finished, this.sequence, this.neighbourDevices);
      this.link.awaitMembers(this.neighbours, WORDS.finished, this.sequence);
    }
    this.progress.end();
  }

  /** The place of a member of this process among those. */
  placeOf(member: number): number {
    return this.group.here.indexOf(member);
  }

  /** Where the source of a member of this process lies. */
  sourceOf(member: number): number {
    return this.sources[this.placeOf(member)] ?? 0;
  }

  /** A collective whose messages all begin when it starts. */
  collective(batch: MessageBatch, { start, arrived }: MessageSteps): PreparedCollective {
    const messages = this.links.follow(batch);
    return {
      start(source, target, tables) {
        start(source, target, tables);
        messages.begin();
      },
      work() {
        messages.finish();
        arrived();
      },
      settle: () => this.finish(),
    };
  }

  private look(): void {
    if (this.neighbours.length === 0) {
      this.sources[0] = this.source;
      this.targets[0] = this.target;
      return;
    }
    this.link.addresses(WORDS.source, this.sources);
    this.link.addresses(WORDS.target, this.targets);
    this.link.addresses(WORDS.received, this.received);
  }
}

function notElsewhere(member: number): never {
  throw new InternalError(`[mpi] member ${member} of a group is in this process and gets no messages`);
}
