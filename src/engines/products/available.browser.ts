import type * as node from "./available.js";

export const nativeGemmHere: typeof node.nativeGemmHere = () => ({
  unavailable: "browsers run no machine code of programs",
});
