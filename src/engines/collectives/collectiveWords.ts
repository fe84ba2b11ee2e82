/**
 * The words that the devices of one loaded program share for its collectives: a block for each collective and each
 * position of the mesh, followed by the progress of the device at each position, for each kind of groups
 * (`desyncDetector.ts`).
 */
import { aligned, float64Words, layout, onNewLine } from "../protocol/layout.js";

/** What a position shares in one collective. */
export const WORDS = layout({
  ready: onNewLine(),
  finished: 1,
  source: float64Words(),
  target: float64Words(),
  /** Where the two staged copies lie. */
  staged: float64Words(2),
  /** Run and sequence number of the last two uses; see {@link STAMP}. */
  stamps: 4,
  /** The progress of a member that receives messages for others of its process. */
  arrived: 1,
  // The counters, which all members write, are on a different cache line from the words that only their owner writes.
  readyCount: onNewLine(),
  /** Where a member that receives messages for others has put them. */
  received: aligned(4, 2),
  finishedCount: aligned(8),
});

/** The stamp of one use of a collective. */
export const STAMP = layout({ run: 1, sequence: 1 });

/** The progress of a device through the collectives of one kind of groups. */
export const PROGRESS = layout({ run: 1, sequence: 1 });

/** Zeroed words for one loaded program. */
export function newCollectiveWords(
  numCollectives: number,
  numCommunicators: number,
  numPositions: number,
): Int32Array<SharedArrayBuffer> {
  const numBlocks = (numCollectives + numCommunicators) * numPositions;
  return new Int32Array(new SharedArrayBuffer(4 * WORDS.size * Math.max(1, numBlocks)));
}

/**
 * Where the block of a position begins.
 *
 * @param index of a collective, or that of a kind of groups counted on from the last collective
 */
export function blockOf(index: number, numPositions: number, position: number): number {
  return (index * numPositions + position) * WORDS.size;
}
