import { grad, jit, lax, np, type Tensor, vmap } from "shardwise";
import { describe, expect, test } from "vitest";

const line = np.arange(5);
const table = np.arange(6).reshape([2, 3]);

/** What JAX gives for the same arguments. */
const cases: readonly (readonly [string, () => Tensor, unknown])[] = [
  ["delete one", () => np.delete(line, 1), [0, 2, 3, 4]],
  ["delete the last", () => np.delete(line, -1), [0, 1, 2, 3]],
  ["delete columns", () => np.delete(table, [0, 2], 1), [[1], [4]]],
  ["delete of the flat tensor", () => np.delete(table, [0, 4, 4]), [1, 2, 3, 5]],
  ["insert one", () => np.insert(line, 2, 7), [0, 1, 7, 2, 3, 4]],
  ["insert several at one place", () => np.insert(line, 5, np.array([8, 9])), [0, 1, 2, 3, 4, 8, 9]],
  ["insert at several places", () => np.insert(line, [1, 3], np.array([7, 8])), [0, 7, 1, 2, 8, 3, 4]],
  ["insert at places out of order", () => np.insert(line, [3, 1], np.array([7, 8])), [0, 8, 1, 2, 7, 3, 4]],
  [
    "insert a column",
    () => np.insert(table, 1, np.array([8, 9]), 1),
    [
      [0, 8, 1, 2],
      [3, 9, 4, 5],
    ],
  ],
  [
    "insert one value in columns",
    () => np.insert(table, [0, 3], 9, 1),
    [
      [9, 0, 1, 2, 9],
      [9, 3, 4, 5, 9],
    ],
  ],
];

describe("copies without slices or with more", () => {
  test.each(cases)("%s, alone and compiled", async (_name, run, want) => {
    expect(await run().js()).toEqual(want);
    expect(await jit(run)().js()).toEqual(want);
  });

  test("have gradients and map over batches", async () => {
    const f = (x: Tensor) => np.sum(np.square(np.insert(np.delete(x, 0), [1], x.get(0))));
    const x = np.array([1, 2, 3]);
    expect(await grad(f)(x).js()).toEqual([2, 4, 6]);
    const rows = vmap((row: Tensor) => np.delete(row, 1))(table);
    expect(await rows.js()).toEqual([
      [0, 2],
      [3, 5],
    ]);
  });

  test("refuse positions and values that do not fit", () => {
    expect(() => np.delete(line, 5)).toThrow(/\[delete\] position 5 is out of range: use -5 to 4/);
    expect(() => np.insert(line, 6, 1)).toThrow(/\[insert\] position 6 is out of range: use -5 to 5/);
    expect(() => np.insert(table, [0], np.array([1, 2, 3]), 1)).toThrow(
      /\[insert\] values of \[3\] do not fit/,
    );
  });
});

test("polyfit finds the polynomial through points, for columns and with a gradient", async () => {
  const x = np.array([0, 1, 2, 3]);
  const squares = np.array([1, 2, 5, 10]);
  const near = async (got: Tensor, want: Tensor) =>
    expect(await np.allclose(got, want, { atol: 1e-4 }).item()).toBe(1);
  await near(np.polyfit(x, squares, 2), np.array([1, 0, 1]));
  // The line that is nearest to 1, 2, 5, 10.
  await near(np.polyfit(x, squares, 1), np.array([3, 0]));
  await near(
    np.polyfit(x, np.stack([squares, x], 1), 2),
    np.array([
      [1, 0],
      [0, 1],
      [1, 0],
    ]),
  );
  // The slope is a weighted sum of the values: (x − 1.5) / 5.
  const slope = grad((y: Tensor) => np.polyfit(x, y, 1).get(0))(squares);
  await near(slope, np.array([-0.3, -0.1, 0.1, 0.3]));
  const points = lax.complex(np.array([0, 1, 2, 0.5]), np.array([1, 0, -1, 0]));
  const found = np.polyfit(points, lax.complex(np.array([1, 0, 3, 4]), np.array([0, 2, 0, 0])), 1);
  await near(np.real(found), np.array([0.23880576, 1.7910454]));
  await near(np.imag(found), np.array([0.53731346, 0.02985075]));
});
