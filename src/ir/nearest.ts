/** The option that is most like a word, if any is like it at all. */
export function nearest(word: string, options: readonly string[]): string | undefined {
  const scored = options
    .map((option) => ({
      option,
      distance: editDistance(word.slice(0, 60).toLowerCase(), option.toLowerCase()),
    }))
    .sort((a, b) => a.distance - b.distance);
  const [best] = scored;
  return best && best.distance <= Math.max(2, Math.floor(word.length / 3)) ? best.option : undefined;
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
