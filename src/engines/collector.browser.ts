import type * as node from "./collector.js";

/** Pages cannot ask for a garbage collection: what is unreachable is released when the browser finds it. */
export const createCollector: typeof node.createCollector = () => ({ letGo: () => {}, collect: () => {} });

export const collectOnDemand: typeof node.collectOnDemand = () => () => {};
