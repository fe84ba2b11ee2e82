import { InternalError } from "../../ir/errors.js";
import type * as node from "./kernelCaller.js";

/** In browsers all kernels are WebAssembly, so this is never called. */
export class KernelCaller implements Pick<node.KernelCaller, "bind"> {
  bind(): never {
    throw new InternalError("[threads] browsers cannot run machine code");
  }
}
