/** Collectives in which every block goes from one member to one other. */
import type { RaggedExchange, SlotAddress } from "../../../compiler/steps.js";
import { byteSize } from "../../../ir/dtype.js";
import { checkRows } from "../../../ir/rowBlocks.js";
import { range } from "../../../ir/shape.js";
import type { PreparedCollective } from "../../collectives/collectives.js";
import { rowBlock } from "../../collectives/collectiveWork.js";
import { PHASE } from "../library/messages.js";
import type { Exchange } from "./messageExchange.js";

/** Every member gets the source of at most one other. */
export function permute(exchange: Exchange): PreparedCollective {
  const { spec, host, group, me, bytes } = exchange;
  const from = spec.permutation.find(([, to]) => to === me)?.[0];
  const to = spec.permutation.find(([source]) => source === me)?.[1];
  const isElsewhere = (member: number | undefined): member is number =>
    member !== undefined && group.elsewhere.includes(member);
  const batch = exchange.batch(bytes, bytes);
  return exchange.collective(batch, {
    start(source, target) {
      exchange.begin(source, target, 0);
      if (isElsewhere(from)) exchange.receive(batch, from, PHASE.sources, target, bytes);
      if (isElsewhere(to)) exchange.send(batch, to, PHASE.sources, source, bytes);
    },
    arrived() {
      exchange.awaitNeighbours();
      if (from === undefined) {
        if (!spec.unset) host.kernels.zero(exchange.target, bytes);
      } else if (!isElsewhere(from)) {
        host.peers.pull(exchange.target, exchange.device(from), exchange.sourceOf(from), bytes);
      }
    },
  });
}

/** Every member gets one block of every other. */
export function allToAll(exchange: Exchange): PreparedCollective {
  const { spec, host, group, me } = exchange;
  const inner = spec.inner * byteSize(spec.dtype);
  const batch = exchange.batch(...range(2 * group.elsewhere.length).map(() => inner));
  return exchange.collective(batch, {
    start(source, target) {
      exchange.begin(source, target, 0);
      for (const member of group.elsewhere) {
        exchange.receive(batch, member, PHASE.sources, target + member * inner, inner);
      }
      for (const member of group.elsewhere) {
        exchange.send(batch, member, PHASE.sources, source + member * inner, inner);
      }
    },
    arrived() {
      exchange.awaitNeighbours();
      for (const member of group.here) {
        const source = exchange.sourceOf(member) + me * inner;
        host.peers.pull(exchange.target + member * inner, exchange.device(member), source, inner);
      }
    },
  });
}

/** Every member gets some rows of every other; the tables of both say which. */
export function raggedAllToAll(
  exchange: Exchange,
  { rows, targetRows, numBlocks }: RaggedExchange<SlotAddress>,
): PreparedCollective {
  const { spec, host, group } = exchange;
  const row = (spec.elements / rows) * byteSize(spec.dtype);
  const most = Math.max(rows, targetRows) * row;
  const batch = exchange.batch(...range(2 * numBlocks * group.elsewhere.length).map(() => most));
  const words = new Int32Array(host.memory.buffer);
  const blocksOf = (members: readonly number[]) =>
    members.flatMap((member) => range(numBlocks).map((i) => [member, member * numBlocks + i] as const));
  const [away, here] = [blocksOf(group.elsewhere), blocksOf(group.here)];
  let table = 0;
  return exchange.collective(batch, {
    start(source, target, tables) {
      exchange.begin(source, target, 0);
      const { sends, receives } = tables ?? { sends: 0, receives: 0 };
      table = receives;
      for (const [member, block] of away) {
        const [start, size] = rowBlock(words, receives, block);
        checkRows(start, size, targetRows, "the result");
        if (size > 0) exchange.receive(batch, member, PHASE.sources, target + start * row, size * row);
      }
      for (const [member, block] of away) {
        const [start, size] = rowBlock(words, sends, block);
        checkRows(start, size, rows, "x");
        if (size > 0) exchange.send(batch, member, PHASE.sources, source + start * row, size * row);
      }
    },
    arrived() {
      exchange.awaitNeighbours();
      for (const [member, block] of here) {
        const [start, size, there] = rowBlock(words, table, block);
        checkRows(start, size, targetRows, "the result");
        checkRows(there, size, rows, "x");
        const source = exchange.sourceOf(member) + there * row;
        if (size > 0) {
          host.peers.pull(exchange.target + start * row, exchange.device(member), source, size * row);
        }
      }
    },
  });
}
