import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import {
  devicePut,
  jit,
  Mesh,
  NamedSharding,
  np,
  P,
  type PartitionSpec,
  type Tensor,
  withMesh,
} from "../../index.js";
import * as nn from "../../nn/index.js";
import { KnownCalls } from "./knownCalls.js";

const find = vi.spyOn(KnownCalls.prototype, "find");
beforeEach(() => void find.mockClear());
afterEach(() => void find.mockClear());

/** Which of the calls since the last time were recognised without a key. */
function recognised(): boolean[] {
  const found = find.mock.results.map(({ value }) => value !== undefined);
  find.mockClear();
  return found;
}

describe("a call of a compiled function", () => {
  test("is recognised when it comes again, numbers, flags and missing parts included", async () => {
    const f = jit((p: { a: Tensor; b: [number, null]; on: boolean }, how: string) =>
      np.add(p.a, p.b[0]).mul(p.on && how === "twice" ? 2 : 1),
    );
    const call = (n: number, on: boolean, how: string) => f({ a: np.array([1, 2]), b: [n, null], on }, how);
    await expectClose(call(1, true, "twice"), [4, 6]);
    await expectClose(call(2, true, "twice"), [6, 8]);
    await expectClose(call(3, false, "twice"), [4, 5]);
    await expectClose(call(4, true, "once"), [5, 6]);
    await expectClose(call(5, false, "twice"), [6, 7]);
    expect(recognised()).toEqual([false, true, false, false, true]);
  });

  test("is another one when types, trees, tensors instead of numbers or static values differ", async () => {
    const f = jit(
      (tree: Readonly<Record<string, unknown>>, _how: unknown) =>
        Object.values(tree)
          .filter((leaf) => leaf !== null && leaf !== undefined)
          .map((leaf) => np.sum(leaf as Tensor).astype("float32"))
          .reduce((a, b) => a.add(b)),
      { staticArgnums: 1 },
    );
    const one = np.array([1, 2]);
    const calls: [Readonly<Record<string, unknown>>, unknown, number][] = [
      [{ a: one, b: one }, 0, 6],
      [{ a: one, b: np.array([1, 2], "int32") }, 0, 6],
      [{ a: one, b: np.array([[1, 2]]) }, 0, 6],
      [{ a: one, b: one, c: one }, 0, 9],
      [{ a: one, c: one }, 0, 6],
      [{ a: one, b: null }, 0, 3],
      [{ a: one, b: 4 }, 0, 7],
      [{ a: one, b: one }, "0", 6],
    ];
    for (const [tree, how, sum] of calls) await expectClose(f(tree, how), sum);
    expect(recognised()).toEqual(calls.map(() => false));
    await expectClose(f({ a: one, b: 5 }, 0), 8);
    await expectClose(f({ b: undefined, a: one }, 0), 3);
    expect(recognised()).toEqual([true, true]);
  });

  test("is another one on another mesh or with other shardings", async () => {
    const [x, y] = [Mesh.create({ x: 2 }), Mesh.create({ y: 2 })];
    const f = jit((v: Tensor) => v.mul(2));
    const put = (mesh: Mesh, spec: PartitionSpec) => devicePut(np.arange(4), new NamedSharding(mesh, spec));
    for (const _ of [0, 1]) {
      expect(f(await put(x, P("x"))).sharding?.toString()).toBe(new NamedSharding(x, P("x")).toString());
      await expectClose(f(await put(x, P())), [0, 2, 4, 6]);
      expect(f(await put(y, P("y"))).sharding?.mesh.axisNames).toEqual(["y"]);
      await expectClose(
        withMesh(x, () => f(np.arange(4))),
        [0, 2, 4, 6],
      );
    }
    expect(recognised()).toEqual([false, false, false, false, true, true, true, true]);
  });

  test("recognises classes, and keeps nothing of the trees that it was made with", async () => {
    const f = jit((box: nn.Partitioned<Tensor>) => new nn.Partitioned(box.value.mul(3), box.names));
    const box = (value: Tensor, name: string) => new nn.Partitioned(value, [name]);
    await expectClose(f(box(np.array([1]), "a")).value, [3]);
    await expectClose(f(box(np.array([2]), "a")).value, [6]);
    await expectClose(f(box(np.array([2]), "b")).value, [6]);
    expect(recognised()).toEqual([false, true, false]);
  });

  test("gives donated memory away each time", async () => {
    const step = jit((v: Tensor) => v.add(1), { donate: 0 });
    let x = np.array([1, 2]);
    for (const _ of [0, 1, 2]) {
      const before = x;
      x = step(x);
      expect(() => step(before)).toThrow(/was released/);
    }
    await expectClose(x, [4, 5]);
  });
});
