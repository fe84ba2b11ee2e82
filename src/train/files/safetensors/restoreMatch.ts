/** Checks that the tensors of a file match the leaves of a target tree, and reports the differences. */
import { show } from "../../../ir/describe.js";
import { TreeError } from "../../../ir/errors.js";
import { formatType, type Shape, sameNumbers } from "../../../ir/shape.js";
import { nearestNames } from "./nearestNames.js";
import { type NamedLeaf, type RestoreOptions, requireTensor } from "./treeFiles.js";

/** A tensor of a file, with its dims in the order of the tree. */
export interface HeldTensor {
  /** The element type, which may be one that tensors do not support. */
  readonly dtype: string;
  readonly shape: Shape;
  /** The shape in the file, if its dims are in another order there. */
  readonly fileShape?: Shape;
}

/** The two sides of a restore: the leaves of the target and the tensors of the file. */
export interface RestoreMatch {
  readonly caller: string;
  readonly file: string;
  /** The files, if there are several. */
  readonly files?: readonly string[];
  readonly wanted: readonly NamedLeaf[];
  /** The tensors that the file holds for leaves, by path. */
  readonly held: ReadonlyMap<string, HeldTensor>;
  /** Names of other tensors in the file. */
  readonly unplaced: readonly string[];
  /** Whether another tensor of the file is an error; none is if this is not given. */
  readonly extra?: (name: string) => boolean;
  /** What to do about such tensors. */
  readonly extraAdvice: string;
  /** The name of a leaf in the file. */
  readonly nameOf: (leaf: NamedLeaf) => string;
}

/** Maximum number of differences listed in an error. */
const maxShown = 20;

/** Throws one error with every difference between the target and the file. */
export function checkMatch(match: RestoreMatch, missing: RestoreOptions["missing"] = "error"): void {
  const { caller, file, wanted, held, unplaced } = match;
  if (missing !== "error" && missing !== "keep") {
    throw new TreeError(`[${caller}] missing must be "error" or "keep", got ${show(missing)}`);
  }
  const absent = wanted.filter(({ path }) => !held.has(path));
  if (missing === "keep") for (const leaf of absent) requireTensor(leaf, caller, "keep");
  // If no leaf of the target is in the file, the target is wrong, even where leaves may be kept.
  const lost = new Set(missing === "keep" && absent.length < wanted.length ? [] : absent);
  const others = new Map<NamedLeaf, HeldTensor>();
  for (const leaf of wanted) {
    const found = held.get(leaf.path);
    if (found && !fits(leaf, found)) others.set(leaf, found);
  }
  const extra = match.extra ? unplaced.filter(match.extra) : [];
  if (lost.size + others.size + extra.length === 0) return;

  const counts: string[] = [];
  const advice = ["use the configuration with which it was saved"];
  if (lost.size > 0) {
    counts.push(`${absence(match)}: ${lost.size} of the tree's ${wanted.length} leaves`);
    if (missing === "error")
      advice.push('{ missing: "keep" } to keep the values that the target has for them');
  }
  if (others.size > 0) counts.push(`of another type: ${others.size}`);
  if (extra.length > 0) {
    counts.push(`without a place: ${extra.length} of the file's ${unplaced.length + held.size}`);
    advice.push(match.extraAdvice);
  }
  throw new TreeError(
    `[${caller}] ${file} does not fit the tree it is loaded into (${counts.join("; ")}):` +
      `${describeDifferences(match, lost, others, extra)}\n${advice.join(", or ")}`,
  );
}

function describeDifferences(
  match: RestoreMatch,
  lost: ReadonlySet<NamedLeaf>,
  others: ReadonlyMap<NamedLeaf, HeldTensor>,
  extra: readonly string[],
): string {
  const lines: string[] = [];
  for (const leaf of match.wanted) {
    if (lines.length === maxShown) break;
    const found = others.get(leaf);
    if (found) lines.push(otherType(leaf, found));
    else if (lost.has(leaf)) lines.push(describeMissing(leaf, match));
  }
  for (const name of extra.slice(0, maxShown - lines.length)) {
    lines.push(`"${name}" of the file has no place in the tree`);
  }
  const more = lost.size + others.size + extra.length - lines.length;
  if (more > 0) lines.push(`… and ${more} more`);
  return lines.map((line) => `\n  ${line}`).join("");
}

const fits = ({ type }: NamedLeaf, found: HeldTensor) =>
  type.dtype === found.dtype && sameNumbers(type.shape, found.shape);

const absence = ({ files = [] }: RestoreMatch) =>
  files.length > 1 ? `in none of the ${files.length} files` : "not in the file";

function describeMissing(leaf: NamedLeaf, match: RestoreMatch): string {
  const { nameOf, unplaced } = match;
  const name = nameOf(leaf);
  const as = name === leaf.path ? "" : ` as "${name}"`;
  const near = nearestNames(name, unplaced).map((other) => `"${other}"`);
  const hint = near.length > 0 ? `; the nearest names there are ${near.join(", ")}` : "";
  return `"${leaf.path}" (${formatType(leaf.type)}) is ${absence(match)}${as}${hint}`;
}

function otherType({ path, type }: NamedLeaf, { dtype, shape, fileShape }: HeldTensor): string {
  const there = fileShape
    ? `${dtype}[${fileShape}] in the file, [${shape}] transposed,`
    : `${dtype}[${shape}] in the file`;
  return `"${path}" is ${there} but must be ${type.dtype}[${type.shape}]`;
}
