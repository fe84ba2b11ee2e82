/**
 * How many devices learn that all of them have come without every one looking at every other. Members count
 * themselves in groups of four; who is last in a group counts the group, and who is last of all lets every group go by
 * a word that only its members look at. Words are on lines of their own: those that are counted in are not those that
 * are waited for. Nothing is set back, as sequence numbers only grow.
 */
import { at, range } from "../../ir/shape.js";

/** How many members count in one word. */
const GROUP = 4;

/** The words of a kind of meeting: the count of a group, that of all groups, and who may go. */
export interface MeetingWords {
  readonly members: number;
  readonly groups: number;
  readonly released: number;
}

/** One member's way through meetings. */
export interface Meeting {
  /** Counts this member; whether it was the last of all, which has let everybody go. */
  arrive(sequence: number): boolean;
  /** The word that reaches the sequence number of a meeting when all have come. */
  readonly released: number;
}

/**
 * Makes ready for the meetings of one kind.
 *
 * @param lines where the words of each member begin
 */
export function prepareMeeting(
  words: Int32Array,
  lines: readonly number[],
  me: number,
  { members, groups, released }: MeetingWords,
): Meeting {
  const numGroups = Math.ceil(lines.length / GROUP);
  const mine = Math.floor(me / GROUP);
  const size = Math.min(GROUP, lines.length - mine * GROUP);
  // A group's words are those of its first member, all groups' those of the first of all.
  const leaders = range(numGroups).map((group) => at(lines, group * GROUP));
  const [line, root] = [at(leaders, mine), at(leaders, 0)];
  const isLast = (word: number, count: number, sequence: number) =>
    ((Atomics.add(words, word, 1) + 1 - Math.imul(sequence, count)) | 0) >= 0;
  return {
    arrive(sequence) {
      if (!isLast(line + members, size, sequence)) return false;
      if (!isLast(root + groups, numGroups, sequence)) return false;
      for (let i = 0; i < leaders.length; i++) Atomics.store(words, (leaders[i] ?? 0) + released, sequence);
      return true;
    },
    released: line + released,
  };
}
