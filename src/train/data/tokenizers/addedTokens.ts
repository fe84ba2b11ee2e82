/** Tokens that are found in a text before the model of a tokeniser sees it. */

/** How a token is found. */
interface FoundToken {
  readonly id: number;
  readonly content: string;
  /** Whether it takes the spaces before and after it; false by default. */
  readonly lstrip?: boolean;
  readonly rstrip?: boolean;
  /** Whether it is found only as a whole word; false by default. */
  readonly singleWord?: boolean;
}

/** Tokens by their content, and a pattern that finds them. */
export interface Marks {
  readonly pattern: RegExp;
  readonly tokens: ReadonlyMap<string, FoundToken>;
}

/** The marks that tokens leave in a text; undefined without tokens. */
export function marksOf(tokens: readonly FoundToken[]): Marks | undefined {
  const contents = tokens.map(({ content }) => content).filter((content) => content !== "");
  if (contents.length === 0) return undefined;
  // Of two tokens with a common prefix the longer one is matched.
  const alternatives = contents.sort((a, b) => b.length - a.length).map(escapePattern);
  return {
    pattern: new RegExp(alternatives.join("|"), "gu"),
    tokens: new Map(tokens.map((token) => [token.content, token])),
  };
}

const isWord = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]/u;

/** The ids of marks in a text, and the non-empty strings between them. */
export function* findMarks(text: string, marks: Marks | undefined): Generator<string | number> {
  let done = 0;
  for (const match of marks ? text.matchAll(marks.pattern) : []) {
    const token = marks?.tokens.get(match[0]);
    let [start, end] = [match.index, match.index + match[0].length];
    if (!token || start < done) continue;
    if (token.singleWord) {
      const [before, after] = [text.slice(0, start).slice(-1), text.slice(end, end + 1)];
      if (isWord.test(before) || isWord.test(after)) continue;
    }
    if (token.lstrip)
      start = Math.max(done, start - (/\p{White_Space}*$/u.exec(text.slice(0, start))?.[0].length ?? 0));
    if (token.rstrip) end += /^\p{White_Space}*/u.exec(text.slice(end))?.[0].length ?? 0;
    if (start > done) yield text.slice(done, start);
    yield token.id;
    done = end;
  }
  if (done < text.length) yield text.slice(done);
}

/** A pattern that matches exactly this string. */
export function escapePattern(text: string): string {
  return text.replace(/[\^$\\.*+?()[\]{}|/]/g, "\\$&");
}
