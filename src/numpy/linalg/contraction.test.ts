import { describe, expect, test } from "vitest";
import { expectClose, HostArray } from "../../../test/support/goldens.js";
import { b, c, f, g, h, i, j, m, type Row, t, testRows, v } from "../../../test/support/jaxRows.js";
import { DimError, grad, makeProgram, ShapeError, type Tensor, ValueError } from "../../index.js";
import * as np from "../index.js";
import { parseSubscripts } from "./einsum.js";

const products: readonly Row[] = [
  ["np.matmul(f, f.T)", () => np.matmul(f, f.T), "float32", [2, 2], [6.3125, -3.6875, -3.6875, 9.8125]],
  ["np.matmul(f, v)", () => np.matmul(f, v), "float32", [2], [-1, 4.75]],
  ["np.matmul(v, f.T)", () => np.matmul(v, f.T), "float32", [2], [-1, 4.75]],
  ["np.matmul(v, v)", () => np.matmul(v, v), "float32", [], [5.25]],
  [
    "np.matmul(t, t.swapaxes(1, 2))",
    () => np.matmul(t, t.swapaxes(1, 2)),
    "float32",
    [2, 3, 3],
    [
      0.21875, 0.59375, 0.96875, 0.59375, 1.96875, 3.34375, 0.96875, 3.34375, 5.71875, 11.46875, 14.84375,
      18.21875, 14.84375, 19.21875, 23.59375, 18.21875, 23.59375, 28.96875,
    ],
  ],
  [
    "np.matmul(t, np.ones([4, 2]))",
    () => np.matmul(t, np.ones([4, 2])),
    "float32",
    [2, 3, 2],
    [0.75, 0.75, 2.75, 2.75, 4.75, 4.75, 6.75, 6.75, 8.75, 8.75, 10.75, 10.75],
  ],
  [
    "np.matmul(f, np.swapaxes(t, 1, 2).reshape(2, 4, 3).mT.mul(0.5))",
    () => np.matmul(f, np.swapaxes(t, 1, 2).reshape(2, 4, 3).mT.mul(0.5)),
    "float32",
    [2, 2, 4],
    [
      1.0625, 1.109375, 1.15625, 1.203125, 0.0625, 0.234375, 0.40625, 0.578125, 1.625, 1.671875, 1.71875,
      1.765625, 2.125, 2.296875, 2.46875, 2.640625,
    ],
  ],
  [
    "np.matmul(t.reshape(2, 1, 3, 4), t.reshape(1, 2, 4, 3))",
    () => np.matmul(t.reshape(2, 1, 3, 4), t.reshape(1, 2, 4, 3)),
    "float32",
    [2, 2, 3, 3],
    [
      0.65625, 0.75, 0.84375, 1.78125, 2.125, 2.46875, 2.90625, 3.5, 4.09375, 1.78125, 1.875, 1.96875,
      5.90625, 6.25, 6.59375, 10.03125, 10.625, 11.21875, 4.03125, 4.875, 5.71875, 5.15625, 6.25, 7.34375,
      6.28125, 7.625, 8.96875, 14.15625, 15, 15.84375, 18.28125, 19.375, 20.46875, 22.40625, 23.75, 25.09375,
    ],
  ],
  [
    "np.matmul(t.reshape(2, 1, 3, 4), np.arange(40).reshape(5, 4, 2))",
    () => np.matmul(t.reshape(2, 1, 3, 4), np.arange(40).reshape(5, 4, 2)),
    "float32",
    [2, 5, 3, 2],
    [
      3.5, 4.25, 9.5, 12.25, 15.5, 20.25, 9.5, 10.25, 31.5, 34.25, 53.5, 58.25, 15.5, 16.25, 53.5, 56.25,
      91.5, 96.25, 21.5, 22.25, 75.5, 78.25, 129.5, 134.25, 27.5, 28.25, 97.5, 100.25, 167.5, 172.25, 21.5,
      28.25, 27.5, 36.25, 33.5, 44.25, 75.5, 82.25, 97.5, 106.25, 119.5, 130.25, 129.5, 136.25, 167.5, 176.25,
      205.5, 216.25, 183.5, 190.25, 237.5, 246.25, 291.5, 302.25, 237.5, 244.25, 307.5, 316.25, 377.5, 388.25,
    ],
  ],
  ["np.matmul(i, j)", () => np.matmul(i, j), "int32", [2], [49, -28]],
  ["np.matmul(b, c)", () => np.matmul(b, c), "bool", [2], [1, 0]],
  [
    "np.matmul(np.ones([3, 1, 2, 3]), np.ones([2, 3, 2]))",
    () => np.matmul(np.ones([3, 1, 2, 3]), np.ones([2, 3, 2])),
    "float32",
    [3, 2, 2, 2],
    [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3],
  ],
  [
    "np.matmul(v, np.ones([2, 3, 2]))",
    () => np.matmul(v, np.ones([2, 3, 2])),
    "float32",
    [2, 2],
    [-0.5, -0.5, -0.5, -0.5],
  ],
  [
    "np.matmul(t, np.ones([4]))",
    () => np.matmul(t, np.ones([4])),
    "float32",
    [2, 3],
    [0.75, 2.75, 4.75, 6.75, 8.75, 10.75],
  ],
  [
    `np.matmul(h.reshape(2, 2), h.reshape(2, 2), { preferredElementType: "float32" })`,
    () => np.matmul(h.reshape(2, 2), h.reshape(2, 2), { preferredElementType: "float32" }),
    "float32",
    [2, 2],
    [-672.75, -3.397522, 453.00293, -674.9999],
  ],
  [
    "np.matmul(h.reshape(2, 2), h.reshape(2, 2))",
    () => np.matmul(h.reshape(2, 2), h.reshape(2, 2)),
    "bfloat16",
    [2, 2],
    [-672, -3.390625, 454, -676],
  ],
  ["np.dot(f, v)", () => np.dot(f, v), "float32", [2], [-1, 4.75]],
  ["np.dot(2, f)", () => np.dot(2, f), "float32", [2, 3], [-3, 0.5, 4, 6, -1.5, 1]],
  ["np.vdot(f, g)", () => np.vdot(f, g), "float32", [], [3.875]],
  ["np.vecdot(f, g)", () => np.vecdot(f, g), "float32", [2], [-2.25, 6.125]],
  ["np.vecdot(f, v)", () => np.vecdot(f, v), "float32", [2], [-1, 4.75]],
  ["np.vecdot(f, g, 0)", () => np.vecdot(f, g, 0), "float32", [3], [3.75, 2, -1.875]],
  ["np.inner(f, g)", () => np.inner(f, g), "float32", [2, 2], [-2.25, -2.25, -0.5, 6.125]],
  ["np.outer(v, j)", () => np.outer(v, j), "float32", [3, 3], [3, -2, 4, -6, 4, -8, 1.5, -1, 2]],
  [
    "np.kron(f, v)",
    () => np.kron(f, v),
    "float32",
    [2, 9],
    [-1.5, 3, -0.75, 0.25, -0.5, 0.125, 2, -4, 1, 3, -6, 1.5, -0.75, 1.5, -0.375, 0.5, -1, 0.25],
  ],
  [
    "np.kron(np.eye(2), g)",
    () => np.kron(np.eye(2), g),
    "float32",
    [4, 6],
    [0.5, 2, -1, 0, 0, -0, 1.5, -2, 0.25, 0, -0, 0, 0, 0, -0, 0.5, 2, -1, 0, -0, 0, 1.5, -2, 0.25],
  ],
  ["np.tensordot(f, g)", () => np.tensordot(f, g), "float32", [], [3.875]],
  [
    "np.tensordot(t, t, [[0, 2], [0, 2]])",
    () =>
      np.tensordot(t, t, [
        [0, 2],
        [0, 2],
      ]),
    "float32",
    [3, 3],
    [11.6875, 15.4375, 19.1875, 15.4375, 21.1875, 26.9375, 19.1875, 26.9375, 34.6875],
  ],
  [
    "np.tensordot(v, v, 0)",
    () => np.tensordot(v, v, 0),
    "float32",
    [3, 3],
    [1, -2, 0.5, -2, 4, -1, 0.5, -1, 0.25],
  ],
  [
    "np.tensordot(f, m, 1)",
    () => np.tensordot(f, m, 1),
    "float32",
    [2, 3],
    [12.75, 13.5, 14.25, 0.75, 3.5, 6.25],
  ],
  [
    "np.tensordot(f, m, [1, -1])",
    () => np.tensordot(f, m, [1, -1]),
    "float32",
    [2, 3],
    [4.25, 6.5, 8.75, 0.25, 8.5, 16.75],
  ],
  ["np.cross(f, v)", () => np.cross(f, v), "float32", [2, 3], [4.125, 2.75, 2.75, 0.625, -1, -5.25]],
  [
    "np.dot(t, np.ones([2, 4, 2]))",
    () => np.dot(t, np.ones([2, 4, 2])),
    "float32",
    [2, 3, 2, 2],
    [
      0.75, 0.75, 0.75, 0.75, 2.75, 2.75, 2.75, 2.75, 4.75, 4.75, 4.75, 4.75, 6.75, 6.75, 6.75, 6.75, 8.75,
      8.75, 8.75, 8.75, 10.75, 10.75, 10.75, 10.75,
    ],
  ],
];

const sums: readonly Row[] = [
  [
    `np.einsum("ij,jk->ik", f, m)`,
    () => np.einsum("ij,jk->ik", f, m),
    "float32",
    [2, 3],
    [12.75, 13.5, 14.25, 0.75, 3.5, 6.25],
  ],
  [
    `np.einsum("ij,jk", f, m)`,
    () => np.einsum("ij,jk", f, m),
    "float32",
    [2, 3],
    [12.75, 13.5, 14.25, 0.75, 3.5, 6.25],
  ],
  [`np.einsum("ij->ji", f)`, () => np.einsum("ij->ji", f), "float32", [3, 2], [-1.5, 3, 0.25, -0.75, 2, 0.5]],
  [`np.einsum("ij", f)`, () => np.einsum("ij", f), "float32", [2, 3], [-1.5, 0.25, 2, 3, -0.75, 0.5]],
  [`np.einsum("ba", f)`, () => np.einsum("ba", f), "float32", [3, 2], [-1.5, 3, 0.25, -0.75, 2, 0.5]],
  [`np.einsum("ij->", f)`, () => np.einsum("ij->", f), "float32", [], [3.5]],
  [`np.einsum("ij->j", f)`, () => np.einsum("ij->j", f), "float32", [3], [1.5, -0.5, 2.5]],
  [`np.einsum("ii", m)`, () => np.einsum("ii", m), "float32", [], [12]],
  [`np.einsum("ii->i", m)`, () => np.einsum("ii->i", m), "float32", [3], [0, 4, 8]],
  [`np.einsum("i,i", v, v)`, () => np.einsum("i,i", v, v), "float32", [], [5.25]],
  [
    `np.einsum("i,j->ij", v, v)`,
    () => np.einsum("i,j->ij", v, v),
    "float32",
    [3, 3],
    [1, -2, 0.5, -2, 4, -1, 0.5, -1, 0.25],
  ],
  [`np.einsum("i,i->i", v, v)`, () => np.einsum("i,i->i", v, v), "float32", [3], [1, 4, 0.25]],
  [
    `np.einsum("bij,bkj->bik", t, t)`,
    () => np.einsum("bij,bkj->bik", t, t),
    "float32",
    [2, 3, 3],
    [
      0.21875, 0.59375, 0.96875, 0.59375, 1.96875, 3.34375, 0.96875, 3.34375, 5.71875, 11.46875, 14.84375,
      18.21875, 14.84375, 19.21875, 23.59375, 18.21875, 23.59375, 28.96875,
    ],
  ],
  [`np.einsum("...j,j", f, v)`, () => np.einsum("...j,j", f, v), "float32", [2], [-1, 4.75]],
  [
    `np.einsum("...ij,...jk->...ik", t, np.ones([4, 2]))`,
    () => np.einsum("...ij,...jk->...ik", t, np.ones([4, 2])),
    "float32",
    [2, 3, 2],
    [0.75, 0.75, 2.75, 2.75, 4.75, 4.75, 6.75, 6.75, 8.75, 8.75, 10.75, 10.75],
  ],
  [
    `np.einsum("i...,i...->...", t, t)`,
    () => np.einsum("i...,i...->...", t, t),
    "float32",
    [3, 4],
    [2.25, 2.65625, 3.125, 3.65625, 4.25, 4.90625, 5.625, 6.40625, 7.25, 8.15625, 9.125, 10.15625],
  ],
  [
    `np.einsum("...", t)`,
    () => np.einsum("...", t),
    "float32",
    [2, 3, 4],
    [
      0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875, 2,
      2.125, 2.25, 2.375, 2.5, 2.625, 2.75, 2.875,
    ],
  ],
  [
    `np.einsum("b...->...", t)`,
    () => np.einsum("b...->...", t),
    "float32",
    [3, 4],
    [1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.25, 3.5, 3.75, 4, 4.25],
  ],
  [
    `np.einsum("ij,jk,kl->il", f, m, m)`,
    () => np.einsum("ij,jk,kl->il", f, m, m),
    "float32",
    [2, 3],
    [126, 166.5, 207, 48, 58.5, 69],
  ],
  [
    `np.einsum("ij,kj,lj->ikl", f, g, f)`,
    () => np.einsum("ij,kj,lj->ikl", f, g, f),
    "float32",
    [2, 2, 2],
    [-2.75, -3.625, 4.25, -6.125, -3.625, 5.375, -6.125, 12.4375],
  ],
  [
    `np.einsum("abc,cd,bd->a", t, np.ones([4, 5]), np.ones([3, 5]))`,
    () => np.einsum("abc,cd,bd->a", t, np.ones([4, 5]), np.ones([3, 5])),
    "float32",
    [2],
    [41.25, 131.25],
  ],
  [
    `np.einsum("ij , jk -> ki", f, m)`,
    () => np.einsum("ij , jk -> ki", f, m),
    "float32",
    [3, 2],
    [12.75, 0.75, 13.5, 3.5, 14.25, 6.25],
  ],
  [`np.einsum("ij,ij", i, i)`, () => np.einsum("ij,ij", i, i), "int32", [], [151]],
  [`np.einsum("ij,j", b, c)`, () => np.einsum("ij,j", b, c), "bool", [2], [1, 0]],
  [
    `np.einsum("iij->j", np.arange(12).reshape(2, 2, 3))`,
    () => np.einsum("iij->j", np.arange(12).reshape(2, 2, 3)),
    "int32",
    [3],
    [9, 11, 13],
  ],
  [
    `np.einsum("aab,b->a", np.arange(12).reshape(2, 2, 3), v)`,
    () => np.einsum("aab,b->a", np.arange(12).reshape(2, 2, 3), v),
    "float32",
    [2],
    [-1, -5.5],
  ],
  [
    `np.einsum("ij,ij->ij", f, np.ones([1, 3]))`,
    () => np.einsum("ij,ij->ij", f, np.ones([1, 3])),
    "float32",
    [2, 3],
    [-1.5, 0.25, 2, 3, -0.75, 0.5],
  ],
  [`np.einsum(",i->i", 2, v)`, () => np.einsum(",i->i", 2, v), "float32", [3], [2, -4, 1]],
  [
    `np.einsum("ij->...ji", f)`,
    () => np.einsum("ij->...ji", f),
    "float32",
    [3, 2],
    [-1.5, 3, 0.25, -0.75, 2, 0.5],
  ],
  [
    `np.einsum("A,a->Aa", v, v)`,
    () => np.einsum("A,a->Aa", v, v),
    "float32",
    [3, 3],
    [1, -2, 0.5, -2, 4, -1, 0.5, -1, 0.25],
  ],
  [
    `np.einsum("ijk->ikj", t)`,
    () => np.einsum("ijk->ikj", t),
    "float32",
    [2, 4, 3],
    [
      0, 0.5, 1, 0.125, 0.625, 1.125, 0.25, 0.75, 1.25, 0.375, 0.875, 1.375, 1.5, 2, 2.5, 1.625, 2.125, 2.625,
      1.75, 2.25, 2.75, 1.875, 2.375, 2.875,
    ],
  ],
  [
    `np.einsum("...ii->...i", np.arange(8).reshape(2, 2, 2))`,
    () => np.einsum("...ii->...i", np.arange(8).reshape(2, 2, 2)),
    "int32",
    [2, 2],
    [0, 3, 4, 7],
  ],
  [
    `np.einsum("ij,kl->jl", f, m)`,
    () => np.einsum("ij,kl->jl", f, m),
    "float32",
    [3, 3],
    [13.5, 18, 22.5, -4.5, -6, -7.5, 22.5, 30, 37.5],
  ],
  [
    `np.einsum("i,i", h, h, { preferredElementType: "float32" })`,
    () => np.einsum("i,i", h, h, { preferredElementType: "float32" }),
    "float32",
    [],
    [90007.31],
  ],
  [
    `np.einsum("i,ij,j", h, np.ones([4, 4], "bfloat16"), h, { preferredElementType: "float32" })`,
    () => np.einsum("i,ij,j", h, np.ones([4, 4], "bfloat16"), h, { preferredElementType: "float32" }),
    "float32",
    [],
    [89556.55],
  ],
  [`np.einsum("i,i", h, np.ones([4]))`, () => np.einsum("i,i", h, np.ones([4])), "float32", [], [299.26]],
];

describe("products", () => {
  testRows(products);

  test("matmul names the sizes that differ", () => {
    expect(() => np.matmul(f, f)).toThrow(ShapeError);
    expect(() => np.matmul(f, f)).toThrow(
      "[matmul] f32[2,3] and f32[2,3] cannot be multiplied: dim 1 of the left has size 3, dim 0 of the right 2",
    );
    expect(() => np.matmul(f, 2)).toThrow("use multiply for scalars");
    expect(() => np.matmul(np.ones([2, 3, 4]), np.ones([3, 4, 5]))).toThrow(
      "[matmul] shapes [2] and [3] do not broadcast",
    );
  });

  test("a weight without batch dims is not repeated for every batch element", () => {
    const program = makeProgram((x: Tensor, weight: Tensor) => np.matmul(x, weight))(
      np.ones([8, 5, 4]),
      np.ones([4, 3]),
    );
    expect(program.eqns.map(({ op }) => op)).toEqual(["dotGeneral"]);
  });

  test("tensordot checks the dims it pairs", () => {
    expect(() => np.tensordot(f, m, 3)).toThrow(
      "[tensordot] cannot pair 3 dims of f32[2,3] and f32[3,3]: use 0 to 2",
    );
    expect(() => np.tensordot(f, m, [[0, 1], [0]])).toThrow(DimError);
    expect(() => np.tensordot(f, m, [0, 0])).toThrow(ShapeError);
    expect(() => np.cross(f, np.ones([4]))).toThrow("[cross] dim 0 must have size 2 or 3, got f32[4]");
    expect(() => np.vecdot(f, 1)).toThrow("[vecdot] needs a tensor of at least 1 dim");
  });

  test("the gradient of a batched product has the shapes of its operands", async () => {
    const loss = (x: Tensor, weight: Tensor) => np.matmul(x, weight).sum();
    const [dx, dw] = grad(loss, { argnums: [0, 1] })(np.ones([2, 1, 1, 3]), np.ones([5, 3, 2]));
    expect([dx.shape, dw.shape]).toEqual([
      [2, 1, 1, 3],
      [5, 3, 2],
    ]);
    await expectClose(dx, HostArray.of("float32", [2, 1, 1, 3], [10, 10, 10, 10, 10, 10]));
  });
});

describe("einsum", () => {
  testRows(sums);

  test("parses subscripts into labels; dims behind the dots are counted from the last", () => {
    expect(parseSubscripts("b...i, ij -> ...j", [4, 2])).toEqual({
      inputs: [
        ["b", "...1", "...0", "i"],
        ["i", "j"],
      ],
      output: ["...1", "...0", "j"],
    });
  });

  test.each([
    ["ij,jk->ik", [f], "it names 2 operands, but 1 were given"],
    ["ij->ik", [f], 'the result has "k", which no operand has'],
    ["ijk->i", [f], '"ijk" names 3 dims, but operand 0 has 2'],
    ["i->i->i", [v], '"->" may appear only once'],
    ["i1->i", [f], '"1" is not a letter'],
    ["ij->ii", [f], "the result names a letter twice"],
    ["...i...", [f], 'has more than one "..."'],
    ["...i->i", [f], 'so the result needs "..." too'],
  ] as const)("%s is refused", (subscripts, operands, message) => {
    expect(() => np.einsum(subscripts, ...operands)).toThrow(ValueError);
    expect(() => np.einsum(subscripts, ...operands)).toThrow(message);
  });

  test("names the letter whose sizes differ", () => {
    expect(() => np.einsum("ij,ik", f, m)).toThrow(
      '[einsum] "ij,ik": "i" has sizes 2 and 3 in (f32[2,3], f32[3,3]); a letter stands for one size',
    );
  });

  test("multiplies in the order that keeps intermediate results small", () => {
    const [wide, thin] = [np.ones([100, 100]), np.ones([100, 1])];
    const chain = (a: Tensor, b: Tensor, c: Tensor) => np.einsum("ij,jk,kl->il", a, b, c);
    const program = makeProgram(chain)(wide, wide, thin);
    const sizes = program.eqns.flatMap(({ outs }) => outs.map(({ type }) => type.shape.join("x")));
    expect(sizes).not.toContain("100x100");
  });

  test("sums what only one operand has before it multiplies", () => {
    const program = makeProgram((a: Tensor, b: Tensor) => np.einsum("ij,k->k", a, b))(f, v);
    expect(program.eqns[0]?.op).toBe("reduceSum");
  });

  test("differentiates", async () => {
    const slope = grad((x: Tensor) => np.einsum("ij,jk,ik->", x, m, g))(f);
    await expectClose(slope, np.einsum("jk,ik->ij", m, g));
  });
});
