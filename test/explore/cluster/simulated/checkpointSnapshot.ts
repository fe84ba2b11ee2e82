/** The state that a checkpoint is made of, where elements are in the memory of the process already. */
import { Tensor } from "../../../../src/trace/tensor.js";
import {
  manifestFormat,
  manifestVersion,
  storeTree,
} from "../../../../src/train/files/checkpoints/checkpointManifest.js";
import type { Snapshot } from "../../../../src/train/files/checkpoints/checkpointSnapshot.js";
import type { StateTensor } from "../training.js";

/** A state by the names of its tensors. */
export type HostState = ReadonlyMap<StateTensor, Float32Array>;

export async function takeSnapshot(step: number, state: HostState) {
  const tree: Record<string, Tensor> = {};
  let bytes = 0;
  const leaves = [...state].map(([{ name, whole }, data]) => {
    const { buffer } = data.slice();
    tree[name] = Tensor.fromHost(whole, data);
    bytes += buffer.byteLength;
    const chunks = [{ bytes: buffer.byteLength, read: async () => new Uint8Array(buffer) }];
    return { path: name, ...whole, spec: [], chunks };
  });
  const snapshot: Snapshot = {
    manifest: {
      format: manifestFormat,
      version: manifestVersion,
      step,
      mesh: null,
      rng: null,
      data: null,
      config: null,
      tree: storeTree(tree),
    },
    leaves,
  };
  return { snapshot, bytes, isCopied: async () => {} };
}

export const leafBytes = ({ shape }: { readonly shape: readonly number[] }): number =>
  shape.reduce((product, size) => product * size, Float32Array.BYTES_PER_ELEMENT);

/** Elements are not copied into a memory that is used again. */
export const partMemory = () => ({ target: new Uint8Array(), block: new Uint8Array() });
