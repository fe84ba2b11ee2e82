import { InternalError } from "../../ir/errors.js";
import type * as node from "./kernelCode.js";

export const writeKernelCode: typeof node.writeKernelCode = () => {
  throw new InternalError("[compile] browsers cannot run machine code");
};
