import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import type { DType } from "../../ir/dtype.js";
import { formatMesh, type MeshAxis } from "../../ir/mesh.js";

/** The properties of a collective that all members must agree on. */
export interface CollectiveIdentity {
  readonly kind: "allReduce" | "allGather" | "reduceScatter" | "permute" | "allToAll";
  readonly combine: "sum" | "max" | "min";
  readonly dtype: DType;
  readonly axes: readonly MeshAxis[];
  readonly outer: number;
  readonly inner: number;
  readonly size: number;
  readonly permutation: readonly (readonly [source: number, target: number])[];
  /** The number of rows of source and target if tables say which of them go where. */
  readonly ragged?: { readonly rows: number; readonly targetRows: number };
}

/**
 * Op, data type, shape and axes of a collective: `allReduce sum float32[64] over {data: 2}`.
 *
 * @example
 * ```ts
 * const spec = { kind: "allReduce", combine: "sum", dtype: "float32", axes: [{ name: "data", size: 2 }], outer: 1, inner: 64, size: 2, permutation: [] };
 * engines.collectiveText(spec); // allReduce sum float32[64] over {data: 2}
 * ```
 */
export function collectiveText(spec: CollectiveIdentity): string {
  need("object", spec, "spec", "collectiveText");
  const { kind, combine, dtype, axes, outer, inner, size, permutation, ragged } = spec;
  need("list", axes, "the axes", "collectiveText");
  need("string", dtype, "the data type", "collectiveText");
  if (kind === "permute") need("list", permutation, "the permutation", "collectiveText");
  const how = kind === "allReduce" || kind === "reduceScatter" ? ` ${combine}` : "";
  const shape: readonly number[] =
    kind === "reduceScatter" ? [outer, size, inner] : kind === "allToAll" ? [size, inner] : [outer, inner];
  const pairs = kind === "permute" ? ` by ${permutation.map(([from, to]) => `${from}→${to}`).join(" ")}` : "";
  const rows = ragged ? ` of ${describe(ragged.rows)} rows to ${describe(ragged.targetRows)}` : "";
  const dims = shape[0] === 1 && kind !== "reduceScatter" ? shape.slice(1) : shape;
  return `${kind}${how} ${dtype}[${dims.map(describe)}] over ${formatMesh({ axes })}${pairs}${rows}`;
}

/** The digits of a program's fingerprint that messages show. */
const SHOWN_DIGITS = 16;

/** A program as processes that have diverged name it: `"train" 0123456789abcdef`. */
export function describeVersion({ name, fingerprint }: { name: string; fingerprint: string }): string {
  return `${JSON.stringify(name)} ${fingerprint.slice(0, SHOWN_DIGITS)}`;
}

/**
 * A signed 32-bit hash of a collective; different collectives have different hashes, barring collisions.
 *
 * @example
 * ```ts
 * const spec = { kind: "allReduce", combine: "sum", dtype: "float32", axes: [{ name: "data", size: 2 }], outer: 1, inner: 64, size: 2, permutation: [] };
 * engines.fingerprintOf(spec) === engines.fingerprintOf({ ...spec, inner: 65 }); // false
 * ```
 */
export function fingerprintOf(spec: CollectiveIdentity): number {
  need("object", spec, "spec", "fingerprintOf");
  // FNV-1a over UTF-16 units.
  let hash = 0x811c9dc5;
  const text = collectiveText(spec);
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash | 0;
}
