import { expect, test } from "vitest";
import { lax, makeProgram, np, printProgram, simplify, type Tensor } from "../../index.js";
import { indicesFirst } from "./indicesFirst.js";

test("what an index is made of comes first, in its order; nothing else moves", () => {
  const store = (all: Tensor, x: Tensor, i: Tensor) =>
    lax.dynamicUpdateIndexInDim(all, np.exp(x), i.mul(2), 0);
  const program = simplify(
    makeProgram((all: Tensor, x: Tensor, i: Tensor) => store(all, x, i))(
      np.ones([4, 3]),
      np.ones([3]),
      np.array(1, "int32"),
    ),
  );
  const ops = ({ eqns }: typeof program) => eqns.map(({ op }) => op).join(" ");
  const sorted = indicesFirst(program);
  expect(ops(program)).toBe("exp mul reshape compare add select dynamicUpdateSlice");
  expect(ops(sorted)).toBe("mul compare add select exp reshape dynamicUpdateSlice");
  expect(printProgram(indicesFirst(sorted))).toBe(printProgram(sorted));
});
