import { InternalError } from "../../ir/errors.js";
import type * as node from "./nativeProducts.js";

/** In browsers all products are WebAssembly, so this is never called. */
export class NativeProducts
  implements Pick<node.NativeProducts, "prepare" | "prepareGroups" | "blas" | "release">
{
  prepare(): never {
    throw new InternalError("[threads] browsers cannot run machine code");
  }

  prepareGroups(): never {
    throw new InternalError("[threads] browsers cannot run machine code");
  }

  blas(): never {
    throw new InternalError("[threads] browsers have no BLAS library");
  }

  release(): void {}
}
