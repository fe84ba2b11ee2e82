/**
 * The option most similar to a word, if any is similar at all: misspelt, shortened (`heads` for `numHeads`, `lr` for
 * `learningRate`), or without the group before it (`width` for `model.width`).
 */
export function nearest<T extends string>(word: string, options: readonly T[]): T | undefined {
  const given = word.slice(0, 60);
  const scored = options
    .map((option) => ({ option, distance: distanceOf(given, option) }))
    .sort((a, b) => a.distance - b.distance);
  const [best] = scored;
  return best && best.distance < Number.POSITIVE_INFINITY ? best.option : undefined;
}

/** The distance of a word from an option; infinite when they are not similar. */
function distanceOf(word: string, option: string): number {
  const [group, name] = inGroup(option);
  const [givenGroup, givenName] = inGroup(word);
  if (givenGroup === group) return nameDistance(givenName, name);
  // A matching name is a better guess than a matching group.
  return Math.min(nameDistance(givenName, name) + 1, nameDistance(word, option));
}

function inGroup(path: string): [group: string, name: string] {
  const dot = path.lastIndexOf(".");
  return [path.slice(0, Math.max(0, dot)), path.slice(dot + 1)];
}

function nameDistance(given: string, name: string): number {
  const word = given.toLowerCase();
  if (word.length > 1 && word === initialsOf(name)) return 1;
  const option = name.toLowerCase();
  const most = Math.min(Math.max(2, Math.floor(word.length / 3)), word.length - 1);
  // Names whose lengths differ by more than that are further apart, whatever their letters.
  const isFar = Math.abs(word.length - option.length) > most;
  const distance = isFar ? Number.POSITIVE_INFINITY : editDistance(word, option);
  if (distance > 1 && word.length > 2 && option.includes(word)) return 1;
  return distance <= most ? distance : Number.POSITIVE_INFINITY;
}

/** The first letters of the words of a name: `lr` of `learningRate`. */
function initialsOf(name: string): string {
  return (name.match(/^.|[A-Z]/g) ?? []).join("").toLowerCase();
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
