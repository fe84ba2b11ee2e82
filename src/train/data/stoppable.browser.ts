import type * as node from "./stoppable.js";

/** A page cannot interrupt its own thread: work takes as long as it takes, and the browser offers to end the page. */
export const within: typeof node.within = (_, work) => ({ result: work() });
