/** Expressions of templates: parsed to functions of a context. */
import {
  type Callable,
  contains,
  type Dict,
  dictMethods,
  elements,
  filters,
  isEqual,
  isTrue,
  stringMethods,
  templateError,
  tests,
  toText,
  type Value,
} from "./values.js";

/** What the running template knows, and how much it may still do. */
export interface TemplateContext {
  readonly variables: Dict;
  /** Counts a step of the work; throws when there were too many. */
  tick(): void;
}

/** An expression. */
export type Expression = (context: TemplateContext) => Value;

/** The tokens of an expression. */
export function tokenize(source: string): string[] {
  const pattern =
    /\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\d+\.\d+|\d+|[A-Za-z_]\w*|==|!=|<=|>=|\/\/|\*\*|[-+*/%~<>=()[\]{}.,:|])\s*/y;
  const tokens: string[] = [];
  while (pattern.lastIndex < source.length) {
    const at = pattern.lastIndex;
    const match = pattern.exec(source);
    if (!match?.[1]) throw templateError(`unexpected ${JSON.stringify(source.slice(at, at + 12))}`);
    tokens.push(match[1]);
  }
  return tokens;
}

const escapes: Readonly<Record<string, string>> = {
  n: "\n",
  t: "\t",
  r: "\r",
  "\\": "\\",
  "'": "'",
  '"': '"',
};

/** Reads tokens one after the other. */
export class ExpressionParser {
  private at = 0;

  constructor(readonly tokens: readonly string[]) {}

  peek(): string | undefined {
    return this.tokens[this.at];
  }

  accept(...options: readonly string[]): string | undefined {
    const token = this.peek();
    if (token === undefined || !options.includes(token)) return undefined;
    this.at++;
    return token;
  }

  expect(token: string): void {
    if (!this.accept(token)) throw templateError(`expected ${token}, found ${this.peek() ?? "the end"}`);
  }

  name(): string {
    const token = this.tokens[this.at++];
    if (token !== undefined && /^[A-Za-z_]\w*$/.test(token)) return token;
    throw templateError(`expected a name, found ${token ?? "the end"}`);
  }

  end(): void {
    if (this.peek() !== undefined) throw templateError(`unexpected ${this.peek()}`);
  }

  /** `a if b else c`. */
  expression(): Expression {
    const value = this.or();
    if (!this.accept("if")) return value;
    const condition = this.or();
    const other = this.accept("else") ? this.expression() : () => undefined;
    return (context) => (isTrue(condition(context)) ? value(context) : other(context));
  }

  /** An expression without `if`, as the list of a loop, whose `if` is a filter. */
  or(): Expression {
    let left = this.and();
    while (this.accept("or")) {
      const [a, b] = [left, this.and()];
      left = (context) => {
        const value = a(context);
        return isTrue(value) ? value : b(context);
      };
    }
    return left;
  }

  private and(): Expression {
    let left = this.not();
    while (this.accept("and")) {
      const [a, b] = [left, this.not()];
      left = (context) => {
        const value = a(context);
        return isTrue(value) ? b(context) : value;
      };
    }
    return left;
  }

  private not(): Expression {
    if (!this.accept("not")) return this.comparison();
    const value = this.not();
    return (context) => !isTrue(value(context));
  }

  private comparison(): Expression {
    let left = this.sum();
    for (;;) {
      const operator =
        this.accept("==", "!=", "<", ">", "<=", ">=", "in", "is") ?? (this.isNotIn() ? "not in" : undefined);
      if (operator === undefined) return left;
      const a = left;
      if (operator === "is") {
        left = this.test(a);
        continue;
      }
      const b = this.sum();
      const compare = comparisons[operator];
      left = (context) => compare?.(a(context), b(context)) ?? false;
    }
  }

  private isNotIn(): boolean {
    if (this.peek() !== "not" || this.tokens[this.at + 1] !== "in") return false;
    this.at += 2;
    return true;
  }

  private test(value: Expression): Expression {
    const negated = this.accept("not") !== undefined;
    const name = this.name().toLowerCase();
    const args = this.accept("(") ? this.arguments().positional : [];
    const test = Object.hasOwn(tests, name) ? tests[name] : undefined;
    if (!test) throw templateError(`unknown test "${name}"`);
    return (context) =>
      test(
        value(context),
        args.map((arg) => arg(context)),
      ) !== negated;
  }

  private sum(): Expression {
    return this.binary(["+", "-", "~"], () => this.product());
  }

  private product(): Expression {
    return this.binary(["*", "/", "//", "%"], () => this.unary());
  }

  private binary(operators: readonly string[], next: () => Expression): Expression {
    let left = next();
    for (let operator = this.accept(...operators); operator; operator = this.accept(...operators)) {
      const [a, b, compute] = [left, next(), arithmetic[operator]];
      left = (context) => compute?.(a(context), b(context));
    }
    return left;
  }

  private unary(): Expression {
    const sign = this.accept("-", "+");
    const value = sign ? this.unary() : this.postfix();
    return sign === "-" ? (context) => -Number(value(context)) : value;
  }

  private postfix(): Expression {
    let value = this.primary();
    for (;;) {
      const own = value;
      if (this.accept(".")) value = memberOf(own, this.name());
      else if (this.accept("[")) value = this.subscript(own);
      else if (this.accept("(")) {
        const { positional, named } = this.arguments();
        value = (context) => {
          context.tick();
          const callee = own(context);
          if (typeof callee !== "function") throw templateError("a value that is not a function is called");
          return callee(
            positional.map((arg) => arg(context)),
            new Map(named.map(([name, arg]) => [name, arg(context)])),
          );
        };
      } else if (this.accept("|")) value = this.filter(own);
      else return value;
    }
  }

  private filter(value: Expression): Expression {
    const name = this.name();
    const filter = Object.hasOwn(filters, name) ? filters[name] : undefined;
    if (!filter) throw templateError(`unknown filter "${name}"`);
    const { positional, named } = this.accept("(") ? this.arguments() : { positional: [], named: [] };
    return (context) => {
      context.tick();
      const more = new Map(named.map(([key, arg]) => [key, arg(context)]));
      return filter(
        value(context),
        positional.map((arg) => arg(context)),
        more,
      );
    };
  }

  private subscript(value: Expression): Expression {
    const part = () => (this.peek() === ":" || this.peek() === "]" ? undefined : this.expression());
    const first = part();
    if (!this.accept(":")) {
      this.expect("]");
      return (context) => itemOf(value(context), first?.(context));
    }
    const last = part();
    const step = this.accept(":") ? part() : undefined;
    this.expect("]");
    return (context) => sliceOf(value(context), first?.(context), last?.(context), step?.(context));
  }

  /** Arguments up to the closing parenthesis. */
  arguments(): {
    readonly positional: readonly Expression[];
    readonly named: readonly (readonly [string, Expression])[];
  } {
    const positional: Expression[] = [];
    const named: (readonly [string, Expression])[] = [];
    while (!this.accept(")")) {
      if (this.tokens[this.at + 1] === "=") {
        const name = this.name();
        this.expect("=");
        named.push([name, this.expression()]);
      } else positional.push(this.expression());
      if (this.peek() !== ")") this.expect(",");
    }
    return { positional, named };
  }

  private list(close: string): Expression[] {
    const items: Expression[] = [];
    while (!this.accept(close)) {
      items.push(this.expression());
      if (this.peek() !== close) this.expect(",");
    }
    return items;
  }

  private primary(): Expression {
    const token = this.tokens[this.at++];
    if (token === undefined) throw templateError("an expression ends too early");
    if (/^["']/.test(token)) {
      const text = token.slice(1, -1).replace(/\\(.)/gs, (_, c: string) => escapes[c] ?? `\\${c}`);
      return () => text;
    }
    if (/^\d/.test(token)) return () => Number(token);
    if (token === "(") {
      const items = [this.expression()];
      const isTuple = this.peek() === ",";
      if (isTuple) {
        this.expect(",");
        items.push(...this.list(")"));
      } else this.expect(")");
      const [only] = items;
      return isTuple || !only ? (context) => items.map((item) => item(context)) : only;
    }
    if (token === "[") {
      const items = this.list("]");
      return (context) => items.map((item) => item(context));
    }
    if (token === "{") return this.dict();
    const constants: Readonly<Record<string, Value>> = {
      true: true,
      True: true,
      false: false,
      False: false,
      none: null,
      None: null,
    };
    if (Object.hasOwn(constants, token)) return () => constants[token];
    if (/^[A-Za-z_]/.test(token)) return (context) => context.variables.get(token);
    throw templateError(`unexpected ${token}`);
  }

  private dict(): Expression {
    const entries: (readonly [Expression, Expression])[] = [];
    while (!this.accept("}")) {
      const key = this.expression();
      this.expect(":");
      entries.push([key, this.expression()]);
      if (this.peek() !== "}") this.expect(",");
    }
    return (context) => new Map(entries.map(([key, value]) => [toText(key(context)), value(context)]));
  }
}

const comparisons: Readonly<Record<string, (a: Value, b: Value) => boolean>> = {
  "==": isEqual,
  "!=": (a, b) => !isEqual(a, b),
  "<": (a, b) => (a ?? 0) < (b ?? 0),
  ">": (a, b) => (a ?? 0) > (b ?? 0),
  "<=": (a, b) => (a ?? 0) <= (b ?? 0),
  ">=": (a, b) => (a ?? 0) >= (b ?? 0),
  in: (a, b) => contains(b, a),
  "not in": (a, b) => !contains(b, a),
};

function add(a: Value, b: Value): Value {
  if (Array.isArray(a) && Array.isArray(b)) return [...a, ...b];
  if (typeof a === "number" && typeof b === "number") return a + b;
  if (typeof a === "string" && typeof b === "string") return a + b;
  throw templateError(`${toText(a)} and ${toText(b)} cannot be added`);
}

const arithmetic: Readonly<Record<string, (a: Value, b: Value) => Value>> = {
  "+": add,
  "~": (a, b) => toText(a) + toText(b),
  "-": (a, b) => Number(a) - Number(b),
  "*": (a, b) => Number(a) * Number(b),
  "/": (a, b) => Number(a) / Number(b),
  "//": (a, b) => Math.floor(Number(a) / Number(b)),
  "%": (a, b) => ((Number(a) % Number(b)) + Number(b)) % Number(b),
};

/** A field of a mapping, or a method: nothing of JavaScript's objects can be reached. */
function memberOf(value: Expression, name: string): Expression {
  return (context) => {
    const own = value(context);
    const methodOf = <T>(
      table: Readonly<Record<string, (value: T, args: readonly Value[]) => Value>>,
      of: T,
    ) => {
      const method = Object.hasOwn(table, name) ? table[name] : undefined;
      return method && ((args: readonly Value[]) => method(of, args));
    };
    if (own instanceof Map)
      return own.has(name) ? own.get(name) : (methodOf(dictMethods, own) as Callable | undefined);
    if (typeof own === "string") return methodOf(stringMethods, own) as Callable | undefined;
    if (own === undefined || own === null)
      throw templateError(`a value that is not defined has no "${name}"`);
    return undefined;
  };
}

function itemOf(value: Value, key: Value): Value {
  if (value instanceof Map) return value.get(toText(key));
  const index = Number(key);
  return value === undefined || value === null ? undefined : elements(value).at(index);
}

function sliceOf(value: Value, first: Value, last: Value, step: Value): Value {
  const items = elements(value);
  const by = typeof step === "number" ? step : 1;
  if (by !== 1 && by !== -1) throw templateError(`slices have the step 1 or -1, not ${toText(step)}`);
  const ordered = by === 1 ? items : [...items].reverse();
  const own = ordered.slice(
    typeof first === "number" ? first : undefined,
    typeof last === "number" ? last : undefined,
  );
  return typeof value === "string" ? own.map(toText).join("") : own;
}
