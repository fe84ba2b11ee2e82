import type { Tensor } from "../../src/index.js";
import type { CachedModel } from "../../src/train/generation/cachedModel.js";

/** The rows of logits. */
export async function rowsOf(logits: Tensor): Promise<number[][]> {
  const [rows = 0, size = 0] = logits.shape;
  const data = Array.from(await logits.data(), Number);
  return Array.from({ length: rows }, (_, row) => data.slice(row * size, (row + 1) * size));
}

/** Reads more of a slot's text; returns the logits after it. */
export async function readText(
  model: CachedModel,
  slot: number,
  tokens: readonly number[],
): Promise<number[]> {
  const { logits, row } = await model.read(slot, tokens);
  return (await rowsOf(logits))[row] ?? [];
}

/** Reads one more token of some slots; returns the logits of all. */
export async function readNext(model: CachedModel, tokens: ReadonlyMap<number, number>): Promise<number[][]> {
  return rowsOf(await model.next([...tokens.keys()], model.oneEach(tokens)));
}
