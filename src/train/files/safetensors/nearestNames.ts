/** Maximum number of names to compare: a file may hold millions. */
const maxCompared = 10_000;

/** The names most similar to `name`, best first, by shared pairs of adjacent characters. */
export function nearestNames(name: string, names: readonly string[], count = 3): string[] {
  const own = pairsOf(name);
  return names
    .slice(0, maxCompared)
    .map((other) => ({ other, score: similarity(own, pairsOf(other)) }))
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score)
    .slice(0, count)
    .map(({ other }) => other);
}

// Spaces mark the start and the end, so that names of one character have pairs, too.
function pairsOf(name: string): ReadonlySet<string> {
  const marked = ` ${name.toLowerCase()} `;
  return new Set(Array.from({ length: marked.length - 1 }, (_, i) => marked.slice(i, i + 2)));
}

/** From 0 (nothing in common) to 1 (equal sets). */
function similarity(a: ReadonlySet<string>, b: ReadonlySet<string>): number {
  let shared = 0;
  for (const pair of a) if (b.has(pair)) shared++;
  return (2 * shared) / (a.size + b.size);
}
