import { either, need, needIfGiven, oneOf } from "../../../ir/arguments.js";
import { describe } from "../../../ir/describe.js";
import { viewHost } from "../../../ir/dtype.js";
import { TreeError, ValueError } from "../../../ir/errors.js";
import { type FieldsOf, type OptionsOf, optional, schema } from "../../../ir/schema.js";
import { at, range, type Shape, type TensorType } from "../../../ir/shape.js";
import { meshKind } from "../../../spmd/mesh/mesh.js";
import type { HostPart } from "../../../trace/storage.js";
import type { Tensor } from "../../../trace/tensor.js";
import type * as tree from "../../../trace/tree.js";
import {
  type FileView,
  inverse,
  isConvertible,
  permutedView,
  permuteShape,
  readView,
  writeView,
} from "./fileViews.js";
import { checkMatch, type HeldTensor } from "./restoreMatch.js";
import { writeSafetensors } from "./safetensors.js";
import { type StoredDType, storedTypes } from "./safetensorsBytes.js";
import { type FoundTensors, findTensors } from "./safetensorsFiles.js";
import type { StoredTensor } from "./safetensorsHeader.js";
import { download, type NamedLeaf, namedLeaves, type RestoreOptions, rebuild } from "./treeFiles.js";

const exchangeOptions = schema({
  /** Separator of the parts of a path; `.` by default, as in PyTorch. */
  separator: optional("string"),
  /**
   * The name in the file of the leaf at a path such as `Dense_0/kernel`; instead of `separator`. An array of names for
   * a leaf of stacked layers (`nn.scan`): one for every index of its first dim.
   */
  rename: optional<(path: string, shape: Shape) => string | readonly string[]>("function"),
  /**
   * The order of a leaf's dims in the file: `true` swaps the last two, `[3, 2, 0, 1]` stores what `np.transpose(leaf,
   * [3, 2, 0, 1])` gives. PyTorch stores the kernels of `Linear` as `[out, in]`. The shape of stacked layers is that of
   * one layer.
   */
  transpose: optional<(path: string, shape: Shape) => boolean | readonly number[] | undefined>("function"),
});

/** How leaves of a tree map to tensors of a plain safetensors file, for reading and writing. */
export interface ExchangeOptions extends OptionsOf<typeof exchangeOptions> {}

/** A leaf with its view of the file. */
export interface ExchangedLeaf extends NamedLeaf {
  readonly view: FileView;
  /** The order of its dims in the file, if that is another, so that shapes are compared in the order of the leaf. */
  readonly permutation?: readonly number[] | undefined;
  /** Whether the leaf is a part of a tensor, so that shapes are compared as they are in the file. */
  readonly isPart?: boolean;
}

const exportOptions = schema({
  ...exchangeOptions.fields,
  metadata: optional<Readonly<Record<string, string>>>("object", {}),
});

/**
 * Writes the tensors of a tree, whole, to one safetensors file that PyTorch and JAX can read.
 *
 * @example
 * ```ts
 * await train.exportSafetensors("params.safetensors", { dense: { kernel: np.ones([2, 3]) } });
 * [...(await train.readSafetensorsHeader("params.safetensors")).tensors.keys()]; // ["dense.kernel"]
 * ```
 */
export async function exportSafetensors(
  path: string,
  values: unknown,
  given?: OptionsOf<typeof exportOptions>,
): Promise<void> {
  need("path", path, "path", "exportSafetensors");
  const { metadata, ...options } = exportOptions.read(given, "exportSafetensors");
  const caller = "exportSafetensors";
  const arrays = exchangedLeaves(values, options, caller).map(async (leaf) => {
    const { view, type } = leaf;
    const data = await download(leaf, caller);
    const [shape, size] = [type.shape.slice(view.numStacked), data.length / view.names.length];
    return view.names.map((name, i) => {
      const stored = viewHost(type.dtype, new ArrayBuffer(size * data.BYTES_PER_ELEMENT));
      writeView(view, shape, type.dtype, data.subarray(i * size, (i + 1) * size), stored);
      return [name, { dtype: type.dtype, shape: view.fileShape, data: stored }] as const;
    });
  });
  await writeSafetensors(path, (await Promise.all(arrays)).flat(), Object.entries(metadata));
}

/** Options of {@link importSafetensors}. */
export interface ImportOptions<T = unknown> extends ExchangeOptions, RestoreOptions<T> {
  /**
   * How to treat tensors of the files that no leaf reads: an error (the default), `ignore`, or a function that returns
   * true for those to ignore.
   */
  readonly unexpected?: "error" | "ignore" | ((name: string) => boolean);
}

const importOptions = schema<FieldsOf<ImportOptions>>({
  ...exchangeOptions.fields,
  shardings: optional("any"),
  mesh: optional(meshKind),
  missing: optional(oneOf("error", "keep")),
  unexpected: optional(either(oneOf("error", "ignore"), "function")),
});

/**
 * Reads tensors from plain safetensors files into the structure of `target`. Every leaf must be in a file, and every
 * tensor of the files must have a leaf: what is missing, unexpected or of another shape is listed in one error. Only
 * the blocks that the devices of this process hold are read.
 *
 * @param path a file; a folder with the files of a model and their index, `model.safetensors.index.json`, if it has
 *   one; the index itself; or several files
 *
 * @example
 * ```ts
 * await train.exportSafetensors("linear.safetensors", { weight: np.array([[1, 2]]) });
 * const rename = (path: string) => path.replace("kernel", "weight");
 * const options = { rename, transpose: (path: string) => path.endsWith("kernel") };
 * const target = { kernel: np.zeros([2, 1]) };
 * await train.importSafetensors("linear.safetensors", target, options); // { "kernel": [[1], [2]] }
 * ```
 */
export async function importSafetensors<T>(
  path: string | readonly string[],
  target: T,
  options: ImportOptions<T> = {},
): Promise<tree.MapTree<T, TensorType, Tensor>> {
  const caller = "importSafetensors";
  const { unexpected = "error" } = importOptions.read(options, caller) as ImportOptions;
  const isIgnored = typeof unexpected === "function" ? unexpected : () => unexpected === "ignore";
  const wanted = exchangedLeaves(target, options, caller);
  const found = await findTensors(path, caller);
  const file = typeof path === "string" ? path : path.join(", ");
  return importLeaves(target, wanted, found, { ...options, caller, file, isIgnored });
}

/** How {@link importLeaves} reads and reports. */
export interface ImportLeavesOptions<T> extends RestoreOptions<T> {
  readonly caller: string;
  /** The file or folder, for messages. */
  readonly file: string;
  /** Whether a tensor without a leaf may be left out. */
  readonly isIgnored: (name: string) => boolean;
  /** Whether other float types are converted to those of the leaves. */
  readonly converts?: boolean;
}

/** Reads leaves by their views of files, after checking that leaves and tensors match. */
export async function importLeaves<T>(
  target: T,
  wanted: readonly ExchangedLeaf[],
  found: FoundTensors,
  { caller, file, isIgnored, converts = false, ...options }: ImportLeavesOptions<T>,
): Promise<tree.MapTree<T, TensorType, Tensor>> {
  const needed = wanted.flatMap(tensorsOf);
  const held = new Map(
    needed.flatMap(({ leaf, name, permutation }) => {
      const stored = found.tensors.get(name);
      const dtype = converts ? leaf.type.dtype : undefined;
      return stored ? [[leaf.path, heldBy(stored.tensor, permutation, dtype)] as const] : [];
    }),
  );
  const names = new Map(needed.map(({ leaf, name }) => [leaf.path, name]));
  const placed = new Set(names.values());
  checkMatch(
    {
      caller,
      file,
      files: found.files,
      wanted: needed.map(({ leaf }) => leaf),
      held,
      unplaced: [...found.tensors.keys()].filter((name) => !placed.has(name)),
      extra: (name) => !isIgnored(name),
      extraAdvice: '{ unexpected: "ignore" } if they are not needed',
      nameOf: (leaf) => names.get(leaf.path) ?? leaf.path,
    },
    options.missing,
  );
  const parts = ({ view, type }: ExchangedLeaf) =>
    found.tensors.has(at(view.names, 0))
      ? (part?: HostPart, memory?: Uint8Array) => readView(view, found, type, part, memory)
      : undefined;
  return rebuild(target, wanted, { parts }, options, caller);
}

/** The tensors that a leaf needs, as leaves of their own: one for each index of stacked dims. */
function tensorsOf({ view, permutation, isPart, ...leaf }: ExchangedLeaf) {
  const shape = isPart ? view.fileShape : leaf.type.shape.slice(view.numStacked);
  const type = { ...leaf.type, shape };
  return view.names.map((name, i) => ({
    leaf: { ...leaf, type, path: view.numStacked === 0 ? leaf.path : `${leaf.path}[${i}]` },
    name,
    permutation,
  }));
}

const dtypeNames = new Map<string, string>(Object.entries(storedTypes).map(([dtype, type]) => [type, dtype]));

/** @param converted the type to which floats are converted */
function heldBy(
  { type, shape }: StoredTensor,
  permutation: readonly number[] | undefined,
  converted: StoredDType | undefined,
): HeldTensor {
  const stored = dtypeNames.get(type) ?? type;
  const dtype = converted !== undefined && isConvertible(stored, converted) ? converted : stored;
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
    const given: unknown = rename ? rename(path, type.shape) : path.replaceAll("/", separator ?? ".");
    const numStacked = Array.isArray(given) ? 1 : 0;
    const names: unknown[] = Array.isArray(given) ? given : [given];
    if (numStacked === 1 && names.length !== type.shape[0]) {
      throw new TreeError(
        `[${caller}] rename gave ${names.length} names for "${path}" of shape [${type.shape}]: give one for every index of its first dim`,
      );
    }
    for (const name of names) {
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
    }
    const shape = type.shape.slice(numStacked);
    const permutation = permutationOf(transpose?.(path, shape), path, shape, caller);
    const view = permutedView(names as string[], shape, permutation ?? range(shape.length));
    return { ...leaf, permutation, view: { ...view, numStacked } };
  });
}

function permutationOf(
  asked: boolean | readonly number[] | undefined,
  path: string,
  shape: Shape,
  caller: string,
): readonly number[] | undefined {
  if (asked === undefined || asked === false) return undefined;
  const dims = range(shape.length);
  if (asked === true) {
    if (dims.length >= 2) return [...dims.slice(0, -2), dims.length - 1, dims.length - 2];
    throw new TreeError(
      `[${caller}] transpose is true for "${path}", but [${shape}] has ${dims.length} dims, not two to swap`,
    );
  }
  if (asked.length === dims.length && dims.every((dim) => asked.includes(dim))) return asked;
  throw new TreeError(
    `[${caller}] transpose gave [${asked}] for "${path}" of shape [${shape}]: give each of the dims ${dims.join(", ")} once`,
  );
}
