import { describe, expect, test } from "vitest";
import { nodeProgram } from "./support/built.js";
import { outputOf, outputsOf } from "./support/examples.js";
import { extended, testWith } from "./support/optional.js";

/** What an example prints when it is run as the README says. */
const outputByName = (name: string) =>
  outputOf(["--import", "./scripts/typescript.mjs", "scripts/example.mjs", name]);

/** The blocks that devices show below a title. */
function blocksBelow(title: string, text: string): unknown[] {
  const lines = text.split("\n");
  const start = lines.findIndex((line) => line.startsWith(title));
  if (start < 0) throw new Error(`the example prints no "${title}"`);
  return lines.slice(start + 1, start + 5).map((line) => JSON.parse(line.replace(/^ {2}device \d: /, "")));
}

describe("examples", () => {
  test("collectives shows what each collective does on four devices", { timeout: 120_000 }, async () => {
    const text = await outputByName("collectives");
    expect(blocksBelow("psum(x", text)[3]).toEqual([1111, 2222]);
    expect(blocksBelow('allGather(x, "i"):', text)[2]).toEqual([
      [1, 2],
      [10, 20],
      [100, 200],
      [1000, 2000],
    ]);
    expect(blocksBelow("psumScatter", text)).toEqual([[24], [28], [32], [36]]);
    expect(blocksBelow("allToAll", text)[1]).toEqual([1, 5, 9, 13]);
    expect(blocksBelow("pshift", text)[0]).toEqual([1000, 2000]);
    expect(blocksBelow("ppermute", text)).toEqual([
      [1000, 2000],
      [0, 0],
      [1, 2],
      [0, 0],
    ]);
    expect(blocksBelow("its gradient", text)[1]).toEqual([20, 40]);
    expect(text).toContain("known at once: 4");
  });

  const outputs = outputsOf({
    cnn: { STEPS: "20", TARGET: "0.8" },
    lstm: { STEPS: "100", TARGET: "0.1" },
    gpt: { STEPS: "20", TARGET: "3.2" },
  });
  // Whichever test waits for them reports their failure.
  outputs.catch(() => {});

  test.each([
    ["cnn", /\d % of 500 unseen images/],
    ["lstm", /step 100: mean squared error 0\.0/],
    ["gpt", /loss 3\.[01]\d+ on unseen text/],
  ])("%s learns", { timeout: 120_000 }, async (name, line) => {
    expect((await outputs).get(name)).toMatch(line);
  });

  // One that fails runs with the examples of parallelism.
  for (const [name, TARGET] of [
    ["cnn", "1"],
    ["lstm", "0"],
  ] as const)
    testWith(
      extended("npm run test:rest", process.env.CASES === "all"),
      `${name} fails when it stays away from its target`,
      {},
      async () => {
        const command = nodeProgram(`examples/${name}.ts`);
        await expect(outputOf(command, { STEPS: "1", TARGET })).rejects.toThrow(/below/);
      },
    );

  test("a name that does not exist lists those that do", async () => {
    await expect(outputByName("nothing")).rejects.toThrow(/where NAME is one of: .*collectives/);
  });
});
