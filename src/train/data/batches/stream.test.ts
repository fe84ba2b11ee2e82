import { expect, test } from "vitest";
import { byteTokenizer, type Json, type StreamOptions, streamBatches } from "../../index.js";

const texts = Array.from({ length: 30 }, (_, i) => `${i}:${"x".repeat((i * 7) % 13)}`);
const source = () => texts;
const options = { tokenizer: byteTokenizer(), sequenceLength: 9, shuffleBuffer: 8, seed: 4 } as const;

/** The rows of some batches of all ranks, and the position after them. */
async function read(
  numRanks: number,
  batchSize: number,
  count: number,
  position: Json = null,
  more: Partial<StreamOptions> = {},
) {
  const ranks = Array.from({ length: numRanks }, (_, rank) =>
    streamBatches(source, { ...options, batchSize, numRanks, rank, position, ...more }),
  );
  const rows: string[] = [];
  for (let i = 0; i < count; i++) {
    for (const stream of ranks) {
      const { inputs, targets, documents, shape } = await stream.next();
      for (let r = 0; r < shape[0]; r++) {
        const part = (x: ArrayLike<number> = []) => Array.from(x).slice(r * 9, r * 9 + 9);
        rows.push(
          JSON.stringify(
            [inputs, targets, documents?.segmentIds, documents?.positions, documents?.lossMask].map(part),
          ),
        );
      }
    }
  }
  return { rows, position: JSON.parse(JSON.stringify(ranks[0]?.position() ?? null)) as Json };
}

test("every pass has every example once, in an order of its own that the seed decides", async () => {
  const total = texts.reduce((sum, text) => sum + text.length + 1, 0);
  const stream = streamBatches(source, { ...options, batchSize: 1 });
  let tokens: number[] = [];
  while (tokens.length < 2 * total) tokens = [...tokens, ...(await stream.next()).inputs];
  const split = (part: readonly number[]) =>
    byteTokenizer()
      .decode(part.map((t) => (t === 256 ? 10 : t)))
      .split("\n")
      .slice(0, -1);
  const [first, second] = [split(tokens.slice(0, total)), split(tokens.slice(total, 2 * total))];
  for (const pass of [first, second]) expect([...pass].sort()).toEqual([...texts].sort());
  expect(first).not.toEqual(texts);
  expect(second).not.toEqual(first);
  const other = await read(1, 1, 5, null, { seed: 5 });
  expect(other.rows).not.toEqual((await read(1, 1, 5)).rows);
  const inOrder = streamBatches(source, { ...options, batchSize: 1, shuffleBuffer: 1 });
  expect(byteTokenizer().decode((await inOrder.next()).inputs)).toBe("0:1:xxxx");
});

test.each([1, 4, 9, 17, 30])(
  "an interruption after %i batches changes nothing, on any number of ranks",
  async (count) => {
    const whole = await read(1, 2, count + 9);
    const first = await read(1, 2, count);
    const second = await read(2, 2, 5, first.position);
    const third = await read(4, 4, 2, second.position);
    expect([...first.rows, ...second.rows, ...third.rows]).toEqual(whole.rows);
  },
);

test("what cannot be continued or read is refused", async () => {
  const { position } = await read(1, 2, 3);
  await expect(read(1, 2, 1, position, { seed: 9 })).rejects.toThrow("seed was 4 and is 9");
  await expect(read(1, 2, 1, { rows: 7 })).rejects.toThrow("is not a position in a stream");
  await expect(streamBatches(() => [], { ...options, batchSize: 1 }).next()).rejects.toThrow(
    "no (more) examples",
  );
  async function* once() {
    yield* texts;
  }
  const stream = streamBatches(once(), { ...options, batchSize: 100 });
  await expect(stream.next().then(() => stream.next())).rejects.toThrow("no (more) examples");
  expect(() => streamBatches(source, { ...options, batchSize: 3, numRanks: 2 })).toThrow(
    "do not split over 2 ranks",
  );
});
