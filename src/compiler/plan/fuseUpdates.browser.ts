import type * as node from "./fuseUpdates.js";

/** Browsers have no machine code, so that updates stay behind the products. */
export const fuseUpdates: typeof node.fuseUpdates = (steps) => [...steps];
