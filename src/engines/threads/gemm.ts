import type { GemmStep } from "../../compiler/steps.js";
import { at } from "../../ir/shape.js";
import type { WorkerSetup } from "./messages.js";

/** Plain loops; right for every layout. */
export function prepareGemm(
  setup: WorkerSetup,
): (step: GemmStep) => (a: number, b: number, c: number) => void {
  const { buffer } = at(setup.layout.memories, setup.device);
  return (step) => {
    const double = step.dtype === "float64";
    const data = double ? new Float64Array(buffer) : new Float32Array(buffer);
    const size = double ? 8 : 4;
    const { m, n, k, transposeA, transposeB, lda, ldb, ldc, alpha, beta, batch } = step;
    const one = (a: number, b: number, c: number) => {
      for (let i = 0; i < m; i++) {
        for (let j = 0; j < n; j++) {
          let sum = 0;
          for (let l = 0; l < k; l++) {
            const x = data[a / size + (transposeA ? l * lda + i : i * lda + l)] ?? 0;
            const y = data[b / size + (transposeB ? j * ldb + l : l * ldb + j)] ?? 0;
            sum += x * y;
          }
          const at = c / size + i * ldc + j;
          data[at] = alpha * sum + (beta === 0 ? 0 : beta * (data[at] ?? 0));
        }
      }
    };
    const nest = (dim: number, a: number, b: number, c: number): void => {
      const loop = batch[dim];
      if (loop === undefined) {
        one(a, b, c);
        return;
      }
      for (let i = 0; i < loop.count; i++) {
        nest(dim + 1, a + i * loop.strideA, b + i * loop.strideB, c + i * loop.strideC);
      }
    };
    return (a, b, c) => nest(0, a, b, c);
  };
}
