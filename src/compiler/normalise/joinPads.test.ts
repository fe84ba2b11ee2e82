import { describe, expect, test } from "vitest";
import { Random, randomProgram } from "../../../test/compiler/randomProgram.js";
import { text } from "../../../test/support/compilerText.js";
import { buildProgram, type Emit } from "../../../test/support/interpreting.js";
import { differenceBetween } from "../../../test/support/sameValues.js";
import { newLiteral, type Program, type Var } from "../../ir/program.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { printProgram } from "../../ir/text/print.js";
import { verify } from "../../ir/verify.js";
import { joinPads } from "./joinPads.js";

const mesh = { axes: [] };

/** One summand: a block of `size` elements of a dim, between `low` and `high` elements of padding. */
interface Block {
  readonly low: number;
  readonly size: number;
  readonly high: number;
  readonly padding: number;
}

function pad(emit: Emit, x: Var, { low, high, padding }: Block): Var {
  const params = { low: [0, low], high: [0, high], interior: [0, 0] };
  return at(emit("pad", [x, newLiteral(padding, "float32")], params), 0);
}

/** The sum of padded blocks, added in the order that `join` picks pairs in. */
function sumOfPads(blocks: readonly Block[], join: (count: number) => number): Program {
  const types = blocks.map(({ size }) => tensorType("float32", [2, size]));
  return buildProgram(types, (emit, ...inputs) => {
    const sums = inputs.map((x, i) => pad(emit, x, at(blocks, i)));
    while (sums.length > 1) {
      const [x] = sums.splice(join(sums.length), 1);
      const [y] = sums.splice(join(sums.length), 1);
      if (x && y) sums.push(at(emit("add", [x, y], {}), 0));
    }
    return sums;
  });
}

describe("what joinPads rewrites", () => {
  test("blocks that tile a dim are written once, in the order in which they lie", () => {
    const blocks = [
      { low: 3, size: 2, high: 0, padding: 0 },
      { low: 0, size: 1, high: 4, padding: 0 },
      { low: 1, size: 2, high: 2, padding: 0 },
    ];
    const program = sumOfPads(blocks, () => 0);
    expect(printProgram(program)).toBe(text`
      (%0:f32[2,2], %1:f32[2,1], %2:f32[2,2]) {
        %3:f32[2,5] = pad %0 0.0 {low: [0,3], high: [0,0], interior: [0,0]}
        %4:f32[2,5] = pad %1 0.0 {low: [0,0], high: [0,4], interior: [0,0]}
        %5:f32[2,5] = pad %2 0.0 {low: [0,1], high: [0,2], interior: [0,0]}
        %6:f32[2,5] = add %3 %4
        %7:f32[2,5] = add %5 %6
        return %7
      }`);
    expect(printProgram(joinPads(program))).toBe(text`
      (%0:f32[2,2], %1:f32[2,1], %2:f32[2,2]) {
        %3:f32[2,5] = pad %0 0.0 {low: [0,3], high: [0,0], interior: [0,0]}
        %4:f32[2,5] = pad %1 0.0 {low: [0,0], high: [0,4], interior: [0,0]}
        %5:f32[2,5] = pad %2 0.0 {low: [0,1], high: [0,2], interior: [0,0]}
        %6:f32[2,5] = add %3 %4
        %7:f32[2,5] = concatenate %1 %2 %0 {dim: 1}
        return %7
      }`);
  });

  test("a sum that somebody else reads too stays a sum", () => {
    const halves = [0, 2].map((low) => ({ low, size: 2, high: 2 - low, padding: 0 }));
    const types = [0, 1, 2].map(() => tensorType("float32", [2, 2]));
    const program = buildProgram(types, (emit, x, y, z) => {
      const [first, second] = [pad(emit, x, at(halves, 0)), pad(emit, y, at(halves, 0))];
      const [both] = emit("add", [first, second], {});
      return both ? [both, ...emit("add", [both, pad(emit, z, at(halves, 1))], {})] : [];
    });
    expect(printProgram(joinPads(program))).toBe(printProgram(program));
  });
});

describe("random sums of padded blocks", () => {
  /** Blocks that tile a dim, in random order; every other seed spoils one so that they do not. */
  function randomBlocks(seed: number): { readonly program: Program; readonly isTiling: boolean } {
    const random = new Random(seed);
    const sizes = range(2 + random.below(4)).map(() => 1 + random.below(3));
    const total = sizes.reduce((sum, n) => sum + n, 0);
    const blocks = sizes.map((size, i) => {
      const low = sizes.slice(0, i).reduce((sum, n) => sum + n, 0);
      return { low, size, high: total - low - size, padding: 0 };
    });
    const isTiling = seed % 2 === 0;
    const spoiled = random.below(blocks.length);
    const spoil = (block: Block): Block => {
      if (random.chance(0.5)) return { ...block, padding: 1 };
      const { low, high } = block;
      return low > 0 ? { ...block, low: low - 1, high: high + 1 } : { ...block, low: 1, high: high - 1 };
    };
    const all = blocks.map((block, i) => (!isTiling && i === spoiled ? spoil(block) : block));
    const shuffled = all.map((block) => [random.next(), block] as const).sort(([a], [b]) => a - b);
    return {
      program: sumOfPads(
        shuffled.map(([, block]) => block),
        (count) => random.below(count),
      ),
      isTiling,
    };
  }

  test("become a concatenation exactly where they tile, with the same values", () => {
    for (const seed of range(200)) {
      const { program, isTiling } = randomBlocks(seed);
      const joined = verify(joinPads(program));
      const result = joined.eqns.find((eqn) => eqn.outs.some((v) => joined.outputs.includes(v)));
      expect(result?.op, `seed ${seed}\n${printProgram(program)}`).toBe(isTiling ? "concatenate" : "add");
      expect(differenceBetween(program, joined, mesh, seed), `seed ${seed}`).toBeUndefined();
    }
  });

  test("other programs keep their values, and every equation but such sums as it is", () => {
    for (const seed of range(100)) {
      const program = randomProgram({ seed: 3000 + seed, numEqns: 20, types: ["float32"] });
      const joined = verify(joinPads(program));
      expect(differenceBetween(program, joined, mesh, seed), `seed ${seed}`).toBeUndefined();
      joined.eqns.forEach((eqn, i) => {
        if (eqn.op !== "concatenate") expect(eqn).toBe(program.eqns[i]);
      });
    }
  });
});
