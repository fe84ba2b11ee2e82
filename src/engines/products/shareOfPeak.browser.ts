import type * as node from "./shareOfPeak.js";

/** The processor cannot be asked what it could do. */
export const shareOfPeak: typeof node.shareOfPeak = () => undefined;
