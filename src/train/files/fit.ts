/** Whether the tensors of a file are those that a tree wants, and what to say when they are not. */
import { show } from "../../ir/describe.js";
import { TreeError } from "../../ir/errors.js";
import { formatType, type Shape, sameNumbers } from "../../ir/shape.js";
import { nearestNames } from "./nearestNames.js";
import { type NamedLeaf, type RestoreOptions, requireTensor } from "./treeFiles.js";

/** A tensor of a file as a tree would have it. */
export interface HeldTensor {
  /** The element type, which may be one that no tensor here has. */
  readonly dtype: string;
  readonly shape: Shape;
  /** The shape in the file, where the tree has the dims in another order. */
  readonly fileShape?: Shape;
}

/** The two sides of a restore. */
export interface Fit {
  readonly caller: string;
  readonly file: string;
  /** The files, where there may be several. */
  readonly files?: readonly string[];
  readonly wanted: readonly NamedLeaf[];
  /** What the file holds for the leaves, by path. */
  readonly held: ReadonlyMap<string, HeldTensor>;
  /** What else the file holds, by its names there. */
  readonly unplaced: readonly string[];
  /** Whether the file may hold more than is wanted. */
  readonly partial: boolean;
  /** The name that a leaf has in the file. */
  readonly nameOf: (leaf: NamedLeaf) => string;
}

/** The most differences that an error lists. */
const maxShown = 20;

/** Reports every difference between what a tree wants and what a file holds at once. */
export function checkFit(fit: Fit, missing: RestoreOptions["missing"] = "error"): void {
  const { caller, file, wanted, held, unplaced, partial } = fit;
  if (missing !== "error" && missing !== "keep") {
    throw new TreeError(`[${caller}] missing must be "error" or "keep", got ${show(missing)}`);
  }
  const absent = wanted.filter(({ path }) => !held.has(path));
  if (missing === "keep") for (const leaf of absent) requireTensor(leaf, caller, "keep");
  // A target of which nothing is in the file is the wrong one, whatever may be kept.
  const lost = new Set(missing === "keep" && absent.length < wanted.length ? [] : absent);
  const others = new Map<NamedLeaf, HeldTensor>();
  for (const leaf of wanted) {
    const found = held.get(leaf.path);
    if (found && !fits(leaf, found)) others.set(leaf, found);
  }
  const extra = partial ? [] : unplaced;
  if (lost.size + others.size + extra.length === 0) return;

  const counts: string[] = [];
  const advice = ["use the configuration with which it was saved"];
  if (lost.size > 0) {
    counts.push(`${whereNot(fit)}: ${lost.size} of the tree's ${wanted.length} leaves`);
    if (missing === "error")
      advice.push('{ missing: "keep" } to keep the values that the target has for them');
  }
  if (others.size > 0) counts.push(`of another type: ${others.size}`);
  if (extra.length > 0) {
    counts.push(`without a place: ${extra.length} of the file's ${unplaced.length + held.size}`);
    advice.push("{ partial: true } to load only the leaves of the target");
  }
  throw new TreeError(
    `[${caller}] ${file} does not fit the tree it is loaded into (${counts.join("; ")}):` +
      `${listed(fit, lost, others, extra)}\n${advice.join(", or ")}`,
  );
}

function listed(
  fit: Fit,
  lost: ReadonlySet<NamedLeaf>,
  others: ReadonlyMap<NamedLeaf, HeldTensor>,
  extra: readonly string[],
): string {
  const lines: string[] = [];
  for (const leaf of fit.wanted) {
    if (lines.length === maxShown) break;
    const found = others.get(leaf);
    if (found) lines.push(otherType(leaf, found));
    else if (lost.has(leaf)) lines.push(notThere(leaf, fit));
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

const whereNot = ({ files = [] }: Fit) =>
  files.length > 1 ? `in none of the ${files.length} files` : "not in the file";

function notThere(leaf: NamedLeaf, fit: Fit): string {
  const { nameOf, unplaced } = fit;
  const name = nameOf(leaf);
  const as = name === leaf.path ? "" : ` as "${name}"`;
  const near = nearestNames(name, unplaced).map((other) => `"${other}"`);
  const hint = near.length > 0 ? `; the nearest names there are ${near.join(", ")}` : "";
  return `"${leaf.path}" (${formatType(leaf.type)}) is ${whereNot(fit)}${as}${hint}`;
}

function otherType({ path, type }: NamedLeaf, { dtype, shape, fileShape }: HeldTensor): string {
  const there = fileShape
    ? `${dtype}[${fileShape}] in the file, [${shape}] transposed,`
    : `${dtype}[${shape}] in the file`;
  return `"${path}" is ${there} but must be ${type.dtype}[${type.shape}]`;
}
