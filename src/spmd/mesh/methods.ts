/** Where a tensor lies, as properties of `Tensor`. Importing this module puts them on the class. */
import { Tensor } from "../../trace/tensor.js";
import { addressableShards, type NamedSharding, type Shard, shardingOf } from "./sharding.js";

declare module "../../trace/tensor.js" {
  interface Tensor {
    /** The mesh and the spec of a concrete tensor; `undefined` when it lies on a single device. */
    readonly sharding: NamedSharding | undefined;
    /** The blocks of a concrete tensor on the devices that this process holds, each as a copy on its device. */
    readonly addressableShards: readonly Shard[];
  }
}

for (const [name, getter] of Object.entries({ sharding: shardingOf, addressableShards })) {
  Object.defineProperty(Tensor.prototype, name, {
    get(this: Tensor) {
      return getter(this);
    },
  });
}
