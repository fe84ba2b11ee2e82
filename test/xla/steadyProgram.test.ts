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
  /** What fails next: the second upload, the start of a copy or of the main program, or its run when the promise settles. */
  failing: "upload" | "copy" | "start" | Promise<void> | undefined;
  numUploads = 0;
  private numAddresses = 0;

  readonly client = {
    upload: () => {
      if (this.numUploads > 0) this.failIf("upload");
      this.numUploads++;
      return this.added(this.numAddresses++, "empty");
    },
    destroy: (array: FakeArray) => {
      if (!this.live.delete(array)) throw new Error("destroyed twice");
    },
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

  private failIf(what: "upload" | "copy" | "start"): void {
    if (this.failing !== what) return;
    this.failing = undefined;
    throw new Error("refused");
  }

  /** A copy, whose text says what its outputs overwrite. */
  readonly copy = async (text: string): Promise<XlaProgram<FakeArray>> => {
    const parameters = /@main\((.*)\) -> \((.*)\) \{/.exec(text);
    const overwritten = (parameters?.[1] ?? "")
      .split(", ")
      .map((one) => /aliasing_output = (\d+)/.exec(one)?.[1]);
    const numOutputs = (parameters?.[2] ?? "").split(", ").length;
    return this.running("copy", (row) => {
      const values = row.slice(-numOutputs).map(({ value }) => value);
      return values.map((value, o) => {
        const place = row[overwritten.indexOf(String(o))];
        return place ? this.added(place.address, value) : this.fresh(value);
      });
    });
  };

  /** `(weights, tokens, place of the loss) → (weights, loss)` */
  readonly main = this.running("start", (row) => {
    this.addresses.push(row.map(({ address }) => address));
    const [weights, tokens, place] = [at(row, 0), at(row, 1), at(row, 2)];
    const results = [
      this.added(weights.address, `${weights.value}'`),
      this.added(place.address, `of ${tokens.value}`),
    ];
    this.live.delete(weights);
    return results;
  });

  private running(
    kind: "copy" | "start",
    run: (row: readonly FakeArray[]) => FakeArray[],
  ): XlaProgram<FakeArray> {
    const start = ([row = []]: readonly (readonly FakeArray[])[]) => {
      if (!row.every((array) => this.live.has(array))) throw new Error("an array was destroyed meanwhile");
      this.failIf(kind);
      let done = Promise.resolve();
      if (kind === "start" && this.failing instanceof Promise) {
        done = this.failing;
        this.failing = undefined;
      }
      done.catch(() => {});
      return { outputs: [run(row)], done };
    };
    const execute = async (inputs: readonly (readonly FakeArray[])[]) => {
      await new Promise((begin) => setTimeout(begin, 1));
      return start(inputs);
    };
    return { execute, executeNow: start, destroy: () => {} };
  }

  /** What is left of places that are copied into and out of. */
  get numEmpty(): number {
    return [...this.live].filter(({ value }) => value === "empty").length;
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
  const compilers = { main: async () => fake.main, copy: fake.copy };
  return { fake, made: await SteadyProgram.compile(fake.client, 0, moving, "", compilers) };
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

  /** Weights and tokens of a run, as a caller has them. */
  const rowOf = (fake: FakeClient, tokens: string) => [fake.fresh("w"), fake.fresh(tokens)];

  test.each(["copy", "start", "later"] as const)(
    "are copied to new places after a failure: %s",
    async (what) => {
      const { fake, made } = await steady();
      await made.execute([rowOf(fake, "first")]);
      const refused = Promise.reject(new Error("refused"));
      refused.catch(() => {});
      fake.failing = what === "later" ? refused : what;
      const failed = made.execute([rowOf(fake, "second")]).then((run) => run.done);
      await expect(failed).rejects.toThrow("refused");
      const run = await made.execute([rowOf(fake, "third")]);
      expect(run.outputs[0]?.[1]?.value).toBe("of third");
      const [first, last] = [fake.addresses[0], fake.addresses.at(-1)];
      expect(last?.[2]).not.toBe(first?.[2]);
      made.destroy();
      expect(fake.numEmpty).toBe(0);
    },
  );

  test("release what a run has made if its results cannot be copied", async () => {
    const { fake, made } = await steady();
    const row = rowOf(fake, "first");
    const startMain = fake.main.executeNow;
    if (!startMain) throw new Error("no start");
    // The main program starts, and what follows it does not.
    fake.main.executeNow = (inputs) => {
      const run = startMain(inputs);
      fake.failing = "copy";
      return run;
    };
    expect(() => made.executeNow?.([row])).toThrow("refused");
    made.destroy();
    expect([...fake.live].map(({ value }) => value)).toEqual(["first"]);
  });

  test("keep nothing if there is no memory for places", async () => {
    const { fake, made } = await steady();
    fake.failing = "upload";
    await expect(made.execute([rowOf(fake, "first")])).rejects.toThrow("refused");
    expect(fake.numEmpty).toBe(0);
    await made.execute([rowOf(fake, "second")]);
  });

  test("keep places that the start of another run uses when a run fails", async () => {
    const { fake, made } = await steady();
    let fail = (_reason: Error) => {};
    fake.failing = new Promise((_, reject) => {
      fail = reject;
    });
    const first = await made.execute([rowOf(fake, "first")]);
    const starting = made.execute([rowOf(fake, "second")]);
    fail(new Error("broken"));
    await expect(first.done).rejects.toThrow("broken");
    const second = await starting;
    expect(second.outputs[0]?.[1]?.value).toBe("of second");
    const { numUploads } = fake;
    await made.execute([rowOf(fake, "third")]);
    expect(fake.numUploads).toBe(2 * numUploads);
    made.destroy();
    expect(fake.numEmpty).toBe(0);
  });

  test("keep new places when a run of the old ones fails", async () => {
    const { fake, made } = await steady();
    const fails: ((reason: Error) => void)[] = [];
    const failures: Promise<void>[] = [];
    for (const tokens of ["first", "second"]) {
      fake.failing = new Promise((_, reject) => fails.push(reject));
      failures.push((await made.execute([rowOf(fake, tokens)])).done);
    }
    const outcome = Promise.allSettled(failures);
    fails[0]?.(new Error("broken"));
    await expect(failures[0]).rejects.toThrow("broken");
    await made.execute([rowOf(fake, "third")]);
    const { numUploads } = fake;
    fails[1]?.(new Error("broken"));
    await outcome;
    await made.execute([rowOf(fake, "fourth")]);
    expect(fake.numUploads).toBe(numUploads);
  });
});
