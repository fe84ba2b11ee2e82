import { instanceOf, need } from "../../ir/arguments.js";
import { type DType, isComplex, partType } from "../../ir/dtype.js";
import type { DeviceBuffer } from "../../ir/engine.js";
import { ShardingError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { formatType, type Shape } from "../../ir/shape.js";
import { currentRuntime } from "../../trace/runtime.js";
import { onDevice, Storage } from "../../trace/storage.js";
import { Tensor } from "../../trace/tensor.js";
import { resolveSpec } from "./partitionSpec.js";
import { NamedSharding, placementOn } from "./sharding.js";

/** What stands behind a tensor without values: where it would lie, and no memory. */
class NoStorage extends Storage {
  override get hasValues(): boolean {
    return false;
  }

  override readHeld(caller: string): readonly DeviceBuffer[] {
    throw new ValueError(
      `[${caller}] this ${formatType(this.type)} is a ShapeDtypeStruct, which has a type and no values: pass it to evalShape, makeProgram, costAnalysis, explainSharding or jit(f).lower, and real tensors to functions that compute`,
    );
  }

  override heldBy(): void {}

  override release(): void {}
}

const shapeDtypeStructOptions = schema({
  /** How the tensor would be split over a mesh. */
  sharding: optional({
    ...instanceOf(NamedSharding, "a NamedSharding", "make one with mesh and spec"),
    error: ShardingError,
  }),
});

/** Options of {@link ShapeDtypeStruct}. */
export interface ShapeDtypeStructOptions extends OptionsOf<typeof shapeDtypeStructOptions> {}

/**
 * A tensor that has a shape, a data type, on request a sharding, and no values: for asking what a function would
 * give or cost on tensors that need not exist.
 *
 * @example
 * ```ts
 * evalShape((x: Tensor) => np.sum(x, 0))(ShapeDtypeStruct([1024, 4096], "bfloat16")).shape; // [4096]
 * ```
 */
export function ShapeDtypeStruct(shape: Shape, dtype: DType, options?: ShapeDtypeStructOptions): Tensor {
  need("integers", shape, "shape", "ShapeDtypeStruct");
  const { sharding } = shapeDtypeStructOptions.read(options, "ShapeDtypeStruct");
  const type = { shape: [...shape], dtype };
  const placement = sharding
    ? placementOn(
        sharding.mesh,
        resolveSpec(sharding.spec, sharding.mesh, shape, "ShapeDtypeStruct", "the sharding"),
      )
    : onDevice(currentRuntime().hostEngine);
  if (isComplex(dtype)) {
    const part = () => ShapeDtypeStruct(shape, partType(dtype), options);
    return Tensor.complex(part(), part());
  }
  const buffers = placement.positions.map(() => ({ type }));
  return Tensor.stored(new NoStorage(placement, type, buffers));
}
