/** Sums that MPI forms itself, in an order of its own. */
import { at } from "../../../ir/shape.js";
import type { PreparedCollective } from "../../collectives/collectives.js";
import { prepareCombine } from "../../collectives/collectiveWork.js";
import type { Exchange } from "../exchange/messageExchange.js";
import { numPieces } from "../library/messages.js";
import { type MpiSum, partBounds } from "../library/mpiGroup.js";

/**
 * Every member adds up its part of the sources of its process, MPI adds up what those of all processes have, and each
 * member spreads its part inside. Members start such sums in the same order, as their list of steps says: with
 * neighbours when they are done, because the neighbours are waited for first.
 */
export function reduceByMpi(exchange: Exchange, sum: MpiSum): PreparedCollective {
  return exchange.neighbours.length === 0 ? sumAlone(exchange, sum) : sumInParts(exchange, sum);
}

function sumAlone(exchange: Exchange, { comm, dtype }: MpiSum): PreparedCollective {
  const { links, spec, bytes } = exchange;
  const batch = links.batch(numPieces(bytes), comm);
  return exchange.collective(batch, {
    start(source, target) {
      exchange.begin(source, target, 0);
      batch.sum(links.base + source, links.base + target, spec.elements, dtype);
    },
    arrived: () => {},
  });
}

function sumInParts(exchange: Exchange, { comm, dtype }: MpiSum): PreparedCollective {
  const { links, spec, bytes, group, host, link } = exchange;
  const bounds = partBounds(bytes, group.here.length);
  const [begin, end] = [at(bounds, link.me), at(bounds, link.me + 1)];
  const numElements = (spec.elements * (end - begin)) / bytes;
  const combine = prepareCombine(spec, link.members, host);
  const batch = links.batch(numPieces(end - begin), comm);
  return {
    start: (source, target) => exchange.begin(source, target, 0),
    work() {
      exchange.awaitNeighbours();
      const part = exchange.target + begin;
      combine(part, exchange.sources, begin, end - begin);
      batch.sum(links.base + part, links.base + part, numElements, dtype);
      links.wait(batch);
      for (const place of exchange.neighbours) {
        const target = (exchange.targets[place] ?? 0) + begin;
        host.peers.push(at(link.members, place), target, part, end - begin);
      }
    },
    settle: () => exchange.finish(),
  };
}
