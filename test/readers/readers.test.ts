import { expect, test } from "vitest";
import { ValueError } from "../../src/ir/errors.js";
import { fuzzReader, type Reader } from "./fuzz.js";
import { readers } from "./readers.js";

test("every reader reads its samples", async () => {
  for (const { name, samples, read } of readers) {
    expect(samples().length, name).toBeGreaterThan(0);
    for (const sample of samples()) await read(sample);
  }
});

test.each(readers)(
  "$name: changed inputs are read, or refused with an error of the library's own",
  async (reader) => {
    const day = Math.floor(Date.now() / 86_400_000);
    const { bad, numInputs } = await fuzzReader(reader, { seed: day, numInputs: 100, usesCoverage: false });
    expect(bad, `npm run fuzz:readers -- --reader "${reader.name}" --seed ${day}`).toBeUndefined();
    expect(numInputs).toBeGreaterThanOrEqual(100);
  },
);

/** Fails like code with a bug, four decisions deep. */
function readPlanted(text: string): void {
  if (!text.startsWith('{"a":')) throw new ValueError("must begin with a");
  const { a } = JSON.parse(text) as { a: unknown };
  if (!Array.isArray(a)) throw new ValueError("a must be a list");
  if (a.length < 3) throw new ValueError("a must have three elements");
  if (a[0] !== null) throw new ValueError("the first one must be null");
  throw new TypeError("the planted bug");
}

const planted: Reader = {
  name: "planted",
  envelope: {
    open: (bytes) => new TextDecoder().decode(bytes),
    close: (text) => new TextEncoder().encode(text),
  },
  samples: () => [new TextEncoder().encode('{"a":1}')],
  read: (bytes) => {
    try {
      readPlanted(new TextDecoder().decode(bytes));
    } catch (error) {
      if (error instanceof SyntaxError) throw new ValueError("not JSON");
      throw error;
    }
  },
};

test("a bug behind several decisions is found, because inputs that come nearer are kept", async () => {
  const { bad, numKept } = await fuzzReader(planted, { seed: 1, numInputs: 200_000 });
  expect(String(bad?.error)).toBe("TypeError: the planted bug");
  expect(numKept).toBeGreaterThan(1);
});
