import { describe, expect, test } from "vitest";
import { hostEngine } from "../../engines/host.js";
import {
  costAnalysis,
  explainSharding,
  grad,
  lax,
  Mesh,
  makeProgram,
  np,
  P,
  simplify,
  type Tensor,
  vmap,
} from "../../index.js";
import { forEachEqn, type Program } from "../../ir/program.js";

const mesh = Mesh.create({ data: 2, model: 4 }, { engine: hostEngine });

/** The line of this file on which it is called. */
function lineHere(): number {
  const [, , caller = ""] = (new Error().stack ?? "").split("\n");
  return Number(/:(\d+):\d+\)?$/.exec(caller)?.[1]);
}

/** The lines of this file that equations with some op come from. */
function linesOf(program: Program, op: string): number[] {
  const found: number[] = [];
  forEachEqn(program, (eqn) => {
    if (eqn.op === op) found.push(Number(/explain\.test\.ts:(\d+)/.exec(eqn.source?.text ?? "")?.[1]));
  });
  return found;
}

describe("explainSharding", () => {
  let sorted = 0;
  const rank = (x: Tensor) => {
    sorted = lineHere() + 1;
    return np.sort(np.sin(x), 1);
  };
  const x = np.zeros([4, 8]);

  test("names every gather with its bytes and its line", () => {
    const report = explainSharding(rank, { mesh, inShardings: P("data", "model") })(x);
    expect(report.gathers).toMatchObject([{ what: "sort f32[4,8]", bytes: 64, times: 1 }]);
    expect(report.gathers[0]?.source).toContain(`explain.test.ts:${sorted}`);
    expect(report.gatheredBytes).toBe(64);
  });

  test.each([
    ["once, where the loop has room for what it makes", 64, 1],
    ["in every round, where it has not", 1, 3],
  ])("counts a gather for a loop %s", (_, elements, times) => {
    const largest = (w: Tensor) => lax.slice(np.sort(w), [63], [64]);
    const loop = (w: Tensor, xs: Tensor) =>
      lax.scan((sum: Tensor, x: Tensor) => [sum.add(np.sum(x.mul(largest(w)))), null], np.zeros([]), xs)[0];
    const options = { mesh, inShardings: [P("data"), P()] } as const;
    const report = explainSharding(loop, options)(np.zeros([64]), np.zeros([3, elements]));
    expect(report.gathers).toMatchObject([{ times, bytes: 256 }]);
    expect(report.gatheredBytes).toBe(256 * times);
    expect(report.collectives.find(({ op }) => op === "allGather")?.count).toBe(times);
  });

  test("names the same line in a derivative, in a batch and in a loop", () => {
    const loss = (y: Tensor) => np.sum(rank(y));
    const programs: Program[] = [
      makeProgram(grad(loss))(x),
      makeProgram(vmap(rank))(np.zeros([3, 4, 8])),
      simplify(
        makeProgram((y: Tensor) => lax.scan((c: Tensor) => [rank(c), null], y, null, { length: 3 }))(x),
      ),
      makeProgram(
        grad((y: Tensor) => lax.scan((c: Tensor) => [rank(c), null], y, null, { length: 3 })[0].sum()),
      )(x),
    ];
    for (const program of programs) {
      const lines = linesOf(program, "sort");
      expect(lines.length).toBeGreaterThan(0);
      expect(new Set(lines)).toEqual(new Set([sorted]));
    }
  });

  test("counts how often a gather in a loop happens", () => {
    const loop = (y: Tensor) => lax.scan((c: Tensor) => [rank(c), null], y, null, { length: 3 })[0];
    const report = explainSharding(loop, { mesh, inShardings: P("data", "model") })(x);
    expect(report.gathers[0]?.times).toBe(3);
  });

  test("prints how arguments and results are split", () => {
    const f = ({ w, b }: { w: Tensor; b: Tensor }, y: Tensor) => np.matmul(y, w).add(b);
    const shardings = [{ w: P(null, "model"), b: P("model") }, P("data")] as const;
    const report = explainSharding(f, { mesh, inShardings: shardings })(
      { w: np.zeros([8, 4]), b: np.zeros([4]) },
      x,
    );
    expect(`${report}`).toBe(
      [
        "on the mesh {data: 2, model: 4}",
        '  argument 0/b  f32[4] P("model")',
        '  argument 0/w  f32[8,4] P(null, "model")',
        '  argument 1    f32[4,8] P("data")',
        '  result        f32[4,4] P("data", "model")',
        "nothing is sent",
      ].join("\n"),
    );
  });

  test("names all that is sent, also where nothing is gathered", () => {
    const turned = (y: Tensor) => np.sum(np.roll(np.transpose(y), 1, 1).add(np.cumsum(y.T, 0)));
    const options = { mesh, inShardings: P("model") };
    const report = explainSharding(turned, options)(x);
    expect(report.collectives).toEqual(costAnalysis(turned, options)(x).collectives);
    expect(`${report}`.split("\n").slice(3)).toEqual([
      "sent: 38 B by every device",
      "  1 ppermute       over model        32 B",
      "  1 psum           over model        6 B",
    ]);
  });

  test("counts what loops send as often as they run", () => {
    const loop = (y: Tensor) => lax.scan((c: Tensor) => [np.roll(c, 1, 0), null], y, null, { length: 3 })[0];
    const report = explainSharding(loop, { mesh, inShardings: P("model"), outShardings: P("model") })(x);
    expect(report.gathers).toEqual([]);
    expect(`${report}`).toContain("sent: 96 B by every device\n  3 ppermute       over model        96 B");
    const open = (y: Tensor) =>
      lax.whileLoop(
        (c: Tensor) => np.less(np.max(c), 1),
        (c: Tensor) => np.roll(c, 1, 0),
        y,
      );
    expect(`${explainSharding(open, { mesh, inShardings: P("model") })(x)}`).toMatch(
      /\nsent: [\d.]+ B by every device, a while loop counted as one round\n(.*\n)* {2}1 ppermute /,
    );
  });

  test("says that nothing is split on one device", () => {
    const lines = `${explainSharding(rank)(x)}`.split("\n");
    expect(lines[0]).toBe("on one device, nothing is split");
    expect(lines.at(-1)).toBe("nothing is sent");
  });
});

describe("costAnalysis", () => {
  const x = np.zeros([8, 16]);
  const w = np.zeros([16, 32]);
  const product = (a: Tensor, b: Tensor) => np.matmul(a, b);

  test("counts the operations of one device", () => {
    const cost = costAnalysis(product, { mesh, inShardings: [P("data"), P(null, "model")] })(x, w);
    expect(cost.flops).toBe((2 * 8 * 16 * 32) / 8);
    expect(cost.collectives).toEqual([]);
    expect([cost.inputBytes, cost.outputBytes]).toEqual([4 * 16 * 4 + 16 * 8 * 4, 4 * 8 * 4]);
    expect(cost.peakBytes).toBe(cost.inputBytes + cost.outputBytes);
  });

  test("counts the bytes of collectives by op and axis", () => {
    const cost = costAnalysis(product, {
      mesh,
      inShardings: [P("data", "model"), P("model")],
      outShardings: P("data"),
    })(x, w);
    const result = 4 * 32 * 4;
    expect(cost.collectives).toEqual([
      { op: "psum", axes: ["model"], count: 1, bytes: (2 * result * 3) / 4 },
    ]);
    expect(cost.bytesMoved({ axis: "model" })).toBe((2 * result * 3) / 4);
    expect(cost.bytesMoved({ axis: "data" })).toBe(0);
    expect(cost.bytesMoved({ op: "psum" })).toBe(cost.bytesMoved());
  });

  test("counts loops as often as they run, and of branches the dearest", () => {
    const loop = (a: Tensor) => lax.scan((c: Tensor) => [np.sin(c), null], a, null, { length: 5 })[0];
    expect(costAnalysis(loop)(x).flops).toBe(5 * 8 * 16);
    const branch = (a: Tensor) =>
      lax.cond(
        np.greater(np.sum(a), 0),
        (b: Tensor) => np.sin(np.cos(b)),
        (b: Tensor) => b,
        a,
      );
    expect(costAnalysis(branch)(x).flops).toBeGreaterThanOrEqual(3 * 8 * 16);
    const open = (a: Tensor) =>
      lax.whileLoop(
        (b: Tensor) => np.less(np.sum(b), 1),
        (b: Tensor) => b.add(1),
        a,
      );
    expect(costAnalysis(open)(x).hasOpenLoops).toBe(true);
  });

  test("knows when memory is free again", () => {
    const chain = (a: Tensor) => np.sin(np.cos(np.tanh(a)));
    const bytes = 8 * 16 * 4;
    expect(costAnalysis(chain)(x).peakBytes).toBe(3 * bytes);
    expect(costAnalysis(chain, { donate: 0 })(x).peakBytes).toBe(2 * bytes);
  });

  test("prints itself", () => {
    const cost = costAnalysis(product, { mesh, inShardings: [P("data", "model"), P("model")] })(x, w);
    expect(`${cost}`).toContain("psum");
    expect(`${cost}`).toMatch(/^flops +1,024\npeak memory/);
  });
});
