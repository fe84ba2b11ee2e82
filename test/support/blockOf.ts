import { type HostTensor, hostTensor, numbersOf } from "../../src/engines/reference/hostTensor.js";
import { blockShape, type MeshShape, type Spec } from "../../src/ir/mesh.js";
import { at, range, sizeOf } from "../../src/ir/shape.js";
import { blockOffsets } from "../../src/trace/storage.js";

/** The block of a tensor that the device at a position of the mesh holds. */
export function blockOf(tensor: HostTensor, spec: Spec, mesh: MeshShape, position: number): HostTensor {
  const { dtype, shape } = tensor.type;
  const block = blockShape(shape, spec, mesh);
  const offsets = blockOffsets(shape, spec, mesh, position);
  const values = numbersOf(tensor);
  const own = range(sizeOf(block)).map((index) => {
    let rest = index;
    const indices = block.map((_, d) => {
      const size = sizeOf(block.slice(d + 1));
      const i = Math.floor(rest / size);
      rest %= size;
      return i + at(offsets, d);
    });
    return at(
      values,
      indices.reduce((flat, i, d) => flat * at(shape, d) + i, 0),
    );
  });
  return hostTensor(dtype, block, own);
}
