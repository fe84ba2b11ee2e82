import type * as node from "./available.js";

export const nativeGemmHere: typeof node.nativeGemmHere = () => ({
  unavailable: "browsers cannot run machine code",
});
