/** Matrices for tests of linear algebra, and a comparison that takes complex numbers. */
import { np, type Tensor } from "shardwise";
import { expectClose as expectNumbers } from "./goldens.js";

export const a = np.array([
  [1, 2, 3, 4],
  [1, 4, 2, 3],
  [3, 2, 1, 4],
  [2, 3, 2, 2],
]);

/** Its eigenvalues are two pairs of conjugates. */
export const b = np.array([
  [0, 3, 3, 1],
  [0, 1, 2, -4],
  [2, 0, 1, 5],
  [-3, 1, 2, 2],
]);

const near = { rtol: 1e-4, atol: 1e-4 };

/** Compares tensors, complex ones by their parts. */
export async function expectClose(
  got: Tensor,
  want: Tensor | readonly unknown[],
  tolerance = near,
): Promise<void> {
  const wanted = "shape" in want ? want : np.array(want as number[]);
  if (got.dtype === "complex64" || wanted.dtype === "complex64") {
    await expectNumbers(np.real(got), np.real(wanted), tolerance);
    await expectNumbers(np.imag(got), np.imag(wanted), tolerance);
  } else await expectNumbers(got, wanted, tolerance);
}
