import type * as node from "./shareOfPeak.js";

/** Browsers offer no way to measure the peak of the processor. */
export const shareOfPeak: typeof node.shareOfPeak = () => undefined;
