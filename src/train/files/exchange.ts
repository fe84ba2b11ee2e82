import { need, needIfGiven } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { TreeError, ValueError } from "../../ir/errors.js";
import { type FieldsOf, type OptionsOf, optional, schema } from "../../ir/schema.js";
import { range, type Shape, type TensorType } from "../../ir/shape.js";
import type { Tensor } from "../../trace/tensor.js";
import type * as tree from "../../trace/tree.js";
import { inverse, permuteHost, permuteShape } from "./permuteHost.js";
import { checkMatch, type HeldTensor } from "./restoreMatch.js";
import { readSafetensors, writeSafetensors } from "./safetensors.js";
import { storedTypes } from "./safetensorsBytes.js";
import { findTensors } from "./safetensorsFiles.js";
import type { StoredTensor } from "./safetensorsHeader.js";
import { download, type NamedLeaf, namedLeaves, type RestoreOptions, rebuild } from "./treeFiles.js";

const exchangeOptions = schema({
  /** Separator of the parts of a path; `.` by default, as in PyTorch. */
  separator: optional("string"),
  /** The name in the file of the leaf at a path such as `Dense_0/kernel`; instead of `separator`. */
  rename: optional<(path: string) => string>("function"),
  /**
   * The order of a leaf's dims in the file: `true` swaps the last two, `[3, 2, 0, 1]` stores what `np.transpose(leaf,
   * [3, 2, 0, 1])` gives. PyTorch stores the kernels of `Linear` as `[out, in]`.
   */
  transpose: optional<(path: string, shape: Shape) => boolean | readonly number[] | undefined>("function"),
});

/** How leaves of a tree map to tensors of a plain safetensors file, for reading and writing. */
export interface ExchangeOptions extends OptionsOf<typeof exchangeOptions> {}

/** A leaf with its name and layout in the file. */
interface ExchangedLeaf extends NamedLeaf {
  readonly name: string;
  readonly permutation: readonly number[] | undefined;
}

const exportOptions = schema({
  ...exchangeOptions.fields,
  metadata: optional<Readonly<Record<string, string>>>("object", {}),
});

/** Writes the tensors of a tree, whole, to one safetensors file that PyTorch and JAX can read. */
export async function exportSafetensors(
  path: string,
  values: unknown,
  given?: OptionsOf<typeof exportOptions>,
): Promise<void> {
  need("path", path, "path", "exportSafetensors");
  const { metadata, ...options } = exportOptions.read(given, "exportSafetensors");
  const caller = "exportSafetensors";
  const arrays = exchangedLeaves(values, options, caller).map(async (leaf) => {
    const { name, type, permutation } = leaf;
    const data = await download(leaf, caller);
    if (!permutation) return [name, { ...type, data }] as const;
    const shape = permuteShape(type.shape, permutation);
    return [name, { ...type, shape, data: permuteHost(type.dtype, data, type.shape, permutation) }] as const;
  });
  await writeSafetensors(path, await Promise.all(arrays), Object.entries(metadata));
}

const importOptions = schema<FieldsOf<ExchangeOptions & RestoreOptions<unknown>>>({
  ...exchangeOptions.fields,
  shardings: optional("any"),
  mesh: optional("any"),
  missing: optional("any"),
});

/**
 * Reads tensors from plain safetensors files into the structure of `target`; tensors that it does not have are ignored,
 * and leaves that no file holds are an error.
 *
 * ```ts
 * const params = await importSafetensors("linear.safetensors", target, {
 *   rename: (path) => path.replace("kernel", "weight"),
 *   transpose: (path) => path.endsWith("kernel"),
 * });
 * ```
 *
 * @param path a file; a folder with the files of a model and their index, `model.safetensors.index.json`, if it has
 *   one; the index itself; or several files
 */
export async function importSafetensors<T>(
  path: string | readonly string[],
  target: T,
  options: ExchangeOptions & RestoreOptions<T> = {},
): Promise<tree.MapTree<T, TensorType, Tensor>> {
  const caller = "importSafetensors";
  importOptions.read(options, caller);
  const wanted = exchangedLeaves(target, options, caller);
  const { tensors, files } = await findTensors(path, caller);
  const held = new Map(
    wanted.flatMap((leaf) => {
      const found = tensors.get(leaf.name);
      return found ? [[leaf.path, heldBy(found.tensor, leaf)] as const] : [];
    }),
  );
  const names = new Map(wanted.map((leaf) => [leaf.path, leaf.name]));
  const placed = new Set(names.values());
  const unplaced = [...tensors.keys()].filter((name) => !placed.has(name));
  const nameOf = (leaf: NamedLeaf) => names.get(leaf.path) ?? leaf.path;
  const file = typeof path === "string" ? path : path.join(", ");
  checkMatch({ caller, file, files, wanted, held, unplaced, partial: true, nameOf }, options.missing);
  const read = async ({ name, type, permutation }: ExchangedLeaf, from: string) => {
    const found = (await readSafetensors(from, [name])).tensors.get(name);
    if (!found)
      throw new TreeError(`[${caller}] ${from} changed while it was read: "${name}" is no longer in it`);
    if (!permutation) return found.data;
    return permuteHost(type.dtype, found.data, found.shape, inverse(permutation));
  };
  const readLeaf = (leaf: ExchangedLeaf) => {
    const found = tensors.get(leaf.name);
    return found && read(leaf, found.file);
  };
  return rebuild(target, wanted, readLeaf, options, caller);
}

const dtypeNames = new Map<string, string>(Object.entries(storedTypes).map(([dtype, type]) => [type, dtype]));

function heldBy({ type, shape }: StoredTensor, { permutation }: ExchangedLeaf): HeldTensor {
  const dtype = dtypeNames.get(type) ?? type;
  if (permutation?.length !== shape.length) return { dtype, shape };
  return { dtype, shape: permuteShape(shape, inverse(permutation)), fileShape: shape };
}

function exchangedLeaves(values: unknown, options: ExchangeOptions, caller: string): ExchangedLeaf[] {
  const { separator, rename, transpose } = options;
  needIfGiven("string", separator, "separator", caller);
  needIfGiven("function", rename, "rename", caller);
  needIfGiven("function", transpose, "transpose", caller);
  if (separator !== undefined && rename) {
    throw new ValueError(`[${caller}] separator and rename both determine names: give only one of them`);
  }
  const paths = new Map<string, string>();
  return namedLeaves(values, caller).map((leaf) => {
    const { path, type } = leaf;
    const name = rename ? rename(path) : path.replaceAll("/", separator ?? ".");
    if (typeof name !== "string" || name === "") {
      throw new TreeError(`[${caller}] the leaf at "${path}" needs a name, got ${describe(name)}`);
    }
    const other = paths.get(name);
    if (other !== undefined) {
      throw new TreeError(
        `[${caller}] the leaves at "${other}" and "${path}" both have the name "${name}" in the file: ` +
          `${rename ? "let rename give" : "use rename to give"} each a different one`,
      );
    }
    paths.set(name, path);
    return { ...leaf, name, permutation: permutationOf(transpose?.(path, type.shape), leaf, caller) };
  });
}

function permutationOf(
  asked: boolean | readonly number[] | undefined,
  { path, type }: NamedLeaf,
  caller: string,
): readonly number[] | undefined {
  if (asked === undefined || asked === false) return undefined;
  const dims = range(type.shape.length);
  if (asked === true) {
    if (dims.length >= 2) return [...dims.slice(0, -2), dims.length - 1, dims.length - 2];
    throw new TreeError(
      `[${caller}] transpose is true for "${path}", but [${type.shape}] has ${dims.length} dims, not two to swap`,
    );
  }
  if (asked.length === dims.length && dims.every((dim) => asked.includes(dim))) return asked;
  throw new TreeError(
    `[${caller}] transpose gave [${asked}] for "${path}" of shape [${type.shape}]: give each of the dims ${dims.join(", ")} once`,
  );
}
