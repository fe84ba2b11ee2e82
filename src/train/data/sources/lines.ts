/** Lines of text in UTF-8, and rows of CSV. */

/** A line of a file, from 1 on, without its end. */
export interface TextLine {
  readonly number: number;
  readonly bytes: Uint8Array;
}

/** Longer lines would not fit in a string. */
export const maxLineBytes = 2 ** 28;

/** The lines of a file, those of a chunk at a time; one that is too long is cut off. */
export async function* linesOf(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): AsyncGenerator<TextLine[], void> {
  let pending: Uint8Array[] = [];
  let length = 0;
  let number = 1;
  const take = (last: Uint8Array): TextLine => {
    const line = pending.length === 0 ? last : joined([...pending, last]);
    pending = [];
    length = 0;
    return { number: number++, bytes: line.at(-1) === 13 ? line.subarray(0, -1) : line };
  };
  for await (const chunk of chunks) {
    const lines: TextLine[] = [];
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      lines.push(take(chunk.subarray(start, end)));
      start = end + 1;
    }
    const rest = chunk.subarray(start);
    if (length <= maxLineBytes) pending.push(rest);
    length += rest.length;
    if (lines.length > 0) yield lines;
  }
  if (length > 0) yield [take(new Uint8Array())];
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let end = 0;
  for (const part of parts) {
    bytes.set(part, end);
    end += part.length;
  }
  return bytes;
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The text of bytes; undefined if they are not UTF-8. */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return decoder.decode(bytes);
  } catch {
    return undefined;
  }
}

/** Reads a row of CSV (RFC 4180) line by line: cells in double quotes may hold separators, line ends and `""`. */
export class CsvRow {
  private readonly separator: string;
  private cells: string[] = [];
  private cell = "";
  private isQuoted = false;

  constructor(separator: string) {
    this.separator = separator;
  }

  /** Whether the last line ended inside of quotes. */
  get isOpen(): boolean {
    return this.isQuoted;
  }

  /** Adds a line. @returns the cells if the row ends with it */
  add(line: string): string[] | undefined {
    if (this.isQuoted) this.cell += "\n";
    let i = 0;
    while (i <= line.length) {
      if (this.isQuoted) {
        const quote = line.indexOf('"', i);
        if (quote < 0) {
          this.cell += line.slice(i);
          return undefined;
        }
        this.cell += line.slice(i, quote);
        const isEscaped = line[quote + 1] === '"';
        if (isEscaped) this.cell += '"';
        else this.isQuoted = false;
        i = quote + (isEscaped ? 2 : 1);
      } else if (this.cell === "" && line[i] === '"') {
        this.isQuoted = true;
        i++;
      } else {
        const next = line.indexOf(this.separator, i);
        const end = next < 0 ? line.length : next;
        this.cells.push(this.cell + line.slice(i, end));
        this.cell = "";
        i = end + 1;
      }
    }
    return this.take();
  }

  /** Gives up the row that was begun. */
  take(): string[] {
    const { cells } = this;
    this.cells = [];
    this.cell = "";
    this.isQuoted = false;
    return cells;
  }
}
