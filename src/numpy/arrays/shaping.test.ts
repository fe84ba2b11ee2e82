import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import { b, f, g, i, j, m, type Row, t, testRows, u, v } from "../../../test/support/jaxRows.js";
import {
  DimError,
  type DType,
  DTypeError,
  jit,
  ShapeError,
  type Tensor,
  TracerError,
  ValueError,
} from "../../index.js";
import * as np from "../index.js";

const creation: readonly Row[] = [
  [
    "np.array([[1, 2], [3, 4]])",
    () =>
      np.array([
        [1, 2],
        [3, 4],
      ]),
    "float32",
    [2, 2],
    [1, 2, 3, 4],
  ],
  ["np.array(3)", () => np.array(3), "float32", [], [3]],
  ["np.array(true)", () => np.array(true), "bool", [], [1]],
  ["np.array([true, false])", () => np.array([true, false]), "bool", [2], [1, 0]],
  [
    `np.array([1.7, -1.7], { dtype: "int32" })`,
    () => np.array([1.7, -1.7], { dtype: "int32" }),
    "int32",
    [2],
    [1, -1],
  ],
  ["np.array(new Uint8Array([1, 255]))", () => np.array(new Uint8Array([1, 255])), "uint8", [2], [1, 255]],
  [
    "np.array(new Float32Array([1, 2, 3, 4]), { shape: [2, 2] })",
    () => np.array(new Float32Array([1, 2, 3, 4]), { shape: [2, 2] }),
    "float32",
    [2, 2],
    [1, 2, 3, 4],
  ],
  [
    "np.array([new Float32Array([1, 2]), new Float32Array([3, 4])])",
    () => np.array([new Float32Array([1, 2]), new Float32Array([3, 4])]),
    "float32",
    [2, 2],
    [1, 2, 3, 4],
  ],
  ["np.array([v, v.mul(2)])", () => np.array([v, v.mul(2)]), "float32", [2, 3], [1, -2, 0.5, 2, -4, 1]],
  ["np.array([[], []])", () => np.array([[], []]), "float32", [2, 0], []],
  ["np.zeros([2, 2])", () => np.zeros([2, 2]), "float32", [2, 2], [0, 0, 0, 0]],
  [`np.zeros(3, "int32")`, () => np.zeros(3, "int32"), "int32", [3], [0, 0, 0]],
  [`np.ones([2], { dtype: "bool" })`, () => np.ones([2], { dtype: "bool" }), "bool", [2], [1, 1]],
  ["np.full([2, 3], v)", () => np.full([2, 3], v), "float32", [2, 3], [1, -2, 0.5, 1, -2, 0.5]],
  [`np.full([2], 7, "int32")`, () => np.full([2], 7, "int32"), "int32", [2], [7, 7]],
  ["np.full([2], true)", () => np.full([2], true), "bool", [2], [1, 1]],
  ["np.zerosLike(i)", () => np.zerosLike(i), "int32", [2, 3], [0, 0, 0, 0, 0, 0]],
  ["np.onesLike(f)", () => np.onesLike(f), "float32", [2, 3], [1, 1, 1, 1, 1, 1]],
  ["np.fullLike(i, 4)", () => np.fullLike(i, 4), "int32", [2, 3], [4, 4, 4, 4, 4, 4]],
  [`np.zerosLike(f, "int32")`, () => np.zerosLike(f, "int32"), "int32", [2, 3], [0, 0, 0, 0, 0, 0]],
  ["np.arange(4)", () => np.arange(4), "int32", [4], [0, 1, 2, 3]],
  ["np.arange(2, 9, 3)", () => np.arange(2, 9, 3), "int32", [3], [2, 5, 8]],
  ["np.arange(5, 0, -2)", () => np.arange(5, 0, -2), "int32", [3], [5, 3, 1]],
  ["np.arange(1, 2, 0.25)", () => np.arange(1, 2, 0.25), "float32", [4], [1, 1.25, 1.5, 1.75]],
  [`np.arange(3, "float32")`, () => np.arange(3, "float32"), "float32", [3], [0, 1, 2]],
  ["np.arange(3, 3)", () => np.arange(3, 3), "int32", [0], []],
  ["np.arange(0, 0.5, 0.1)", () => np.arange(0, 0.5, 0.1), "float32", [5], [0, 0.1, 0.2, 0.3, 0.4]],
  ["np.linspace(0, 1, 5)", () => np.linspace(0, 1, 5), "float32", [5], [0, 0.25, 0.5, 0.75, 1]],
  [
    "np.linspace(-1, 1, 4, { endpoint: false })",
    () => np.linspace(-1, 1, 4, { endpoint: false }),
    "float32",
    [4],
    [-1, -0.5, 0, 0.5],
  ],
  [
    `np.linspace(0, 10, 4, { dtype: "int32" })`,
    () => np.linspace(0, 10, 4, { dtype: "int32" }),
    "int32",
    [4],
    [0, 3, 6, 10],
  ],
  [
    "np.linspace(v, 2, 3)",
    () => np.linspace(v, 2, 3),
    "float32",
    [3, 3],
    [1, -2, 0.5, 1.5, 0, 1.25, 2, 2, 2],
  ],
  ["np.linspace(3, 5, 1)", () => np.linspace(3, 5, 1), "float32", [1], [3]],
  ["np.logspace(0, 2, 3)", () => np.logspace(0, 2, 3), "float32", [3], [1, 10, 100]],
  ["np.geomspace(1, 8, 4)", () => np.geomspace(1, 8, 4), "float32", [4], [1, 2, 4.0000005, 8]],
  ["np.eye(3)", () => np.eye(3), "float32", [3, 3], [1, 0, 0, 0, 1, 0, 0, 0, 1]],
  [
    `np.eye(2, 3, { k: 1, dtype: "int32" })`,
    () => np.eye(2, 3, { k: 1, dtype: "int32" }),
    "int32",
    [2, 3],
    [0, 1, 0, 0, 0, 1],
  ],
  ["np.identity(2)", () => np.identity(2), "float32", [2, 2], [1, 0, 0, 1]],
  [
    "np.tri(3, 4, { k: -1 })",
    () => np.tri(3, 4, { k: -1 }),
    "float32",
    [3, 4],
    [0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0],
  ],
  ["np.tril(m)", () => np.tril(m), "float32", [3, 3], [0, 0, 0, 3, 4, 0, 6, 7, 8]],
  ["np.tril(m, -1)", () => np.tril(m, -1), "float32", [3, 3], [0, 0, 0, 3, 0, 0, 6, 7, 0]],
  [
    "np.triu(t, 1)",
    () => np.triu(t, 1),
    "float32",
    [2, 3, 4],
    [
      0, 0.125, 0.25, 0.375, 0, 0, 0.75, 0.875, 0, 0, 0, 1.375, 0, 1.625, 1.75, 1.875, 0, 0, 2.25, 2.375, 0,
      0, 0, 2.875,
    ],
  ],
  ["np.triu(b)", () => np.triu(b), "bool", [2, 3], [1, 0, 1, 0, 0, 1]],
  [
    "np.stack(np.meshgrid([v, np.arange(2)]))",
    () => np.stack(np.meshgrid([v, np.arange(2)])),
    "float32",
    [2, 2, 3],
    [1, -2, 0.5, 1, -2, 0.5, 0, 0, 0, 1, 1, 1],
  ],
  [
    `np.stack(np.meshgrid([j, np.arange(2)], { indexing: "ij" }))`,
    () => np.stack(np.meshgrid([j, np.arange(2)], { indexing: "ij" })),
    "int32",
    [2, 3, 2],
    [3, 3, -2, -2, 4, 4, 0, 1, 0, 1, 0, 1],
  ],
  ["np.indices([2, 3])", () => np.indices([2, 3]), "int32", [2, 2, 3], [0, 0, 0, 1, 1, 1, 0, 1, 2, 0, 1, 2]],
  ["np.diag(v)", () => np.diag(v), "float32", [3, 3], [1, 0, 0, 0, -2, 0, 0, 0, 0.5]],
  [
    "np.diag(v, 1)",
    () => np.diag(v, 1),
    "float32",
    [4, 4],
    [0, 1, 0, 0, 0, 0, -2, 0, 0, 0, 0, 0.5, 0, 0, 0, 0],
  ],
  [
    "np.diag(v, -2)",
    () => np.diag(v, -2),
    "float32",
    [5, 5],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, -2, 0, 0, 0, 0, 0, 0.5, 0, 0],
  ],
  ["np.diag(m)", () => np.diag(m), "float32", [3], [0, 4, 8]],
  ["np.diag(m, -1)", () => np.diag(m, -1), "float32", [2], [3, 7]],
  ["np.diag(m, 5)", () => np.diag(m, 5), "float32", [0], []],
  ["np.diagonal(t)", () => np.diagonal(t), "float32", [4, 2], [0, 2, 0.125, 2.125, 0.25, 2.25, 0.375, 2.375]],
  [
    "np.diagonal(t, { offset: 1, dim1: 1, dim2: 2 })",
    () => np.diagonal(t, { offset: 1, dim1: 1, dim2: 2 }),
    "float32",
    [2, 3],
    [0.125, 0.75, 1.375, 1.625, 2.25, 2.875],
  ],
  [
    "np.diagonal(t, { offset: -1, dim1: -1, dim2: 0 })",
    () => np.diagonal(t, { offset: -1, dim1: -1, dim2: 0 }),
    "float32",
    [3, 2],
    [0.125, 1.75, 0.625, 2.25, 1.125, 2.75],
  ],
  ["np.trace(m)", () => np.trace(m), "float32", [], [12]],
  ["np.trace(i, { offset: 1 })", () => np.trace(i, { offset: 1 }), "int32", [], [-3]],
  [
    "np.diagflat(np.array([[1, 2], [3, 4]]))",
    () =>
      np.diagflat(
        np.array([
          [1, 2],
          [3, 4],
        ]),
      ),
    "float32",
    [4, 4],
    [1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4],
  ],
];

const shaping: readonly Row[] = [
  [
    "np.reshape(t, [4, -1])",
    () => np.reshape(t, [4, -1]),
    "float32",
    [4, 6],
    [
      0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875, 2,
      2.125, 2.25, 2.375, 2.5, 2.625, 2.75, 2.875,
    ],
  ],
  ["np.reshape(f, -1)", () => np.reshape(f, -1), "float32", [6], [-1.5, 0.25, 2, 3, -0.75, 0.5]],
  ["np.ravel(f)", () => np.ravel(f), "float32", [6], [-1.5, 0.25, 2, 3, -0.75, 0.5]],
  [
    "np.transpose(t)",
    () => np.transpose(t),
    "float32",
    [4, 3, 2],
    [
      0, 1.5, 0.5, 2, 1, 2.5, 0.125, 1.625, 0.625, 2.125, 1.125, 2.625, 0.25, 1.75, 0.75, 2.25, 1.25, 2.75,
      0.375, 1.875, 0.875, 2.375, 1.375, 2.875,
    ],
  ],
  [
    "np.transpose(t, [1, -1, 0])",
    () => np.transpose(t, [1, -1, 0]),
    "float32",
    [3, 4, 2],
    [
      0, 1.5, 0.125, 1.625, 0.25, 1.75, 0.375, 1.875, 0.5, 2, 0.625, 2.125, 0.75, 2.25, 0.875, 2.375, 1, 2.5,
      1.125, 2.625, 1.25, 2.75, 1.375, 2.875,
    ],
  ],
  [
    "np.matrixTranspose(t)",
    () => np.matrixTranspose(t),
    "float32",
    [2, 4, 3],
    [
      0, 0.5, 1, 0.125, 0.625, 1.125, 0.25, 0.75, 1.25, 0.375, 0.875, 1.375, 1.5, 2, 2.5, 1.625, 2.125, 2.625,
      1.75, 2.25, 2.75, 1.875, 2.375, 2.875,
    ],
  ],
  [
    "np.swapaxes(t, 0, -1)",
    () => np.swapaxes(t, 0, -1),
    "float32",
    [4, 3, 2],
    [
      0, 1.5, 0.5, 2, 1, 2.5, 0.125, 1.625, 0.625, 2.125, 1.125, 2.625, 0.25, 1.75, 0.75, 2.25, 1.25, 2.75,
      0.375, 1.875, 0.875, 2.375, 1.375, 2.875,
    ],
  ],
  [
    "np.moveaxis(t, 0, -1)",
    () => np.moveaxis(t, 0, -1),
    "float32",
    [3, 4, 2],
    [
      0, 1.5, 0.125, 1.625, 0.25, 1.75, 0.375, 1.875, 0.5, 2, 0.625, 2.125, 0.75, 2.25, 0.875, 2.375, 1, 2.5,
      1.125, 2.625, 1.25, 2.75, 1.375, 2.875,
    ],
  ],
  [
    "np.moveaxis(t, [0, 1], [-1, 0])",
    () => np.moveaxis(t, [0, 1], [-1, 0]),
    "float32",
    [3, 4, 2],
    [
      0, 1.5, 0.125, 1.625, 0.25, 1.75, 0.375, 1.875, 0.5, 2, 0.625, 2.125, 0.75, 2.25, 0.875, 2.375, 1, 2.5,
      1.125, 2.625, 1.25, 2.75, 1.375, 2.875,
    ],
  ],
  [
    "np.squeeze(t.reshape(1, 6, 1, 4))",
    () => np.squeeze(t.reshape(1, 6, 1, 4)),
    "float32",
    [6, 4],
    [
      0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875, 2,
      2.125, 2.25, 2.375, 2.5, 2.625, 2.75, 2.875,
    ],
  ],
  [
    "np.squeeze(t.reshape(1, 6, 1, 4), 2)",
    () => np.squeeze(t.reshape(1, 6, 1, 4), 2),
    "float32",
    [1, 6, 4],
    [
      0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875, 2,
      2.125, 2.25, 2.375, 2.5, 2.625, 2.75, 2.875,
    ],
  ],
  ["np.expandDims(v, [0, -1])", () => np.expandDims(v, [0, -1]), "float32", [1, 3, 1], [1, -2, 0.5]],
  ["np.expandDims(f, 1)", () => np.expandDims(f, 1), "float32", [2, 1, 3], [-1.5, 0.25, 2, 3, -0.75, 0.5]],
  ["np.broadcastTo(v, [2, 3])", () => np.broadcastTo(v, [2, 3]), "float32", [2, 3], [1, -2, 0.5, 1, -2, 0.5]],
  [
    "np.broadcastArrays(v, f)[0] ?? v",
    () => np.broadcastArrays(v, f)[0] ?? v,
    "float32",
    [2, 3],
    [1, -2, 0.5, 1, -2, 0.5],
  ],
  ["np.atleast2d(v)", () => np.atleast2d(v), "float32", [1, 3], [1, -2, 0.5]],
  ["np.atleast3d(f)", () => np.atleast3d(f), "float32", [2, 3, 1], [-1.5, 0.25, 2, 3, -0.75, 0.5]],
  ["np.atleast1d(3)", () => np.atleast1d(3), "float32", [1], [3]],
  ["np.flip(f)", () => np.flip(f), "float32", [2, 3], [0.5, -0.75, 3, 2, 0.25, -1.5]],
  ["np.flip(f, -1)", () => np.flip(f, -1), "float32", [2, 3], [2, 0.25, -1.5, 0.5, -0.75, 3]],
  ["np.flipud(f)", () => np.flipud(f), "float32", [2, 3], [3, -0.75, 0.5, -1.5, 0.25, 2]],
  ["np.fliplr(f)", () => np.fliplr(f), "float32", [2, 3], [2, 0.25, -1.5, 0.5, -0.75, 3]],
  ["np.rot90(f)", () => np.rot90(f), "float32", [3, 2], [2, 0.5, 0.25, -0.75, -1.5, 3]],
  ["np.rot90(f, 2)", () => np.rot90(f, 2), "float32", [2, 3], [0.5, -0.75, 3, 2, 0.25, -1.5]],
  [
    "np.rot90(t, -1, [1, 2])",
    () => np.rot90(t, -1, [1, 2]),
    "float32",
    [2, 4, 3],
    [
      1, 0.5, 0, 1.125, 0.625, 0.125, 1.25, 0.75, 0.25, 1.375, 0.875, 0.375, 2.5, 2, 1.5, 2.625, 2.125, 1.625,
      2.75, 2.25, 1.75, 2.875, 2.375, 1.875,
    ],
  ],
  ["np.roll(f, 1)", () => np.roll(f, 1), "float32", [2, 3], [0.5, -1.5, 0.25, 2, 3, -0.75]],
  ["np.roll(f, -1, 1)", () => np.roll(f, -1, 1), "float32", [2, 3], [0.25, 2, -1.5, -0.75, 0.5, 3]],
  [
    "np.roll(f, [1, 2], [0, 1])",
    () => np.roll(f, [1, 2], [0, 1]),
    "float32",
    [2, 3],
    [-0.75, 0.5, 3, 0.25, 2, -1.5],
  ],
  ["np.roll(f, 7, -1)", () => np.roll(f, 7, -1), "float32", [2, 3], [2, -1.5, 0.25, 0.5, 3, -0.75]],
  [
    `np.roll(f, np.array(2, "int32"), 1)`,
    () => np.roll(f, np.array(2, "int32"), 1),
    "float32",
    [2, 3],
    [0.25, 2, -1.5, -0.75, 0.5, 3],
  ],
  [
    `np.roll(f, np.array(-4, "int32"), 1)`,
    () => np.roll(f, np.array(-4, "int32"), 1),
    "float32",
    [2, 3],
    [0.25, 2, -1.5, -0.75, 0.5, 3],
  ],
  ["np.tile(v, 2)", () => np.tile(v, 2), "float32", [6], [1, -2, 0.5, 1, -2, 0.5]],
  [
    "np.tile(v, [2, 2])",
    () => np.tile(v, [2, 2]),
    "float32",
    [2, 6],
    [1, -2, 0.5, 1, -2, 0.5, 1, -2, 0.5, 1, -2, 0.5],
  ],
  [
    "np.tile(f, [2, 1, 2])",
    () => np.tile(f, [2, 1, 2]),
    "float32",
    [2, 2, 6],
    [
      -1.5, 0.25, 2, -1.5, 0.25, 2, 3, -0.75, 0.5, 3, -0.75, 0.5, -1.5, 0.25, 2, -1.5, 0.25, 2, 3, -0.75, 0.5,
      3, -0.75, 0.5,
    ],
  ],
  [
    "np.repeat(f, 2)",
    () => np.repeat(f, 2),
    "float32",
    [12],
    [-1.5, -1.5, 0.25, 0.25, 2, 2, 3, 3, -0.75, -0.75, 0.5, 0.5],
  ],
  [
    "np.repeat(f, 2, 1)",
    () => np.repeat(f, 2, 1),
    "float32",
    [2, 6],
    [-1.5, -1.5, 0.25, 0.25, 2, 2, 3, 3, -0.75, -0.75, 0.5, 0.5],
  ],
  [
    "np.repeat(f, [1, 3], 0)",
    () => np.repeat(f, [1, 3], 0),
    "float32",
    [4, 3],
    [-1.5, 0.25, 2, 3, -0.75, 0.5, 3, -0.75, 0.5, 3, -0.75, 0.5],
  ],
  ["np.repeat(v, [0, 2, 1])", () => np.repeat(v, [0, 2, 1]), "float32", [3], [-2, -2, 0.5]],
];

const joining: readonly Row[] = [
  [
    "np.concatenate([f, g])",
    () => np.concatenate([f, g]),
    "float32",
    [4, 3],
    [-1.5, 0.25, 2, 3, -0.75, 0.5, 0.5, 2, -1, 1.5, -2, 0.25],
  ],
  [
    "np.concatenate([f, i], -1)",
    () => np.concatenate([f, i], -1),
    "float32",
    [2, 6],
    [-1.5, 0.25, 2, 5, -3, 7, 3, -0.75, 0.5, -8, 2, 0],
  ],
  [
    "np.concatenate([f, v], null)",
    () => np.concatenate([f, v], null),
    "float32",
    [9],
    [-1.5, 0.25, 2, 3, -0.75, 0.5, 1, -2, 0.5],
  ],
  ["np.stack([v, v], 1)", () => np.stack([v, v], 1), "float32", [3, 2], [1, 1, -2, -2, 0.5, 0.5]],
  [
    "np.stack([f, g], -1)",
    () => np.stack([f, g], -1),
    "float32",
    [2, 3, 2],
    [-1.5, 0.5, 0.25, 2, 2, -1, 3, 1.5, -0.75, -2, 0.5, 0.25],
  ],
  ["np.stack([1, 2, 3])", () => np.stack([1, 2, 3]), "float32", [3], [1, 2, 3]],
  [
    "np.hstack([f, g])",
    () => np.hstack([f, g]),
    "float32",
    [2, 6],
    [-1.5, 0.25, 2, 0.5, 2, -1, 3, -0.75, 0.5, 1.5, -2, 0.25],
  ],
  ["np.hstack([v, v])", () => np.hstack([v, v]), "float32", [6], [1, -2, 0.5, 1, -2, 0.5]],
  [
    "np.vstack([v, f])",
    () => np.vstack([v, f]),
    "float32",
    [3, 3],
    [1, -2, 0.5, -1.5, 0.25, 2, 3, -0.75, 0.5],
  ],
  ["np.dstack([v, v])", () => np.dstack([v, v]), "float32", [1, 3, 2], [1, 1, -2, -2, 0.5, 0.5]],
  ["np.columnStack([v, v])", () => np.columnStack([v, v]), "float32", [3, 2], [1, 1, -2, -2, 0.5, 0.5]],
  ["np.append(f, v)", () => np.append(f, v), "float32", [9], [-1.5, 0.25, 2, 3, -0.75, 0.5, 1, -2, 0.5]],
  [
    "np.stack(np.split(t, 2, -1))",
    () => np.stack(np.split(t, 2, -1)),
    "float32",
    [2, 2, 3, 2],
    [
      0, 0.125, 0.5, 0.625, 1, 1.125, 1.5, 1.625, 2, 2.125, 2.5, 2.625, 0.25, 0.375, 0.75, 0.875, 1.25, 1.375,
      1.75, 1.875, 2.25, 2.375, 2.75, 2.875,
    ],
  ],
  [
    "np.concatenate(np.split(u, [1, 3]).reverse())",
    () => np.concatenate(np.split(u, [1, 3]).reverse()),
    "float32",
    [5],
    [0.5, 0.99, -0.25, 0, -0.9],
  ],
  [
    "np.concatenate(np.arraySplit(u, 3).reverse())",
    () => np.concatenate(np.arraySplit(u, 3).reverse()),
    "float32",
    [5],
    [0.99, 0, 0.5, -0.9, -0.25],
  ],
  [
    "np.stack(np.hsplit(t, 3))",
    () => np.stack(np.hsplit(t, 3)),
    "float32",
    [3, 2, 1, 4],
    [
      0, 0.125, 0.25, 0.375, 1.5, 1.625, 1.75, 1.875, 0.5, 0.625, 0.75, 0.875, 2, 2.125, 2.25, 2.375, 1,
      1.125, 1.25, 1.375, 2.5, 2.625, 2.75, 2.875,
    ],
  ],
  [
    "np.stack(np.vsplit(f, 2))",
    () => np.stack(np.vsplit(f, 2)),
    "float32",
    [2, 1, 3],
    [-1.5, 0.25, 2, 3, -0.75, 0.5],
  ],
  ["np.pad(v, 2)", () => np.pad(v, 2), "float32", [7], [0, 0, 1, -2, 0.5, 0, 0]],
  [
    "np.pad(f, [[1, 0], [0, 2]], { constantValues: 9 })",
    () =>
      np.pad(
        f,
        [
          [1, 0],
          [0, 2],
        ],
        { constantValues: 9 },
      ),
    "float32",
    [3, 5],
    [9, 9, 9, 9, 9, -1.5, 0.25, 2, 9, 9, 3, -0.75, 0.5, 9, 9],
  ],
  [
    "np.pad(f, [1, 2])",
    () => np.pad(f, [1, 2]),
    "float32",
    [5, 6],
    [0, 0, 0, 0, 0, 0, 0, -1.5, 0.25, 2, 0, 0, 0, 3, -0.75, 0.5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
  ],
  [
    `np.pad(f, [[1, 1]], { mode: "edge" })`,
    () => np.pad(f, [[1, 1]], { mode: "edge" }),
    "float32",
    [4, 5],
    [-1.5, -1.5, 0.25, 2, 2, -1.5, -1.5, 0.25, 2, 2, 3, 3, -0.75, 0.5, 0.5, 3, 3, -0.75, 0.5, 0.5],
  ],
  [
    `np.pad(v, [3, 7], { mode: "reflect" })`,
    () => np.pad(v, [3, 7], { mode: "reflect" }),
    "float32",
    [13],
    [-2, 0.5, -2, 1, -2, 0.5, -2, 1, -2, 0.5, -2, 1, -2],
  ],
  [
    `np.pad(v, [1, 10], { mode: "reflect" })`,
    () => np.pad(v, [1, 10], { mode: "reflect" }),
    "float32",
    [14],
    [-2, 1, -2, 0.5, -2, 1, -2, 0.5, -2, 1, -2, 0.5, -2, 1],
  ],
  [
    `np.pad(v, [4, 5], { mode: "symmetric" })`,
    () => np.pad(v, [4, 5], { mode: "symmetric" }),
    "float32",
    [12],
    [0.5, 0.5, -2, 1, 1, -2, 0.5, 0.5, -2, 1, 1, -2],
  ],
  [
    `np.pad(v, [4, 5], { mode: "wrap" })`,
    () => np.pad(v, [4, 5], { mode: "wrap" }),
    "float32",
    [12],
    [0.5, 1, -2, 0.5, 1, -2, 0.5, 1, -2, 0.5, 1, -2],
  ],
  [
    `np.pad(f, [[0, 1], [2, 2]], { mode: "wrap" })`,
    () =>
      np.pad(
        f,
        [
          [0, 1],
          [2, 2],
        ],
        { mode: "wrap" },
      ),
    "float32",
    [3, 7],
    [
      0.25, 2, -1.5, 0.25, 2, -1.5, 0.25, -0.75, 0.5, 3, -0.75, 0.5, 3, -0.75, 0.25, 2, -1.5, 0.25, 2, -1.5,
      0.25,
    ],
  ],
  [
    `np.pad(v.get(np.s(0, 1)), 2, { mode: "reflect" })`,
    () => np.pad(v.get(np.s(0, 1)), 2, { mode: "reflect" }),
    "float32",
    [5],
    [1, 1, 1, 1, 1],
  ],
];

describe("creation", () => {
  testRows(creation);

  test("typed arrays keep their type", () => {
    expect(np.array(new Float64Array(2)).dtype).toBe("float64");
    expect(np.array(new Uint32Array(2)).dtype).toBe("uint32");
    expect(np.array(new Int16Array(2)).dtype).toBe("int16");
    expect(np.array(new Int8Array(2)).dtype).toBe("int8");
    expect(np.array(new Uint16Array(2)).dtype).toBe("uint16");
    expect(np.array(new Uint8ClampedArray([300])).dtype).toBe("uint8");
    expect(np.array(new Float32Array(2), "bfloat16").dtype).toBe("bfloat16");
  });

  test("a tensor does not see later changes of the array it was made of", async () => {
    const source = new Float32Array([1, 2]);
    const x = np.array(source);
    source[0] = 9;
    await expectClose(x, [1, 2]);
  });

  test("ragged arrays are refused with the place of the fault", () => {
    expect(() => np.array([[1, 2], [3]])).toThrow(ShapeError);
    expect(() => np.array([[1, 2], [3]])).toThrow(
      "[array] the nested arrays are ragged: [1] has length 1, expected length 2",
    );
    expect(() => np.array([[1, 2], 3])).toThrow("[1] is a number, expected an array of length 2");
    expect(() => np.array([1, [2]])).toThrow("[1] is an array, expected a number");
  });

  test("what is no number is refused", () => {
    expect(() => np.array(["a"] as unknown as number[])).toThrow(
      '[array] the element at [0] is "a", not a number',
    );
    expect(() => np.array({} as unknown as number)).toThrow(ValueError);
    expect(() => np.array(new BigInt64Array(1) as unknown as Int32Array)).toThrow(DTypeError);
    expect(() => np.array([1], "int64" as DType)).toThrow('[array] "int64" is not a data type');
    expect(() => np.array([1, 2, 3], { shape: [2, 2] })).toThrow(
      "[array] 3 elements do not fill shape [2,2]",
    );
  });

  test("sizes must be integers known when tracing", () => {
    expect(() => np.zeros([2, -1])).toThrow("[zeros] shape [2, -1] holds -1: sizes are integers from 0");
    expect(() => np.ones(1.5)).toThrow(ShapeError);
    const f = jit((x: Tensor) => np.zeros([x as unknown as number]));
    expect(() => f(np.array(2))).toThrow(TracerError);
    expect(() => f(np.array(2))).toThrow("pass a JavaScript number, for example x.shape[0]");
  });

  test("ranges must end", () => {
    expect(() => np.arange(0, 1, 0)).toThrow("[arange] from 0 to 1 by 0 does not end");
    expect(() => np.geomspace(0, 1)).toThrow("[geomspace] bounds 0 and 1 must be positive");
  });

  test("triangles and diagonals need matrices", () => {
    expect(() => np.tril(v)).toThrow("[tril] needs a matrix or a batch of matrices, got f32[3]");
    expect(() => np.diag(t)).toThrow("[diag] takes a vector or a matrix, got f32[2,3,4]: use diagonal");
    expect(() => np.diagonal(m, { dim1: 1, dim2: -1 })).toThrow(DimError);
    expect(() => np.meshgrid([m])).toThrow("[meshgrid] takes vectors, got f32[3,3]");
  });

  test("limits of data types", () => {
    expect(np.finfo("float32").eps).toBe(2 ** -23);
    expect(np.iinfo("int32").max).toBe(2 ** 31 - 1);
    expect(() => np.finfo("int32")).toThrow("[finfo] int32 is not a floating-point type: use iinfo");
    expect(() => np.iinfo("float32")).toThrow(DTypeError);
  });
});

describe("shape manipulation", () => {
  testRows(shaping);

  test("reshape says which numbers do not fit", () => {
    expect(() => np.reshape(f, [4, -1])).toThrow(
      "[reshape] f32[2,3] does not fill shape [4,-1]: 6 / 4 = 1.5 is not an integer",
    );
    expect(() => np.reshape(f, [7])).toThrow("it has 6 elements, the shape 7");
    expect(() => np.reshape(f, [-1, -1])).toThrow(ShapeError);
  });

  test("dims are checked", () => {
    expect(() => np.transpose(t, [0, 1])).toThrow(
      "[transpose] the order [0,1] names 2 dims, f32[2,3,4] has 3: name every dim once",
    );
    expect(() => np.transpose(t, [0, 1, 1])).toThrow(DimError);
    expect(() => np.swapaxes(f, 0, 2)).toThrow(
      "[swapaxes] dim 2 is out of range for a tensor of 2 dims: use an integer from -2 to 1",
    );
    expect(() => np.moveaxis(t, [0, 1], 0)).toThrow("[moveaxis] moves 2 dims to 1 places");
    expect(() => np.squeeze(f, 0)).toThrow(
      "[squeeze] dim 0 of f32[2,3] has size 2: only dims of size 1 can be dropped",
    );
    expect(() => np.broadcastTo(f, [3])).toThrow(ShapeError);
    expect(() => np.broadcastTo(np.ones([2]), [1])).toThrow("[broadcastTo] f32[2] does not become [1]");
    expect(() => np.matrixTranspose(v)).toThrow("[matrixTranspose] needs a tensor of at least 2 dims");
  });

  test("roll and repeat check their amounts", () => {
    expect(() => np.roll(f, 0.5, 0)).toThrow("[roll] a shift must be an integer, got 0.5");
    expect(() => np.roll(f, [1, 2], [0, 1, 0])).toThrow("[roll] 2 shifts for 3 dims: pass one for each");
    expect(() => np.repeat(f, [1, 2, 3], 0)).toThrow(
      "[repeat] 3 counts for the 2 elements of dim 0 of f32[2,3]",
    );
  });
});

describe("joining and splitting", () => {
  testRows(joining);

  test("parts must fit together", () => {
    expect(() => np.concatenate([f, v])).toThrow(
      "[concatenate] f32[2,3] and f32[3] cannot be joined along dim 0: all other sizes must agree",
    );
    expect(() => np.concatenate([])).toThrow(ValueError);
    expect(() => np.concatenate([1, 2])).toThrow(
      "[concatenate] scalars have no dim to be joined along: use stack",
    );
    expect(() => np.stack([f, v])).toThrow("[stack] f32[2,3] and f32[3] cannot be stacked");
  });

  test("equal parts need a divisible dim", () => {
    expect(() => np.split(u, 2)).toThrow(
      "[split] dim 0 of size 5 does not split into 2 equal parts (5 / 2 = 2.5): use arraySplit, or pass the indices to split at",
    );
    expect(() => np.split(u, 0)).toThrow(ValueError);
  });

  test("pad checks widths and modes", () => {
    expect(() =>
      np.pad(f, [
        [1, 1],
        [1, 1],
        [1, 1],
      ]),
    ).toThrow(
      "[pad] got widths for 3 dims, f32[2,3] has 2: pass one [before, after] per dim, or one for all",
    );
    expect(() => np.pad(f, -1)).toThrow("[pad] a width is a pair of integers from 0, got [-1,-1]");
    expect(() => np.pad(f, 1, { mode: "mirror" as "edge" })).toThrow(
      '[pad] unknown mode "mirror": use constant, edge, empty, linear_ramp, maximum, mean, median, minimum, reflect, symmetric, wrap',
    );
    expect(() => np.pad(np.zeros([0]), 1, { mode: "edge" })).toThrow(ShapeError);
    expect(() => np.pad(f, 1, { constantValues: v })).toThrow(
      "[pad] constantValues are scalars, or pairs of them",
    );
  });
});
