/** Checked access to the fields of a `tokenizer.json`. */

import { attempt } from "../../../../ir/errors.js";
import { FileError } from "../../../files/disk/fileError.js";
import { isObject, type JsonObject } from "../../../files/disk/json.js";
import { escapePattern } from "../addedTokens.js";
import { translatePattern } from "../byteLevel.js";

/** Real tokenizers have a few short parts; these limits bound the time of hostile files. */
const maxParts = 64;
const maxPattern = 10_000;

/** What makes the parts of each type. */
export type Makers<T> = Readonly<Record<string, (fields: TokenizerFields) => T>>;

/** Reads fields and says where in the file something is wrong. */
export class TokenizerFields {
  constructor(
    readonly json: JsonObject,
    readonly where: string,
    readonly file: string,
  ) {}

  get type(): string {
    return this.text("type");
  }

  text(name: string, fallback?: string): string {
    const value = this.json[name] ?? fallback;
    if (typeof value === "string") return value;
    throw this.wrong(name, "must be a string");
  }

  flag(name: string, fallback: boolean): boolean {
    const value = this.json[name] ?? fallback;
    if (typeof value === "boolean") return value;
    throw this.wrong(name, "must be true or false");
  }

  number(name: string, fallback?: number): number {
    const value = this.json[name] ?? fallback;
    if (typeof value === "number") return value;
    throw this.wrong(name, "must be a number");
  }

  object(name: string): TokenizerFields {
    const value = this.json[name];
    if (isObject(value)) return new TokenizerFields(value, this.at(name), this.file);
    throw this.wrong(name, "must be an object");
  }

  /** The parts of a sequence. */
  parts(name: string): TokenizerFields[] {
    const value = this.list(name);
    if (value.length > maxParts) throw this.wrong(name, `has ${value.length} steps, more than ${maxParts}`);
    return value.map((part, i) => {
      if (!isObject(part)) throw this.wrong(`${name}[${i}]`, "must be an object");
      return new TokenizerFields(part, this.at(`${name}[${i}]`), this.file);
    });
  }

  list(name: string): readonly unknown[] {
    const value = this.json[name];
    if (Array.isArray(value)) return value;
    throw this.wrong(name, "must be an array");
  }

  /** A pattern: `{ "Regex": … }` or `{ "String": … }`. */
  pattern(name: string): RegExp {
    const { Regex: regex, String: text } = this.object(name).json;
    const source =
      typeof regex === "string" ? regex : typeof text === "string" ? escapePattern(text) : undefined;
    if (source === undefined) throw this.wrong(name, "must be a Regex or a String");
    if (source.length > maxPattern) {
      throw this.wrong(name, `has ${source.length} characters, more than ${maxPattern}`);
    }
    return attempt(
      () => (typeof regex === "string" ? translatePattern(source) : new RegExp(source, "gu")),
      (reason) => this.wrong(name, `is not understood (${reason})`),
    );
  }

  /** The part that the maker of its type returns. */
  make<T>(makers: Makers<T>, type = this.type): T {
    const make = Object.hasOwn(makers, type) ? makers[type] : undefined;
    if (make) return make(this);
    throw this.wrong("type", `is ${JSON.stringify(this.json.type)?.slice(0, 60)}, which is not supported`);
  }

  wrong(name: string, rule: string): FileError {
    return new FileError("tokenizer", this.file, 0, `${this.at(name)} ${rule}`);
  }

  private at(name: string): string {
    return this.where === "" ? name : `${this.where}.${name}`;
  }
}
