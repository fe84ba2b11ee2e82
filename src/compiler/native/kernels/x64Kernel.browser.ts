import { InternalError } from "../../../ir/errors.js";
import type * as node from "./x64Kernel.js";

export const writeKernel: typeof node.writeKernel = () => {
  throw new InternalError("[compile] browsers run no machine code of programs");
};
