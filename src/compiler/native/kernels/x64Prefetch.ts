import { byteSize } from "../../../ir/dtype.js";
import type { LoopPlan, Stream } from "../../kernel/loopPlan.js";

/** Minimum size in bytes of what is read from memory rather than from a cache. */
const LARGE = 2 ** 20;

/** How many times more bytes than it writes a kernel must read: others wait for their stores, too. */
const LEAST_READ = 16;

/** Minimum distance in bytes at which prefetching comes in time. */
const LEAST_AHEAD = 2 ** 10;

/**
 * How many bytes ahead of a large stream to prefetch, by stream: what the next iteration of the innermost loop reads at
 * the same place. Processors look ahead by themselves, but only along one line or two in a page of memory, and not far
 * enough while they convert 16-bit floats.
 */
export function bytesAhead({ dims, sections }: LoopPlan): ReadonlyMap<Stream, number> {
  const row = dims.length - 2;
  const spanOf = ({ dtype, terms }: Stream): number =>
    byteSize(dtype) * Math.max(0, ...terms.map(({ dim, factor }) => factor * (dims[dim] ?? 1)));
  const written = sections.flatMap(({ outputs }) =>
    outputs.map((output) => (output.kind === "store" ? spanOf(output.stream) : 0)),
  );
  const least = Math.max(LARGE, LEAST_READ * Math.max(0, ...written));
  const ahead = new Map<Stream, number>();
  for (const stream of sections.flatMap(({ inputs }) => inputs)) {
    if (stream.kind !== "stream" || stream.step !== 1 || stream.index || spanOf(stream) < least) continue;
    const { factor } = stream.terms.find(({ dim }) => dim === row) ?? { factor: 0 };
    if (factor > 0) ahead.set(stream, Math.max(factor * byteSize(stream.dtype), LEAST_AHEAD));
  }
  return ahead;
}
