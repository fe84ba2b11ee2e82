/** Programs that find everything at the same addresses in every run, on a client that only keeps account of its arrays. */
import { describe, expect, test } from "vitest";
import { SteadyProgram, smallMovingParts } from "../../src/engines/xla/steadyProgram.js";
import type { XlaClient, XlaProgram } from "../../src/engines/xla/xlaClient.js";
import { newVar } from "../../src/ir/program.js";
import { at, tensorType } from "../../src/ir/shape.js";

/** An array: where it lies, and what is in it. */
interface FakeArray {
  readonly address: number;
  readonly value: string;
}

/** A client whose arrays are texts, which tells what it runs and what is left. */
class FakeClient {
  readonly live = new Set<FakeArray>();
  /** The addresses of the inputs of each run of the main program. */
  readonly addresses: number[][] = [];
  /** When the next run of the main program fails. */
  failing: "never" | "start" | "later" = "never";
  private numAddresses = 0;

  readonly client = {
    upload: () => this.added(this.numAddresses++, "empty"),
    destroy: (array: FakeArray) => {
      if (!this.live.delete(array)) throw new Error("destroyed twice");
    },
    compile: async (text: string) => this.program(text),
  } as unknown as XlaClient<FakeArray>;

  added(address: number, value: string): FakeArray {
    const array = { address, value };
    this.live.add(array);
    return array;
  }

  /** A new array, as a caller has them. */
  fresh(value: string): FakeArray {
    return this.added(this.numAddresses++, value);
  }

  /** What a text says that its outputs overwrite; copies give what they are given. */
  private program(text: string): XlaProgram<FakeArray> {
    const parameters = /@main\((.*)\) -> \((.*)\) \{/.exec(text);
    const overwritten = (parameters?.[1] ?? "")
      .split(", ")
      .map((one) => /aliasing_output = (\d+)/.exec(one)?.[1]);
    const numOutputs = (parameters?.[2] ?? "").split(", ").length;
    return this.running((row) => {
      const values = row.slice(-numOutputs).map(({ value }) => value);
      return values.map((value, o) => {
        const place = row[overwritten.indexOf(String(o))];
        return place ? this.added(place.address, value) : this.fresh(value);
      });
    });
  }

  /** `(weights, tokens, place of the loss) → (weights, loss)` */
  readonly main = this.running((row) => {
    this.addresses.push(row.map(({ address }) => address));
    const [weights, tokens, place] = [at(row, 0), at(row, 1), at(row, 2)];
    const results = [
      this.added(weights.address, `${weights.value}'`),
      this.added(place.address, `of ${tokens.value}`),
    ];
    this.live.delete(weights);
    return results;
  }, true);

  private running(run: (row: readonly FakeArray[]) => FakeArray[], mayFail = false): XlaProgram<FakeArray> {
    const start = ([row = []]: readonly (readonly FakeArray[])[]) => {
      const failing = mayFail ? this.failing : "never";
      if (mayFail) this.failing = "never";
      if (failing === "start") throw new Error("refused");
      const done = failing === "later" ? Promise.reject(new Error("broken")) : Promise.resolve();
      done.catch(() => {});
      return { outputs: [run(row)], done };
    };
    return { execute: async (inputs) => start(inputs), executeNow: start, destroy: () => {} };
  }
}

const [weights, tokens, loss] = [
  tensorType("float32", [1 << 20]),
  tensorType("int32", [8]),
  tensorType("float32", []),
];
const [w, t, l] = [newVar(weights), newVar(tokens), newVar(loss)];
const program = { inputs: [w, t], eqns: [], outputs: [w, l] };

async function steady(): Promise<{ fake: FakeClient; made: SteadyProgram<FakeArray> }> {
  const fake = new FakeClient();
  const moving = smallMovingParts(program, [true, false]);
  if (!moving) throw new Error("too large to copy");
  return { fake, made: await SteadyProgram.compile(fake.client, 0, moving, Promise.resolve(fake.main)) };
}

describe("programs with addresses that stay", () => {
  test("copy what is not overwritten, if it is small", () => {
    const parts = smallMovingParts(program, [true, false]);
    expect([parts?.inputs.indices, parts?.outputs.indices]).toEqual([[1], [1]]);
    expect(smallMovingParts(program, [false, false])).toBeUndefined();
  });

  test.each(["execute", "executeNow"] as const)("find other tokens in the same place, by %s", async (how) => {
    const { fake, made } = await steady();
    let row = [fake.fresh("w"), fake.fresh("first")];
    const losses: FakeArray[] = [];
    for (const next of ["second", "third"]) {
      const run = await made[how]?.([row]);
      const [own, value] = run?.outputs[0] ?? [];
      if (!own || !value) throw new Error("no results");
      losses.push(value);
      row = [own, fake.fresh(next)];
    }
    expect(losses.map(({ value }) => value)).toEqual(["of first", "of second"]);
    expect(new Set(losses.map(({ address }) => address)).size).toBe(2);
    expect(fake.addresses).toHaveLength(2);
    expect(fake.addresses[1]).toEqual(fake.addresses[0]);
    made.destroy();
    // The weights, three arrays of tokens and two losses are the caller's.
    expect([...fake.live].map(({ value }) => value).sort()).toEqual([
      "first",
      "of first",
      "of second",
      "second",
      "third",
      "w''",
    ]);
  });

  test.each(["start", "later"] as const)(
    "copy to new places after a run that fails at its %s",
    async (when) => {
      const { fake, made } = await steady();
      const given = [fake.fresh("w"), fake.fresh("first")];
      await made.execute([given]);
      const again = [fake.fresh("w"), fake.fresh("second")];
      fake.failing = when;
      const failed = made.execute([again]).then((run) => run.done);
      await expect(failed).rejects.toThrow(when === "start" ? "refused" : "broken");
      const run = await made.execute([[fake.fresh("w"), fake.fresh("third")]]);
      expect(run.outputs[0]?.[1]?.value).toBe("of third");
      const [first, last] = [fake.addresses[0], fake.addresses.at(-1)];
      expect(last?.[2]).not.toBe(first?.[2]);
      made.destroy();
      expect([...fake.live].filter(({ value }) => value === "empty")).toEqual([]);
    },
  );
});
