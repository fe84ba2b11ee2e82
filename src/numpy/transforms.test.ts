import { describe, expect, test } from "vitest";
import { expectClose } from "../../test/support/goldens.js";
import { grad, jit, type Tensor, vmap } from "../index.js";
import * as nn from "../nn/functions/functions.js";
import * as np from "./index.js";

const batch = np.array([
  [
    [0.31, 0.62, 0.23],
    [0.94, 0.45, 0.76],
  ],
  [
    [0.57, 0.18, 0.89],
    [0.35, 0.65, 0.74],
  ],
]);
const ids = np.array([2, 0, 2], "int32");
const rows = np.array([0, 1], "int32");

/** Functions of a matrix [2, 3] that are made of several ops, one or two of each family. */
const functions: Readonly<Record<string, (x: Tensor) => Tensor>> = {
  sinh: (x) => np.sinh(x),
  asinh: (x) => np.asinh(x),
  mod: (x) => np.mod(x, 0.4),
  hypot: (x) => np.hypot(x, 2),
  logaddexp: (x) => np.logaddexp(x, x.get(0)),
  clip: (x) => np.clip(x, 0.3, 0.6),
  prod: (x) => np.prod(x, 0),
  var: (x) => np.var(x, 0),
  logsumexp: (x) => np.logsumexp(x, 1),
  cumprod: (x) => np.cumprod(x, 1),
  median: (x) => np.median(x, 1),
  quantile: (x) => np.quantile(x, 0.3),
  sort: (x) => np.sort(x, 0),
  argsort: (x) => np.argsort(x),
  searchsorted: (x) => np.searchsorted(np.array([0.2, 0.5, 0.6]), x),
  linspace: (x) => np.linspace(x, 1, 3),
  roll: (x) => np.roll(x, 1, 1),
  "roll by a tensor": (x) => np.roll(x, x.argmax(1).get(0), 1),
  "pad with reflection": (x) => np.pad(x, 2, { mode: "reflect" }),
  tile: (x) => np.tile(x, [2, 2]),
  repeat: (x) => np.repeat(x, [2, 0, 1], 1),
  tril: (x) => np.tril(x.T.matmul(x)),
  "a look-up": (x) => x.get(":", ids),
  "a look-up in two dims": (x) => x.get(rows, ids.get(np.s(0, 2))),
  "a dynamic position": (x) => x.get(":", x.argmax(1).get(0)),
  "at.set of a slice": (x) => x.at(0, np.s(1)).set(x.get(1, np.s(1))),
  "at.set with a stride": (x) => x.at(":", np.s(null, null, 2)).set(x.get(":", np.s(0, 2))),
  "at.set at a dynamic position": (x) => x.at(":", x.argmin(1).get(1)).set(x.get(":", 0)),
  "at.add": (x) => x.at(":", ids).add(x),
  "at.multiply": (x) => x.at(":", ids).multiply(x),
  "at.max": (x) => x.at(":", ids).max(x),
  take: (x) => np.take(x, ids, 1),
  takeAlongAxis: (x) => np.takeAlongAxis(x, np.argsort(x, 1), 1),
  matmul: (x) => np.matmul(x, x.T),
  einsum: (x) => np.einsum("ij,kj,k->i", x, x, x.get(":", 0)),
  "einsum with a diagonal": (x) => np.einsum("ii->i", x.matmul(x.T)),
  kron: (x) => np.kron(x, x),
  norm: (x) => np.linalg.norm(x, 3, 1),
  softmax: (x) => nn.softmax(x),
  layerNorm: (x) => nn.layerNorm(x, { scale: x.get(0) }),
  oneHot: (x) => nn.oneHot(x.argmax(1), 3),
};

describe.each(Object.entries(functions))("%s", (_, fn) => {
  const first = batch.get(0);

  test("is the same under jit", async () => {
    await expectClose(jit(fn)(first), fn(first));
  });

  test("is the same under vmap as in a loop", async () => {
    await expectClose(vmap(fn)(batch), np.stack([fn(first), fn(batch.get(1))]));
  });

  test("has the gradient that differences show", async () => {
    if (fn(first).dtype !== "float32") return;
    const loss = jit((x: Tensor) => {
      const y = fn(x);
      return y.mul(np.arange(y.size).reshape(y.shape).add(1)).sum();
    });
    const slope = await grad(loss)(first).data();
    // Differences are taken in float64, which the functions keep.
    const values = Float64Array.from(await first.data());
    const moved = (i: number, by: number) =>
      loss(np.array(values.map((value, j) => (i === j ? value + by : value))).reshape(2, 3)).item();
    for (let i = 0; i < values.length; i++) {
      const difference = ((await moved(i, 1e-4)) - (await moved(i, -1e-4))) / 2e-4;
      expect(Math.abs((slope[i] ?? 0) - difference)).toBeLessThan(1e-3 * Math.max(1, Math.abs(difference)));
    }
  });
});
