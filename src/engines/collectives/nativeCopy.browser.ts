import type * as node from "./nativeCopy.js";

export const nativeCopy: typeof node.nativeCopy = () => undefined;
