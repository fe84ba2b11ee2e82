import type { Tokenizer } from "../data/tokenizers/tokenizer.js";

/** Decodes tokens one by one, and ends where a stop string begins. */
export class TextStream {
  isStopped = false;
  private readonly tokens: number[] = [];
  /** Tokens before this one only give context; those before `shown` have been decoded. */
  private begin = 0;
  private shown = 0;
  /** Text that may be the beginning of a stop string. */
  private held = "";

  constructor(
    private readonly tokenizer: Tokenizer | undefined,
    private readonly stop: readonly string[],
  ) {}

  /** Adds a token; returns the text that is certain. */
  add(token: number): string {
    this.tokens.push(token);
    const text = this.decode();
    // A token may end in the middle of a character, which decodes to U+FFFD until the next token completes it.
    if (text.endsWith("\uFFFD")) return "";
    return this.take(text);
  }

  /** The rest of the text. */
  end(): string {
    const rest = this.take(this.decode());
    const text = rest + this.held;
    this.held = "";
    return text;
  }

  /** What the tokens add to the text that was shown; decoding them alone may lose the space before a word. */
  private decode(): string {
    if (!this.tokenizer) return "";
    const before = this.tokenizer.decode(this.tokens.slice(this.begin, this.shown));
    return this.tokenizer.decode(this.tokens.slice(this.begin)).slice(before.length);
  }

  private take(piece: string): string {
    this.begin = this.shown;
    this.shown = this.tokens.length;
    const text = this.held + piece;
    const found = this.stop.map((stop) => text.indexOf(stop)).filter((start) => start >= 0);
    if (found.length > 0) {
      this.isStopped = true;
      this.held = "";
      return text.slice(0, Math.min(...found));
    }
    const size = Math.max(0, ...this.stop.map((stop) => overlap(text, stop)));
    this.held = text.slice(text.length - size);
    return text.slice(0, text.length - size);
  }
}

/** The length of the longest end of a text that a string begins with. */
function overlap(text: string, start: string): number {
  for (let n = Math.min(text.length, start.length - 1); n > 0; n--) {
    if (start.startsWith(text.slice(text.length - n))) return n;
  }
  return 0;
}
