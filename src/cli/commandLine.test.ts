import { describe, expect, test } from "vitest";
import { fieldsOf } from "../train/config/configSchema.js";
import { readRunConfig, runSchema } from "../train/config/runConfig.js";
import { parseArguments } from "./commandLine.js";
import { generate } from "./commands/generate.js";
import { commandHelp } from "./help.js";
import { argumentsOf } from "./runArguments.js";

const accepted = { values: ["prompt"], switches: ["resume"], fields: [...fieldsOf(runSchema).keys()] };
const problems = (...args: readonly string[]) => parseArguments(args, accepted).problems.join("\n");

describe("the arguments of a command", () => {
  test("are options with values, switches, and the rest", () => {
    const parsed = parseArguments(
      ["a.json", "--steps=1e3", "--resume", "--prompt", "-", "--mesh", "data=2, pipe=3"],
      accepted,
    );
    expect(parsed).toEqual({
      positional: ["a.json"],
      options: new Map<string, string | true>([
        ["resume", true],
        ["prompt", "-"],
      ]),
      settings: [
        { path: "steps", value: "1e3" },
        ...Object.entries({ data: "2", fsdp: "1", expert: "1", pipe: "3", context: "1", model: "1" }).map(
          ([axis, value]) => ({
            path: `mesh.${axis}`,
            value,
          }),
        ),
      ],
      problems: [],
    });
  });

  test.each([
    ["data=", /axis data needs at least 1 device.* as in data=2, got "data="/],
    ["data=0", /as in data=1, got "data=0"/],
    ["data=1.5", /as in data=2, got "data=1.5"/],
    ["data=2=3", /got "data=2=3"/],
    ["data=-4", /as in data=1/],
    ["data=2,data=3", /axis data is named twice, in "data=2,data=3"/],
    [
      "dta=2",
      /unknown axis "dta"; the axes are data, fsdp, expert, pipe, context, model; did you mean data\?/,
    ],
    ["", /unknown axis ""/],
  ])('of a mesh are refused when they are "%s"', (mesh, says) => {
    expect(problems("--mesh", mesh)).toMatch(says);
  });

  test("are all reported at once, with what was probably meant", () => {
    expect(
      problems(
        "--steps",
        "3",
        "--steps",
        "5",
        "--resume=no",
        "-resume",
        "--mesh",
        "pipe=2",
        "--mesh.data",
        "2",
        "--widht",
        "1",
      ),
    ).toBe(
      [
        'option --steps is given twice, as "3" and as "5": give it once',
        'option --resume takes no value, got "no"',
        "unknown option -resume; did you mean --resume?",
        "unknown option --widht; did you mean --model.width?",
        "options --mesh and --mesh.data both set the sizes of axes: use one of them",
      ].join("\n"),
    );
  });
});

describe("a configuration", () => {
  test("is refused with all that is wrong, in fields and between them, and the nearest values", () => {
    const { violations } = readRunConfig(
      {
        model: { width: 130, heads: 4 },
        data: { batch: 5 },
        mesh: { data: 2 },
        steps: -5,
        optimiser: {},
        width: 8,
      },
      [
        { path: "optimizer.learningRate", value: "Infinity" },
        { path: "seed", value: "" },
        { path: "model.mlpWidth", value: "12.4" },
      ],
    );
    expect(violations).toEqual([
      "unknown field model.heads; did you mean model.numHeads?",
      "unknown field optimiser; did you mean optimizer?",
      "unknown field width; did you mean model.width?",
      'model.mlpWidth is "12.4": use an integer of at least 1; the nearest is 12',
      'optimizer.learningRate is "Infinity": use a number of at least 0',
      "steps is -5: use an integer of at least 1; the nearest is 1",
      'seed is "": use an integer of at least 0',
      "model.width is 130, not a multiple of twice numHeads = 8: use 128 or 136, or another model.numHeads",
      "data.batch is 5, which does not split 2 ways (data x fsdp: 5 / 2 = 2.5): use 4 or 6",
    ]);
  });

  test("does not blame a field for what another that cannot be read may have to do with", () => {
    const { violations } = readRunConfig({ data: { batch: 5 }, mesh: { data: "two" } });
    expect(violations).toEqual(['mesh.data is "two": use an integer of at least 1']);
  });

  test("says what to use where a size is too small to be split", () => {
    const { violations } = readRunConfig({ data: { batch: 4 }, mesh: { data: 1000 } });
    expect(violations).toEqual([
      "data.batch is 4, which does not split 1000 ways (data x fsdp: 4 / 1000 = 0.004): use 1000",
    ]);
  });

  test.each([[[]], [null], [3], ["text"]])("has to be an object, not %j", (json) => {
    expect(readRunConfig(json).violations).toEqual([
      `the configuration must be an object, got ${JSON.stringify(json)}`,
    ]);
  });
});

describe("the options of a command", () => {
  test("have the types and defaults of their fields, which help shows", () => {
    const { values } = argumentsOf(["runs/default", "--length", "30", "--temperature=0"], generate);
    expect(values).toEqual({
      prompt: "",
      prompts: undefined,
      slots: 8,
      length: 30,
      temperature: 0,
      "top-k": 0,
      "top-p": 1,
      "min-p": 0,
      "repetition-penalty": 1,
      stop: "",
      seed: 0,
      mesh: undefined,
      dtype: undefined,
      ignoreFields: "",
      engine: undefined,
    });
    expect(commandHelp(generate)).toMatch(/--length +number of tokens to add; 200 by default\n/);
  });

  test("are all checked before the command runs", () => {
    expect(() => argumentsOf(["--length", "1.5", "--seed", "x", "--top-k", "-1"], generate)).toThrow(
      [
        '--length is "1.5": use an integer of at least 0; the nearest is 2',
        '--top-k is "-1": use an integer of at least 0; the nearest is 0',
        '--seed is "x": use an integer of at least 0',
      ].join("\n"),
    );
  });
});
