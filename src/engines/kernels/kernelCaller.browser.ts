import { InternalError } from "../../ir/errors.js";
import type * as node from "./kernelCaller.js";

/** Kernels are WebAssembly, so that nobody asks for others. */
export class KernelCaller implements Pick<node.KernelCaller, "bind"> {
  bind(): never {
    throw new InternalError("[threads] browsers run no machine code of programs");
  }
}
