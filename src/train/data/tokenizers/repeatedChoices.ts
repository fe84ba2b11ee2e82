/** What a group of a pattern contains. */
interface Group {
  /** Whether part of it can match the same text in more than one way: a choice, or a repetition without a limit. */
  hasChoice: boolean;
}

/**
 * Whether a pattern repeats, without a limit, a group that contains a choice or such a repetition itself, as `(a+)+` and
 * `(a|b)*` do. Backtracking takes exponential time only in such patterns; those of tokenizers repeat single characters.
 */
export function repeatsChoices(pattern: string): boolean {
  const open: Group[] = [{ hasChoice: false }];
  let closed: Group | undefined;
  // Escapes, classes, ends and beginnings of groups, choices, quantifiers, single characters.
  for (const [token] of pattern.matchAll(/\\.|\[(?:\\.|[^\]\\])*\]|\(|\)|\||[*+]|\{\d+(?:,\d*)?\}|./gsu)) {
    const group = open.at(-1);
    const isUnlimited = token === "*" || token === "+" || (token.length > 1 && token.endsWith(",}"));
    if (isUnlimited && closed?.hasChoice) return true;
    if (group && (isUnlimited || token === "|")) group.hasChoice = true;
    closed = undefined;
    if (token === "(") open.push({ hasChoice: false });
    if (token !== ")") continue;
    closed = open.pop();
    const outer = open.at(-1);
    if (outer && closed?.hasChoice) outer.hasChoice = true;
  }
  return false;
}
