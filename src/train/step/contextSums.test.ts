import { describe, expect, test } from "vitest";
import { Mesh, np } from "../../index.js";
import { isCollective } from "../../ir/opFacts.js";
import { type Eqn, innerPrograms, type Program } from "../../ir/program.js";
import { at, formatType } from "../../ir/shape.js";
import { sgd } from "../../optim/index.js";
import type { ScheduleName } from "../../parallel/schedule/makers.js";
import type { ModelConfig } from "../models/config.js";
import { chunksOf } from "../models/scheduled.js";
import { createTraining } from "./training.js";

/** The program of a device for a step in two stages, with sequences in parts. */
function programOf(kind: ModelConfig["kind"], schedule: ScheduleName, context: number): Program {
  const repeats = schedule === "interleaved" ? 2 : 1;
  const training = createTraining({
    model: {
      ...{
        kind,
        vocabSize: 24,
        width: 16,
        numLayers: 2 * chunksOf(schedule, repeats),
        numHeads: 4,
        numKvHeads: 4,
      },
      ...{ mlpWidth: 32, tieEmbeddings: false, ropeBase: 10_000, normEpsilon: 1e-6 },
      ...{ dtype: "bfloat16", remat: "none", experts: { numExperts: 4 } },
    },
    mesh: Mesh.create({ data: 1, fsdp: 1, pipe: 2, model: 1, context }),
    pipeline: { microbatches: 4, repeats, schedule },
    context: "ring",
    optimizer: sgd({ learningRate: 1 }),
    zLoss: 0,
  });
  return training.lower(training.init(0), np.zeros([8, 17], "int32")).program;
}

/** The collectives over `context` that every action of a schedule repeats, and those that a step has once. */
function collectivesOf(program: Program): { readonly inActions: string[]; readonly once: string[] } {
  const found = { inActions: [] as string[], once: [] as string[] };
  const visit = ({ eqns }: Program, isAction: boolean): void => {
    for (const eqn of eqns) {
      if (isCollective(eqn.op) && alongContext(eqn)) {
        found[isAction ? "inActions" : "once"].push(`${eqn.op} ${formatType(at(eqn.ins, 0).type)}`);
      }
      for (const [, inner] of innerPrograms(eqn)) visit(inner, isAction || eqn.op === "cond");
    }
  };
  visit(program, false);
  return found;
}

const alongContext = ({ params }: Eqn): boolean =>
  "axes" in params && Array.isArray(params.axes) && params.axes.some(({ name }) => name === "context");

const isFloat = (line: string): boolean => !line.includes("i32[");
const movesWeights = (line: string): boolean => isFloat(line) && !line.startsWith("ppermute");

describe("a stage of a pipeline whose sequences are split", () => {
  const cases = [
    ["1f1b", 2, 1],
    ["zb-h1", 2, 1],
    ["interleaved", 4, 2],
  ] as const;
  test.each(cases)(
    "gathers weights and sums gradients once in a step of %s over %i devices",
    (name, context, numChunks) => {
      const { inActions, once } = collectivesOf(programOf("llama", name, context));
      // The loss is a mean over tokens.
      expect(inActions.filter(movesWeights)).toEqual(["psum f32[]"]);
      const weights = once.filter(movesWeights);
      // Norms are whole everywhere.
      expect(weights.filter((line) => line.startsWith("allGather bf16"))).toHaveLength(9);
      expect(weights.filter((line) => line.startsWith("psum f32"))).toHaveLength(3 + 9 * numChunks);
      expect(weights.filter((line) => !/^(allGather bf16|psum f32)/.test(line))).toEqual([]);
    },
  );

  test("sums what experts and their routers learn once, and only statistics of routers in actions", () => {
    const { inActions, once } = collectivesOf(programOf("moe", "1f1b", 2));
    expect(
      inActions.filter(movesWeights).filter((line) => !/^psum f32\[(2|2,4|9|2,9)?\]$/.test(line)),
    ).toEqual([]);
    expect(once).toContain("psum f32[1,4,16,32]");
    expect(once).toContain("psum f32[1,16,4]");
  });
});
