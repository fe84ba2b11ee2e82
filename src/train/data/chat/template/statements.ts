/** Templates: text with statements, parsed to functions that write the output. */
import { type Expression, ExpressionParser, type TemplateContext, tokenize } from "./expressions.js";
import { elements, isTrue, templateError, toText, type Value } from "./values.js";

/** A part of a template that writes to the output. */
export type Statement = (context: TemplateContext) => string;

/** Thrown to leave an iteration, with what it has written until then. */
class LoopExit {
  written = "";

  constructor(readonly isBreak: boolean) {}
}

/** Writes parts one after the other. */
function writeAll(parts: readonly Statement[], context: TemplateContext): string {
  let out = "";
  try {
    for (const part of parts) out += part(context);
  } catch (error) {
    if (error instanceof LoopExit) error.written = out + error.written;
    throw error;
  }
  return out;
}

type Piece = { readonly kind: "text" | "output" | "tag"; readonly source: string };

/** Cuts a template at its tags, with the spaces that tags remove. */
function pieces(source: string): Piece[] {
  const found: Piece[] = [];
  const pattern = /\{\{(-?)([\s\S]*?)(-?)\}\}|\{%([-+]?)([\s\S]*?)([-+]?)%\}|\{#(-?)[\s\S]*?(-?)#\}/g;
  let at = 0;
  let isTrimmed: "all" | "newline" | "none" = "none";
  const push = (text: string, before: "all" | "line" | "none") => {
    let own = text;
    if (isTrimmed === "all") own = own.trimStart();
    else if (isTrimmed === "newline") own = own.replace(/^\n/, "");
    if (before === "all") own = own.trimEnd();
    // Spaces between the start of a line and a statement belong to the statement.
    else if (before === "line" && (own.includes("\n") || at === 0 || isTrimmed === "newline"))
      own = own.replace(/(^|\n)[ \t]*$/, "$1");
    if (own !== "") found.push({ kind: "text", source: own });
  };
  for (const match of source.matchAll(pattern)) {
    const [, outLeft, output, outRight, left, tag, right, noteLeft, noteRight] = match;
    const isOutput = output !== undefined;
    const starts = [outLeft, left, noteLeft].includes("-");
    push(source.slice(at, match.index), starts ? "all" : isOutput || left === "+" ? "none" : "line");
    if (isOutput) found.push({ kind: "output", source: output });
    else if (tag !== undefined) found.push({ kind: "tag", source: tag.trim() });
    isTrimmed = [outRight, right, noteRight].includes("-")
      ? "all"
      : isOutput || right === "+"
        ? "none"
        : "newline";
    at = match.index + match[0].length;
  }
  push(source.slice(at), "none");
  return found;
}

/** Parses a template. */
export function parseTemplate(source: string): Statement {
  const parser = new StatementParser(pieces(source));
  const body = parser.block([]);
  return body.run;
}

class StatementParser {
  private at = 0;
  private isInLoop = false;

  constructor(private readonly all: readonly Piece[]) {}

  /** A block that is in a loop of its own, or in none although there is one around it. */
  private blockIn(isInLoop: boolean, ends: readonly string[]) {
    const before = this.isInLoop;
    this.isInLoop = isInLoop;
    const block = this.block(ends);
    this.isInLoop = before;
    return block;
  }

  /** Statements up to a tag with one of the given names. */
  block(ends: readonly string[]): { readonly run: Statement; readonly end: string } {
    const parts: Statement[] = [];
    const run: Statement = (context) => writeAll(parts, context);
    while (this.at < this.all.length) {
      const piece = this.all[this.at++];
      if (!piece) break;
      const { kind, source } = piece;
      if (kind === "text") parts.push(() => source);
      else if (kind === "output") {
        const value = whole(source);
        parts.push((context) => {
          context.tick();
          return toText(value(context));
        });
      } else {
        const [name = ""] = source.split(/\s/, 1);
        if (ends.includes(name)) return { run, end: source };
        parts.push(this.statement(name, source.slice(name.length)));
      }
    }
    if (ends.length > 0) throw templateError(`a block has no ${ends.at(-1)}`);
    return { run, end: "" };
  }

  private statement(name: string, rest: string): Statement {
    if (name === "if") return this.branches(rest);
    if (name === "for") return this.loop(rest);
    if (name === "set") return this.assignment(rest);
    if (name === "macro") return this.macro(rest);
    if (name === "generation") return this.block(["endgeneration"]).run;
    if (name === "break" || name === "continue") {
      if (!this.isInLoop) throw templateError(`${name} stands in no loop`);
      return () => {
        throw new LoopExit(name === "break");
      };
    }
    throw templateError(`unknown statement "${name}"`);
  }

  private branches(condition: string): Statement {
    const test = whole(condition);
    const { run, end } = this.block(["elif", "else", "endif"]);
    const other = end.startsWith("elif")
      ? this.branches(end.slice(4))
      : end === "else"
        ? this.block(["endif"]).run
        : () => "";
    return (context) => {
      context.tick();
      return isTrue(test(context)) ? run(context) : other(context);
    };
  }

  private loop(header: string): Statement {
    const parser = new ExpressionParser(tokenize(header));
    const names = [parser.name()];
    while (parser.accept(",")) names.push(parser.name());
    parser.expect("in");
    const list = parser.or();
    const filter = parser.accept("if") ? parser.expression() : undefined;
    parser.end();
    const { run, end } = this.blockIn(true, ["else", "endfor"]);
    const otherwise = end === "else" ? this.block(["endfor"]).run : () => "";
    return (context) => {
      const inner = inScope(context);
      const bind = (item: Value) => {
        if (names.length === 1) inner.variables.set(names[0] ?? "", item);
        else for (const [i, name] of names.entries()) inner.variables.set(name, elements(item)[i]);
      };
      const items = elements(list(context)).filter((item) => {
        context.tick();
        if (!filter) return true;
        bind(item);
        return isTrue(filter(inner));
      });
      if (items.length === 0) return otherwise(context);
      return iterate(items, inner, bind, run);
    };
  }

  private assignment(rest: string): Statement {
    const parser = new ExpressionParser(tokenize(rest));
    const names = [parser.name()];
    const field = parser.accept(".") ? parser.name() : undefined;
    while (parser.accept(",")) names.push(parser.name());
    const [name = ""] = names;
    if (!parser.accept("=")) {
      const { run } = this.blockIn(false, ["endset"]);
      return (context) => assign(context, name, run(context));
    }
    const value = parser.expression();
    parser.end();
    return (context) => {
      context.tick();
      const own = value(context);
      if (names.length > 1) {
        for (const [i, one] of names.entries()) context.variables.set(one, elements(own)[i]);
      } else if (field === undefined) context.variables.set(name, own);
      else {
        const target = context.variables.get(name);
        if (!(target instanceof Map)) throw templateError(`${name} is not a namespace`);
        target.set(field, own);
      }
      return "";
    };
  }

  private macro(rest: string): Statement {
    const parser = new ExpressionParser(tokenize(rest));
    const name = parser.name();
    parser.expect("(");
    const params: (readonly [string, Expression | undefined])[] = [];
    while (!parser.accept(")")) {
      const param = parser.name();
      params.push([param, parser.accept("=") ? parser.expression() : undefined]);
      if (parser.peek() !== ")") parser.expect(",");
    }
    const { run } = this.blockIn(false, ["endmacro"]);
    return (context) =>
      assign(context, name, (args, named) => {
        const inner = inScope(context);
        params.forEach(([param, fallback], i) => {
          inner.variables.set(param, i < args.length ? args[i] : (named.get(param) ?? fallback?.(context)));
        });
        return run(inner);
      });
  }
}

function assign({ variables }: TemplateContext, name: string, value: Value): string {
  variables.set(name, value);
  return "";
}

/** A context whose variables do not leave it. */
function inScope(context: TemplateContext): TemplateContext {
  return { ...context, tick: () => context.tick(), variables: new Map(context.variables) };
}

function whole(source: string): Expression {
  const parser = new ExpressionParser(tokenize(source.trim()));
  const value = parser.expression();
  parser.end();
  return value;
}

/** Runs the body of a loop for every item, with the variable `loop`. */
function iterate(
  items: readonly Value[],
  inner: TemplateContext,
  bind: (item: Value) => void,
  run: Statement,
): string {
  let out = "";
  const before = new Map(inner.variables);
  for (const [i, item] of items.entries()) {
    inner.tick();
    // Each iteration starts with the variables from outside of the loop.
    inner.variables.clear();
    for (const [name, value] of before) inner.variables.set(name, value);
    const places: readonly (readonly [string, Value])[] = [
      ["index", i + 1],
      ["index0", i],
      ["revindex", items.length - i],
      ["revindex0", items.length - i - 1],
      ["first", i === 0],
      ["last", i === items.length - 1],
      ["length", items.length],
      ["previtem", items[i - 1]],
      ["nextitem", items[i + 1]],
    ];
    inner.variables.set("loop", new Map(places));
    bind(item);
    try {
      out += run(inner);
    } catch (error) {
      if (!(error instanceof LoopExit)) throw error;
      out += error.written;
      if (error.isBreak) break;
    }
  }
  return out;
}
