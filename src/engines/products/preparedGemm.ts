import type { GemmBatch } from "../../compiler/steps.js";

/** A matrix product of a program, ready to be called with the addresses of A, B and C, and of the sizes of groups. */
export type PreparedGemm = (a: number, b: number, c: number, sizes?: number) => void;

/** The products of one batch dimension. */
export function repeat(inner: PreparedGemm, { count, strideA, strideB, strideC }: GemmBatch): PreparedGemm {
  return (a, b, c) => {
    for (let i = 0; i < count; i++) inner(a + i * strideA, b + i * strideB, c + i * strideC);
  };
}
