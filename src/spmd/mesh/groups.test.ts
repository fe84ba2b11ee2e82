import { grad, jit, lax, Mesh, np, P, shardMap, type Tensor, vmap } from "shardwise";
import { describe, expect, test } from "vitest";

const axisIndexGroups = [
  [0, 3],
  [2, 1],
];
const mesh = Mesh.create({ d: 4 });
/** Device i has row i: [10 i, 10 i + 1, 10 i + 2, 10 i + 3]. */
const x = np.add(np.arange(4, "float32").reshape([4, 1]).mul(10), np.arange(4, "float32").reshape([1, 4]));

type Collective = (row: Tensor) => Tensor;

/** What every device gets, one after the other: in a shard map, and over a mapped dim of the same name. */
async function results(fn: Collective): Promise<unknown> {
  const onDevices = shardMap((rows: Tensor) => fn(rows.reshape([4])).reshape([1, -1]), {
    mesh,
    inSpecs: [P("d")],
    outSpecs: P("d"),
  });
  const [got, mapped] = [
    jit(onDevices)(x),
    vmap((row: Tensor) => fn(row).reshape([-1]), { axisName: "d" })(x),
  ];
  expect(await mapped.js()).toEqual(await got.js());
  return got.js();
}

describe("collectives in groups", () => {
  test("combine what the members of each group have", async () => {
    const [a, b] = [
      [30, 32, 34, 36],
      [30, 32, 34, 36],
    ];
    expect(await results((row) => lax.psum(row, "d", { axisIndexGroups }))).toEqual([a, b, b, a]);
    expect(await results((row) => lax.pmean(row, "d", { axisIndexGroups }))).toEqual(
      [a, b, b, a].map((list) => list.map((value) => value / 2)),
    );
    const high = [
      [30, 31, 32, 33],
      [20, 21, 22, 23],
    ] as const;
    expect(await results((row) => lax.pmax(row, "d", { axisIndexGroups }))).toEqual([
      high[0],
      high[1],
      high[1],
      high[0],
    ]);
    const low = [
      [0, 1, 2, 3],
      [10, 11, 12, 13],
    ] as const;
    expect(await results((row) => lax.pmin(row, "d", { axisIndexGroups }))).toEqual([
      low[0],
      low[1],
      low[1],
      low[0],
    ]);
    const size = shardMap(() => np.array(lax.psum(1, "d", { axisIndexGroups })), {
      mesh,
      inSpecs: [],
      outSpecs: P(),
    });
    expect(await size().item()).toBe(2);
  });

  test("hand blocks on in the order of the group", async () => {
    const rows = (...of: number[]) => of.map((i) => [0, 1, 2, 3].map((j) => 10 * i + j));
    const gathered = [rows(0, 3).flat(), rows(2, 1).flat(), rows(2, 1).flat(), rows(0, 3).flat()];
    expect(await results((row) => lax.allGather(row, "d", { axisIndexGroups, tiled: true }))).toEqual(
      gathered,
    );
    expect(await results((row) => lax.allGather(row, "d", { axisIndexGroups }))).toEqual(gathered);
    // Device 2 is the first of its group, device 1 the second.
    expect(await results((row) => lax.psumScatter(row, "d", { axisIndexGroups, tiled: true }))).toEqual([
      [30, 32],
      [34, 36],
      [30, 32],
      [34, 36],
    ]);
    const swapped = [
      [0, 1, 30, 31],
      [22, 23, 12, 13],
      [20, 21, 10, 11],
      [2, 3, 32, 33],
    ];
    expect(await results((row) => lax.allToAll(row, "d", 0, 0, { axisIndexGroups, tiled: true }))).toEqual(
      swapped,
    );
    expect(await results((row) => lax.allToAll(row.reshape([2, 2]), "d", 0, 0, { axisIndexGroups }))).toEqual(
      swapped,
    );
  });

  test("pull cotangents back to the members they came from", async () => {
    const weights = np.array([1, 2, 3, 4]);
    const loss = (values: Tensor) => {
      const onDevices = shardMap(
        (rows: Tensor, w: Tensor) => {
          const sums = lax.psum(rows.mul(rows), "d", { axisIndexGroups });
          return lax.psum(np.sum(sums).mul(np.sum(w)), "d");
        },
        { mesh, inSpecs: [P("d"), P("d")], outSpecs: P() },
      );
      return onDevices(values, weights);
    };
    const gradient = jit(grad(loss))(x);
    // A row is in the sums of both members: its square counts with the weights of both, 5 in either group.
    expect(await np.allclose(gradient, x.mul(10)).item()).toBe(1);
  });

  test("refuse groups that leave devices out, or that differ in size", () => {
    const run = (groups: number[][]) => () =>
      shardMap((v: Tensor) => lax.psum(v, "d", { axisIndexGroups: groups }), {
        mesh,
        inSpecs: [P("d")],
        outSpecs: P("d"),
      })(x);
    expect(run([[0, 1]])).toThrow(/must name each of the positions 0 to 3 once/);
    expect(run([[0, 1, 2], [3]])).toThrow(/has groups of 3 and of 1: use groups of the same size/);
  });
});
