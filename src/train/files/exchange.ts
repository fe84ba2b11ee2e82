import type { TensorType } from "../../ir/shape.js";
import type { Tensor } from "../../trace/tensor.js";
import type * as tree from "../../trace/tree.js";
import { readSafetensors, readSafetensorsHeader, storedTypes, writeSafetensors } from "./safetensors.js";
import { checkAgainst, download, namedLeaves, type RestoreOptions, rebuild } from "./treeFiles.js";

/** How names of tensors in a plain safetensors file follow from their paths. */
export interface ExchangeOptions {
  /** What stands between the parts of a path; `.` by default, as in PyTorch. */
  readonly separator?: string;
}

const rename = (path: string, separator = ".") => path.replaceAll("/", separator);

/** Writes the tensors of a tree, whole, to one safetensors file that PyTorch and JAX can read. */
export async function exportSafetensors(
  path: string,
  values: unknown,
  { separator, metadata }: ExchangeOptions & { readonly metadata?: Readonly<Record<string, string>> } = {},
): Promise<void> {
  const leaves = namedLeaves(values, "exportSafetensors");
  const arrays = leaves.map(async (leaf) => {
    const data = await download(leaf, "exportSafetensors");
    return [rename(leaf.path, separator), { ...leaf.type, data }] as const;
  });
  await writeSafetensors(path, await Promise.all(arrays), Object.entries(metadata ?? {}));
}

/**
 * Reads tensors from a plain safetensors file into the structure of `target`; tensors of the file that have no
 * place in it are left out.
 */
export async function importSafetensors<T>(
  path: string,
  target: T,
  { separator, ...options }: ExchangeOptions & RestoreOptions<T> = {},
): Promise<tree.MapTree<T, TensorType, Tensor>> {
  const wanted = namedLeaves(target, "importSafetensors");
  const { tensors } = await readSafetensorsHeader(path);
  const names = new Map(Object.entries(storedTypes).map(([dtype, type]) => [type as string, dtype]));
  const stored = new Map(
    wanted.flatMap((leaf) => {
      const found = tensors.get(rename(leaf.path, separator));
      if (!found) return [];
      return [[leaf.path, { dtype: names.get(found.type) ?? found.type, shape: found.shape }] as const];
    }),
  );
  checkAgainst(wanted, stored, path, { allowExtra: true });
  return rebuild(
    target,
    wanted,
    async (leaf) => {
      const name = rename(leaf.path, separator);
      const read = await readSafetensors(path, [name]);
      return read.tensors.get(name)?.data ?? new Uint8Array();
    },
    options,
  );
}
