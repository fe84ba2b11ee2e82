import type * as node from "./codeMemory.js";

/** Browsers cannot run our machine code. */
export const CodeMemory: Pick<typeof node.CodeMemory, "open"> = {
  open: () => "browsers cannot run machine code",
};
