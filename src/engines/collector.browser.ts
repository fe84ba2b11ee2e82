import type * as node from "./collector.js";

/** Pages cannot trigger a garbage collection: unreachable objects are released when the browser finds them. */
export const createCollector: typeof node.createCollector = () => ({ letGo: () => {}, collect: () => {} });

export const collectOnDemand: typeof node.collectOnDemand = () => () => {};
