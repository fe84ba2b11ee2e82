/** Calls of shardwise as Python expressions of JAX and optax: the same text serves both languages. */

import { exported } from "../../scripts/coverage/exports.js";
import { libraries } from "../../scripts/coverage/libraries.js";
import { standings } from "../../scripts/coverage/page.js";

const modules: Readonly<Record<string, string>> = {
  np: "jnp",
  lax: "lax",
  nn: "jax.nn",
  random: "jax.random",
  optim: "optax",
  scipy: "jax.scipy",
};

const snakeCase = (name: string): string =>
  name.replace(
    /([a-z0-9])([A-Z])/g,
    (_, before: string, letter: string) => `${before}_${letter.toLowerCase()}`,
  );

/** What JAX or optax call an exported name. */
const theirs = new Map(
  libraries
    .filter(({ title }) => title !== "jax" && title !== "jax.tree" && title !== "flax.linen")
    .flatMap((library) => {
      const prefix = library.title === "jax.nn.initializers" ? "jax.nn.initializers" : library.prefix;
      return standings(library, exported).flatMap((row) =>
        row.state === "present" ? [[row.ours, `${prefix}.${row.name}`] as const] : [],
      );
    })
    .reverse(),
);

function nameOf(path: string): string {
  // Lists of JavaScript numbers are float32.
  if (path === "np.array") return "array";
  const known = theirs.get(path);
  if (known !== undefined) return known;
  const [root = "", ...rest] = path.split(".");
  const module = modules[root];
  return [module ?? root, ...rest.map(snakeCase)].join(".");
}

/** Options that have other names there. */
const optionNames: Readonly<Record<string, string>> = { dim: "axis", dims: "axis" };

const words: Readonly<Record<string, string>> = {
  true: "True",
  false: "False",
  null: "None",
  Infinity: "jnp.inf",
};

/** Reads an expression: names, calls, indices, numbers, strings, lists, options and arrow functions. */
class Translator {
  private at = 0;
  private readonly tokens: readonly string[];

  constructor(text: string) {
    this.tokens = text.match(/=>|"[^"]*"|-?\d[\w.]*(?:e-?\d+)?|[A-Za-z_$][\w$]*|\S/g) ?? [];
  }

  whole(): string {
    const result = this.expression();
    if (this.at < this.tokens.length)
      throw new Error(`unexpected ${this.tokens[this.at]} in ${this.tokens.join(" ")}`);
    return result;
  }

  private peek(ahead = 0): string {
    return this.tokens[this.at + ahead] ?? "";
  }

  private take(wanted?: string): string {
    const token = this.peek();
    if (token === "" || (wanted !== undefined && token !== wanted))
      throw new Error(`expected ${wanted ?? "more"}, got ${token} in ${this.tokens.join(" ")}`);
    this.at++;
    return token;
  }

  private list(end: string, item: () => string): string[] {
    const items: string[] = [];
    while (this.peek() !== end) {
      items.push(item());
      if (this.peek() !== end) this.take(",");
    }
    this.take(end);
    return items;
  }

  private isArrow(): boolean {
    if (this.peek() !== "(") return false;
    const end = this.tokens.indexOf(")", this.at);
    return this.tokens[end + 1] === "=>";
  }

  private expression(): string {
    if (this.isArrow()) {
      this.take("(");
      const names = this.list(")", () => this.take());
      this.take("=>");
      return `(lambda ${names.join(", ")}: ${this.expression()})`;
    }
    const token = this.take();
    if (token === "[") {
      const items = this.list("]", () => this.expression());
      return `(${items.join(", ")}${items.length === 1 ? "," : ""})`;
    }
    if (token === "{") return `{${this.list("}", () => this.field(":")).join(", ")}}`;
    if (/^["\d-]/.test(token)) return token;
    return this.rest(words[token] ?? this.path(token));
  }

  private field(separator: string): string {
    const key = this.take();
    this.take(":");
    const name = optionNames[key] ?? snakeCase(key);
    return `${separator === ":" && !/^\d/.test(name) ? JSON.stringify(name) : name}${separator}${this.expression()}`;
  }

  private path(first: string): string {
    const parts = [first];
    while (this.peek() === "." && modules[first] !== undefined) {
      this.take(".");
      parts.push(this.take());
    }
    return nameOf(parts.join("."));
  }

  /** Calls, indices and methods of what was read. */
  private rest(value: string): string {
    if (this.peek() === "(") {
      this.take("(");
      const args = this.list(")", () => {
        if (this.peek() !== "{" || /^["\d]/.test(this.peek(1))) return this.expression();
        this.take("{");
        return this.list("}", () => this.field("=")).join(", ");
      });
      return this.rest(`${value}(${args.filter((arg) => arg !== "").join(", ")})`);
    }
    if (this.peek() === "[") {
      this.take("[");
      const [index = ""] = this.list("]", () => this.expression());
      return this.rest(`${value}[${index}]`);
    }
    if (this.peek() !== ".") return value;
    this.take(".");
    return this.rest(`${value}.${snakeCase(this.take())}`);
  }
}

/** A call of shardwise as a Python expression. */
export function toPython(call: string): string {
  return new Translator(call).whole();
}
