import type { CollectiveSpec } from "../../../compiler/steps.js";
import { InternalError } from "../../../ir/errors.js";
import { type CollectiveHost, groupOf, type PreparedCollective } from "../../collectives/collectives.js";
import type { Remote } from "../../devices/deviceLoop.js";
import { allToAll, permute, raggedAllToAll } from "../exchange/direct.js";
import type { ProcessLinks } from "../exchange/links.js";
import { Exchange } from "../exchange/messageExchange.js";
import { MpiGroup, mpiSum, reductionOf } from "../library/mpiGroup.js";
import { allGather, reduceWhole } from "./gathers.js";
import { reduceByMpi } from "./mpiSums.js";
import { PartsReduction, reduceScatter } from "./reductions.js";

/** How a device reaches those of other processes through its links. */
export function remoteThrough(links: ProcessLinks): Remote {
  return {
    prepare: (spec, index, host, staging) => prepareExchange(spec, index, host, staging, links),
    moveTo: (memory) => links.moveTo(memory),
    progress: () => links.progress(),
  };
}

/**
 * Collectives whose members are in several processes: messages between processes, shared memory inside each.
 * `start` sends and never waits; `work` waits for what was sent to this device and does the rest; `settle` waits for
 * the neighbours.
 *
 * Whatever is reduced is combined in the order of the group, from the sources themselves, so that results have the
 * same bits as when all members are in one process. Only where the engine was opened for it, MPI forms sums itself.
 */
function prepareExchange(
  spec: CollectiveSpec,
  index: number,
  host: CollectiveHost,
  staging: number | undefined,
  links: ProcessLinks,
): PreparedCollective {
  if (staging === undefined) throw new InternalError(`[mpi] collective ${index} has no staging memory`);
  const group = new MpiGroup(groupOf(spec, host.position), host.position, host.locations);
  const exchange = new Exchange(spec, index, host, staging, links, group);
  switch (spec.kind) {
    case "allReduce": {
      const sum = mpiSum(spec, group, host.locations);
      if (sum !== undefined) return reduceByMpi(exchange, sum);
      return reductionOf(exchange.bytes) === "whole" ? reduceWhole(exchange) : new PartsReduction(exchange);
    }
    case "reduceScatter":
      return reduceScatter(exchange);
    case "allGather":
      return allGather(exchange);
    case "permute":
      return permute(exchange);
    case "allToAll":
      return spec.ragged ? raggedAllToAll(exchange, spec.ragged) : allToAll(exchange);
  }
}
