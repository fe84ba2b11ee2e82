import { ParseError } from "../errors.js";

const word = /[A-Za-z_$][\w$]*/y;
const integer = /-?\d+/y;
const number = /-?(?:NaN|Infinity|\d+(?:\.\d+)?(?:e[+-]?\d+)?)/y;
const blank = /\s*/y;

/** Maximum number of characters that a message quotes. */
const QUOTED = 20;

/** Reads a text token by token; spaces before a token are skipped. */
export class Scanner {
  private position = 0;

  constructor(
    private readonly text: string,
    private readonly caller: string,
  ) {}

  /** Where the next token begins, to name it in a message later. */
  get here(): number {
    this.skipSpace();
    return this.position;
  }

  /** Whether the next token is this one; consumes it if so. */
  eat(token: string): boolean {
    this.skipSpace();
    if (!this.text.startsWith(token, this.position)) return false;
    this.position += token.length;
    return true;
  }

  /** Whether the next tokens are these. */
  sees(...tokens: string[]): boolean {
    const start = this.position;
    const isNext = tokens.every((token) => this.eat(token));
    this.position = start;
    return isNext;
  }

  expect(token: string): void {
    if (!this.eat(token)) this.fail(JSON.stringify(token));
  }

  /** A name such as `tanh`, `data` or `%` followed by one. */
  word(what: string): string {
    this.skipSpace();
    return this.take(word) ?? this.fail(what);
  }

  /** A safe integer. */
  integer(what: string): number {
    const start = this.here;
    const value = Number(this.take(integer) ?? this.fail(what));
    return Number.isSafeInteger(value) ? value : this.failAt(start, `${what} of at most 2^53 - 1`);
  }

  /** The digits of a number, whose type the caller knows, or undefined. */
  number(): string | undefined {
    this.skipSpace();
    return this.take(number);
  }

  /** A string in double quotes, escaped as in JSON. */
  string(what: string): string {
    const start = this.here;
    if (!this.eat('"')) this.fail(what);
    let end = this.position;
    while (end < this.text.length && this.text[end] !== '"' && this.text[end] !== "\n") {
      end += this.text[end] === "\\" ? 2 : 1;
    }
    try {
      const value: unknown = JSON.parse(this.text.slice(start, end + 1));
      this.position = end + 1;
      if (typeof value === "string") return value;
    } catch {
      // The message below says where the string begins.
    }
    return this.failAt(start, `${what} in double quotes`);
  }

  /** What is separated by commas between two brackets. */
  list<T>(open: string, close: string, item: () => T): T[] {
    this.expect(open);
    const items: T[] = [];
    if (this.eat(close)) return items;
    do items.push(item());
    while (this.eat(","));
    if (!this.eat(close)) this.fail(`"," or ${JSON.stringify(close)}`);
    return items;
  }

  /** The end of a line, and empty lines after it. */
  endOfLine(): void {
    if (!this.sees("\n") && !this.sees("\r\n")) this.fail("the end of the line");
    this.take(blank);
  }

  /** Whether one of these characters comes next. */
  seesOneOf(characters: string): boolean {
    this.skipSpace();
    return this.position < this.text.length && characters.includes(this.text.charAt(this.position));
  }

  private skipSpace(): void {
    while (this.text[this.position] === " " || this.text[this.position] === "\t") this.position++;
  }

  /** Skips spaces and empty lines. */
  skipBlank(): void {
    this.take(blank);
  }

  endOfText(): void {
    this.take(blank);
    if (this.position < this.text.length) this.fail("the end of the text");
  }

  /** The error for an unexpected token at the current position. */
  fail(expected: string): never {
    return this.failAt(this.here, expected);
  }

  /** The error for an unexpected token at an earlier position. */
  failAt(position: number, expected: string): never {
    const rest = this.text.slice(position).split("\n", 1)[0]?.trimEnd() ?? "";
    const start = rest.length > QUOTED ? `${rest.slice(0, QUOTED)}…` : rest;
    const found = start !== "" ? start : position < this.text.length ? "the end of the line" : "the end";
    throw this.error(position, `expected ${expected}, found ${start === "" ? found : JSON.stringify(start)}`);
  }

  /** An error at a position. */
  error(position: number, message: string): ParseError {
    const before = this.text.slice(0, position).split("\n");
    const column = (before.at(-1)?.length ?? 0) + 1;
    return new ParseError(this.caller, before.length, column, message);
  }

  private take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.position;
    const found = pattern.exec(this.text)?.[0];
    this.position += found?.length ?? 0;
    return found;
  }
}
