/** How many names are compared at most: a file may hold millions. */
const maxCompared = 10_000;

/** The names most like `name`, best first: those that share the most pairs of neighbouring characters. */
export function nearestNames(name: string, names: readonly string[], count = 3): string[] {
  const own = pairsOf(name);
  return names
    .slice(0, maxCompared)
    .map((other) => ({ other, score: likeness(own, pairsOf(other)) }))
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score)
    .slice(0, count)
    .map(({ other }) => other);
}

// The space marks begin and end, so that names of one character have pairs, too.
function pairsOf(name: string): ReadonlySet<string> {
  const marked = ` ${name.toLowerCase()} `;
  return new Set(Array.from({ length: marked.length - 1 }, (_, i) => marked.slice(i, i + 2)));
}

/** From 0, nothing in common, to 1. */
function likeness(a: ReadonlySet<string>, b: ReadonlySet<string>): number {
  let shared = 0;
  for (const pair of a) if (b.has(pair)) shared++;
  return (2 * shared) / (a.size + b.size);
}
