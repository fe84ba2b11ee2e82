import type * as node from "./pinning.js";

export const allowedCores: typeof node.allowedCores = () => [];
export const pinThread: typeof node.pinThread = () => false;
