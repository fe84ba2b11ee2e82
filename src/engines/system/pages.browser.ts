import type * as node from "./pages.js";

export const discardPages: typeof node.discardPages = () => {};
export const wantHugePages: typeof node.wantHugePages = () => {};
