import { grad, jit, np, scipy, type Tensor } from "shardwise";
import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";

const { RegularGridInterpolator } = scipy.interpolate;
const grid = [np.array([0, 1, 3]), np.array([-1, 0.5, 2, 4])];
const values = np.sin(np.arange(12, "float32")).reshape(3, 4);
const points = np.array([
  [0.5, 1.7],
  [2.2, 0.1],
  [1, 2],
  [-0.1, 0],
  [3, 4],
  [0, -1],
  [2, 9],
]);
const tolerance = { rtol: 1e-5, atol: 1e-6 };
const nan = Number.NaN;

describe("a grid interpolated", () => {
  test("has JAX's values between its points, at the nearest one, and outside", async () => {
    const at = (options?: scipy.interpolate.RegularGridOptions) =>
      jit((x: Tensor) => RegularGridInterpolator(grid, values, options)(x))(points);
    const inside = [0.2402074, -0.02238056, -0.2794155];
    await expectClose(at(), [...inside, nan, -0.9999902, 0, nan], tolerance);
    await expectClose(
      at({ method: "nearest" }),
      [0.9092974, 0.4121185, -0.2794155, nan, -0.9999902, 0, nan],
      tolerance,
    );
    await expectClose(at({ fillValue: null }), [...inside, 0.7062338, -0.9999902, 0, 0.4290395], tolerance);
  });

  test("has JAX's derivatives by points and by values", async () => {
    const weights = np.arange(7, "float32");
    const found = (x: Tensor, v: Tensor) => RegularGridInterpolator(grid, v, { fillValue: null })(x);
    await expectClose(
      grad((x: Tensor) => np.sum(found(x, values)))(points).reshape(14),
      [
        -1.311049, 0.2491117, 0.7355371, -0.2847951, -1.188713, 0.4530059, -1.452531, 0.6305535, -0.8284884,
        -0.2279845, -0.7568025, 0.5609806, -2.568952, 0.1201082,
      ],
      tolerance,
    );
    await expectClose(
      grad((v: Tensor) => np.sum(found(points, v).mul(weights)))(values).reshape(12),
      [6.1, 2.2, 0, 0, 0.00666666, 0.0933333, -5.5, 10.5, 0.16, 0.44, -7.5, 14.5],
      { rtol: 1e-5, atol: 5e-6 },
    );
  });

  test("interpolates dims beyond those of the grid together", async () => {
    const rows = RegularGridInterpolator(grid.slice(0, 1), values, { fillValue: 7 });
    expect(rows(points.get(np.s(), 0)).shape).toEqual([7, 4]);
    await expectClose(
      rows(points.get(np.s(3, 5), np.s(0, 1))).reshape(8),
      [7, 7, 7, 7, 0.9893582, 0.4121185, -0.5440211, -0.9999902],
      tolerance,
    );
    expect(RegularGridInterpolator(grid, values)(points.reshape(7, 1, 2)).shape).toEqual([7, 1]);
  });

  test("refuses coordinates that do not fit", () => {
    expect(() => RegularGridInterpolator([...grid].reverse(), values)).toThrow(
      "values of f32[3,4] need a vector of at least 2 coordinates for each of their first dims, got f32[4], f32[3]",
    );
    expect(() => RegularGridInterpolator(grid, values)(np.ones([2, 3]))).toThrow(
      "points of f32[2,3] must have 2 coordinates in their last dim",
    );
  });
});
