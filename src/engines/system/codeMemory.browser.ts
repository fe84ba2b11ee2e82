import type * as node from "./codeMemory.js";

/** Browsers run no machine code of ours. */
export const CodeMemory: Pick<typeof node.CodeMemory, "open"> = {
  open: () => "browsers run no machine code of programs",
};
