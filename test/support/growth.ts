/** The memory of a process at some turn of a loop. */
export interface Sample {
  readonly turn: number;
  readonly bytes: number;
}

/**
 * By how many bytes a turn memory grows in the second half of a loop, when it is warm: the median of the slopes between
 * any two samples, which single peaks and steps of the garbage collector's own sizes do not move.
 */
export function growthPerTurn(samples: readonly Sample[]): number {
  const warm = samples.slice(samples.length / 2);
  const slopes = warm.flatMap((a, i) =>
    warm.slice(i + 1).map((b) => (b.bytes - a.bytes) / (b.turn - a.turn)),
  );
  return slopes.sort((a, b) => a - b)[slopes.length >> 1] ?? 0;
}
