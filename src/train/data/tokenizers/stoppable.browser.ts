import { repeatsChoices } from "./repeatedChoices.js";
import type * as node from "./stoppable.js";

/** A page cannot interrupt its own thread: work takes as long as it takes. */
export const within: typeof node.within = (_, work) => ({ result: work() });

export const canRunAway: typeof node.canRunAway = ({ source }) => repeatsChoices(source);
