/**
 * Turns TypeScript that uses shared memory into code that a simulated machine can interrupt: every function gets a
 * *twin*, a generator with the same body, in which each `Atomics` operation and each access to an element is yielded
 * to the machine, and each call delegates to the twin of what is called. The functions themselves stay as they are,
 * for constructors and for code that is not simulated. Nothing else about the code changes.
 */
import ts from "typescript";
import { importsOf } from "./imports.js";

/** A place in the sources. */
export interface Site {
  readonly file: string;
  readonly line: number;
  readonly text: string;
}

/** What to transform. */
export interface ModuleSource {
  /** The path, relative to the repository. */
  readonly file: string;
  readonly text: string;
  /** Whether the module behind a specifier is simulated, too; functions of others are called as they are. */
  readonly isSimulated: (specifier: string) => boolean;
  /** Receives the places that the code mentions by their indices. */
  readonly sites: Site[];
}

const f = ts.factory;

/** What the twin of an asynchronous generator collects. */
const ITEMS = "$items";

/** Objects whose functions neither touch shared memory nor call back. */
const PURE = new Set(["Math", "Number", "Object", "JSON", "Array", "String", "Date", "console", "Symbol"]);
const ATOMICS = new Set(["load", "store", "add", "sub", "compareExchange", "wait", "notify"]);
/** Methods of arrays that call back. */
const CALLING = new Set([
  "every",
  "filter",
  "find",
  "findIndex",
  "findLast",
  "flatMap",
  "forEach",
  "map",
  "reduce",
  "some",
]);
/** Methods of typed arrays that touch elements or give another view of them. */
const MOVING = new Set(["fill", "set", "slice", "subarray"]);

/** The module as CommonJS that expects the machine's operations as `$`. */
export function transformModule(source: ModuleSource): string {
  const { outputText } = ts.transpileModule(source.text, {
    fileName: source.file,
    compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.CommonJS },
    transformers: { before: [(context) => (file) => new Twins(context, source, file).file()] },
  });
  return outputText;
}

type FunctionNode = ts.ArrowFunction | ts.FunctionExpression | ts.FunctionDeclaration | ts.MethodDeclaration;

class Twins {
  /** Whether a twin is being written: otherwise code stays as it is, but for the functions in it. */
  private inTwin = false;
  private numTemporaries = 0;
  /** Statements to put at the start of the current block. */
  private hoisted: ts.Statement[] = [];
  private readonly pureImports: ReadonlySet<string>;
  /** The methods of the base class that the current method calls. */
  private supers = new Set<string>();
  /** Which kind of generator the current function is. */
  private generates: "items" | "promised items" | undefined;

  constructor(
    private readonly context: ts.TransformationContext,
    private readonly module: ModuleSource,
    private readonly source: ts.SourceFile,
  ) {
    this.pureImports = new Set(importsOf(source, (specifier) => !module.isSimulated(specifier)));
  }

  file(): ts.SourceFile {
    return f.updateSourceFile(this.source, this.statements(this.source.statements));
  }

  private statements(list: readonly ts.Statement[]): ts.Statement[] {
    const outer = this.hoisted;
    this.hoisted = [];
    const visited = list.flatMap((statement) => {
      const result = this.visit(statement);
      return (Array.isArray(result) ? result : [result]) as ts.Statement[];
    });
    const all = [...this.hoisted, ...visited];
    this.hoisted = outer;
    return all;
  }

  private readonly visit = (node: ts.Node): ts.Node | ts.Node[] => {
    if (ts.isBlock(node)) return f.updateBlock(node, this.statements(node.statements));
    if (ts.isFunctionDeclaration(node)) return this.declaration(node);
    if (ts.isArrowFunction(node) || ts.isFunctionExpression(node)) return this.pair(node);
    if (ts.isClassDeclaration(node)) return this.class(node);
    if (ts.isObjectLiteralExpression(node)) return this.objectLiteral(node);
    if (ts.isConstructorDeclaration(node) || ts.isAccessor(node))
      return this.plainly(() => this.children(node));
    if (!this.inTwin) return this.children(node);
    if (ts.isYieldExpression(node)) return this.yielded(node);
    // The twin of an asynchronous generator has returned all its items.
    if (ts.isForOfStatement(node) && node.awaitModifier) {
      const { initializer, expression, statement } = this.children(node);
      return f.updateForOfStatement(node, undefined, initializer, expression, statement);
    }
    if (ts.isAwaitExpression(node)) return delegate(on("settled"), [this.expression(node.expression)]);
    if (ts.isCallExpression(node)) return this.call(node);
    if (ts.isBinaryExpression(node) && isAssignment(node) && ts.isElementAccessExpression(node.left))
      return this.write(node, node.left);
    if (ts.isElementAccessExpression(node)) return this.read(node);
    if (isStep(node) && ts.isElementAccessExpression(node.operand))
      throw new Error(`${this.place(node)}: write element + 1 instead`);
    return this.children(node);
  };

  private children<T extends ts.Node>(node: T): T {
    return ts.visitEachChild(node, this.visit as ts.Visitor, this.context);
  }

  private expression(node: ts.Expression): ts.Expression {
    return this.visit(node) as ts.Expression;
  }

  /** Visits something that is not part of a twin. */
  private plainly<T>(action: () => T): T {
    const outer = this.inTwin;
    this.inTwin = false;
    const result = action();
    this.inTwin = outer;
    return result;
  }

  private plainBody<T extends FunctionNode>(node: T): T {
    return this.plainly(() => this.children(node));
  }

  /** The body of the twin of a function, with its temporaries. */
  private twinBody(node: FunctionNode): ts.Block {
    const outer = [this.inTwin, this.numTemporaries, this.generates] as const;
    const generates = isGenerator(node) ? "items" : node.asteriskToken ? "promised items" : undefined;
    [this.inTwin, this.numTemporaries, this.generates] = [true, 0, generates];
    const { body } = node;
    if (body === undefined) throw new Error(`${this.place(node)}: a function without a body`);
    const statements = ts.isBlock(body)
      ? this.statements(body.statements)
      : [f.createReturnStatement(this.expression(body))];
    const names = Array.from({ length: this.numTemporaries }, (_, i) => f.createVariableDeclaration(`$${i}`));
    [this.inTwin, this.numTemporaries, this.generates] = outer;
    if (generates === "promised items") {
      names.push(f.createVariableDeclaration(ITEMS, undefined, undefined, f.createArrayLiteralExpression()));
      statements.push(f.createReturnStatement(f.createIdentifier(ITEMS)));
    }
    const declared = f.createVariableStatement(
      undefined,
      f.createVariableDeclarationList(names, ts.NodeFlags.Let),
    );
    const block = f.createBlock(names.length === 0 ? statements : [declared, ...statements], true);
    if (generates === "items")
      return returning(
        f.createCallExpression(on("generator"), undefined, [
          f.createCallExpression(boundGenerator(block), undefined, []),
        ]),
      );
    return isAsync(node) && generates === undefined
      ? returning(delegate(on("async"), [boundGenerator(block)]))
      : block;
  }

  /** What a generator gives: a twin yields it as an item, because the machine's operations are yielded, too. */
  private yielded(node: ts.YieldExpression): ts.Expression {
    const value = node.expression ? this.expression(node.expression) : f.createVoidZero();
    if (node.asteriskToken)
      return f.createParenthesizedExpression(
        f.createYieldExpression(node.asteriskToken, f.createPropertyAccessExpression(value, "twin")),
      );
    if (this.generates === "promised items")
      return f.createCallExpression(
        f.createPropertyAccessExpression(f.createIdentifier(ITEMS), "push"),
        undefined,
        [value],
      );
    return f.createParenthesizedExpression(
      f.createYieldExpression(undefined, f.createCallExpression(on("item"), undefined, [value])),
    );
  }

  private parameters(node: FunctionNode): readonly ts.ParameterDeclaration[] {
    return node.parameters.map((parameter) => this.plainly(() => this.children(parameter)));
  }

  private generator(node: FunctionNode): ts.FunctionExpression {
    const star = isGenerator(node) ? undefined : f.createToken(ts.SyntaxKind.AsteriskToken);
    return f.createFunctionExpression(
      undefined,
      star,
      undefined,
      undefined,
      this.parameters(node),
      undefined,
      this.twinBody(node),
    );
  }

  private declaration(node: ts.FunctionDeclaration): ts.Node | ts.Node[] {
    const { name } = node;
    if (node.body === undefined || name === undefined || !this.needsTwin(node)) return this.plainBody(node);
    const twin = f.createPropertyAccessExpression(f.createIdentifier(name.text), "$twin");
    this.hoisted.push(f.createExpressionStatement(f.createAssignment(twin, this.generator(node))));
    return this.plainBody(node);
  }

  private pair(node: ts.ArrowFunction | ts.FunctionExpression): ts.Expression {
    const own = this.plainBody(node);
    if (!this.needsTwin(node)) return own;
    const generator = this.generator(node);
    const twin =
      ts.isArrowFunction(node) && mentionsThis(node)
        ? f.createCallExpression(
            f.createPropertyAccessExpression(f.createParenthesizedExpression(generator), "bind"),
            undefined,
            [f.createThis()],
          )
        : generator;
    return f.createCallExpression(on("twin"), undefined, [own, twin]);
  }

  private class(node: ts.ClassDeclaration): ts.Node[] {
    const members = node.members.flatMap((member) => {
      const own = this.plainly(() => this.children(member));
      if (!ts.isMethodDeclaration(member) || member.body === undefined || !ts.isIdentifier(member.name))
        return [own];
      if (!this.needsTwin(member)) return [own];
      this.supers = new Set();
      const body = this.twinBody(member);
      const supers = [...this.supers].map((name) => {
        const value = f.createPropertyAccessExpression(f.createSuper(), name);
        const declared = f.createVariableDeclaration(superName(name), undefined, undefined, value);
        return f.createVariableStatement(
          undefined,
          f.createVariableDeclarationList([declared], ts.NodeFlags.Const),
        );
      });
      const isStatic = member.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.StaticKeyword);
      const twin = f.createMethodDeclaration(
        isStatic ? [f.createToken(ts.SyntaxKind.StaticKeyword)] : undefined,
        isGenerator(member) ? undefined : f.createToken(ts.SyntaxKind.AsteriskToken),
        `${member.name.text}$twin`,
        undefined,
        undefined,
        this.parameters(member),
        undefined,
        f.createBlock([...supers, ...body.statements], true),
      );
      return [own, twin];
    });
    const { modifiers, name, typeParameters, heritageClauses } = node;
    if (name === undefined) throw new Error(`${this.place(node)}: a class without a name`);
    const attach = f.createExpressionStatement(f.createCallExpression(on("attach"), undefined, [name]));
    return [
      f.updateClassDeclaration(node, modifiers, name, typeParameters, heritageClauses, members),
      attach,
    ];
  }

  private objectLiteral(node: ts.ObjectLiteralExpression): ts.Expression {
    const properties = node.properties.map((property) => {
      if (!ts.isMethodDeclaration(property) || property.body === undefined)
        return this.visit(property) as ts.ObjectLiteralElementLike;
      const isAsync = property.modifiers?.filter(ts.isModifier);
      const { parameters, body } = this.plainBody(property);
      if (body === undefined) return property;
      const own = f.createFunctionExpression(
        isAsync,
        undefined,
        undefined,
        undefined,
        parameters,
        undefined,
        body,
      );
      const value = this.needsTwin(property)
        ? f.createCallExpression(on("twin"), undefined, [own, this.generator(property)])
        : own;
      return f.createPropertyAssignment(property.name, value);
    });
    return f.updateObjectLiteralExpression(node, properties);
  }

  /** Whether a function does, outside of the functions in it, anything that may reach shared memory. */
  private needsTwin(node: FunctionNode): boolean {
    if (node.asteriskToken !== undefined || isAsync(node)) return true;
    const reaches = (inner: ts.Node): boolean => {
      if (ts.isFunctionLike(inner)) return false;
      if (ts.isAwaitExpression(inner) || ts.isElementAccessExpression(inner)) return true;
      if (ts.isCallExpression(inner) && !this.isPure(inner)) return true;
      return ts.forEachChild(inner, reaches) ?? false;
    };
    return node.body !== undefined && reaches(node.body);
  }

  private isPure({ expression }: ts.CallExpression): boolean {
    if (expression.kind === ts.SyntaxKind.SuperKeyword) return true;
    if (ts.isIdentifier(expression)) return this.pureImports.has(expression.text);
    if (!ts.isPropertyAccessExpression(expression)) return false;
    const { expression: object, name } = expression;
    return (
      ts.isIdentifier(object) && PURE.has(object.text) && !(object.text === "Array" && name.text === "from")
    );
  }

  private temporary(): ts.Identifier {
    return f.createIdentifier(`$${this.numTemporaries++}`);
  }

  /** An operation of the machine, which may perform it at once if nothing can come in between. */
  private access(name: string, node: ts.Node, operands: readonly ts.Expression[]): ts.Expression {
    const result = this.temporary();
    const call = f.createCallExpression(on(name), undefined, [
      f.createNumericLiteral(this.site(node)),
      ...operands,
    ]);
    const isLater = f.createStrictEquality(
      f.createParenthesizedExpression(f.createAssignment(result, call)),
      on("later"),
    );
    const performed = f.createYieldExpression(
      undefined,
      f.createCallExpression(on("postponed"), undefined, []),
    );
    return f.createParenthesizedExpression(
      f.createConditionalExpression(isLater, undefined, performed, undefined, result),
    );
  }

  private call(node: ts.CallExpression): ts.Expression {
    const { expression: callee } = node;
    if (this.isPure(node)) return this.children(node);
    const args = node.arguments.map((argument) => this.expression(argument));
    if (!ts.isPropertyAccessExpression(callee)) {
      const called = this.temporary();
      const value = f.createAssignment(called, this.expression(callee));
      return this.ifThere(node, value, this.invoke(called, undefined, args));
    }
    const { expression: object, name } = callee;
    if (ts.isIdentifier(object) && object.text === "Atomics" && ATOMICS.has(name.text))
      return this.access(name.text, node, args);
    if (ts.isIdentifier(object) && object.text === "Array") return delegate(on("arrayFrom"), args);
    if (object.kind === ts.SyntaxKind.SuperKeyword) {
      this.supers.add(name.text);
      return this.invoke(superName(name.text), f.createThis(), args);
    }
    const target = this.expression(object);
    if (name.text === "call") {
      const start = f.createAssignment(this.temporary(), target);
      const called = delegate(on("calls"), [start.left, f.createArrayLiteralExpression(args)]);
      return this.ifThere(node, start, called);
    }
    for (const [names, helper] of [
      [CALLING, "calling"],
      [MOVING, "moving"],
    ] as const) {
      if (!names.has(name.text)) continue;
      const start = f.createAssignment(this.temporary(), target);
      const called = delegate(on(helper), [
        f.createNumericLiteral(this.site(node)),
        start.left,
        f.createStringLiteral(name.text),
        f.createArrayLiteralExpression(args),
      ]);
      return this.ifThere(callee, start, called);
    }
    const [self, called] = [this.temporary(), this.temporary()];
    const method = f.createAssignment(called, f.createPropertyAccessExpression(self, name.text));
    const invoked = this.ifThere(node, method, this.invoke(called, self, args));
    return this.ifThere(callee, f.createAssignment(self, target), invoked);
  }

  /** `rest` after `value`, or undefined if the node has a `?.` and the value is nullish. */
  private ifThere(
    node: ts.CallExpression | ts.PropertyAccessExpression,
    value: ts.Expression,
    rest: ts.Expression,
  ): ts.Expression {
    // What follows a `?.` is left out with it.
    const isOptional = ts.isPropertyAccessExpression(node) && ts.isOptionalChain(node);
    if (node.questionDotToken === undefined && !isOptional)
      return f.createParenthesizedExpression(f.createComma(value, rest));
    const isMissing = f.createEquality(f.createParenthesizedExpression(value), f.createNull());
    return f.createParenthesizedExpression(
      f.createConditionalExpression(isMissing, undefined, f.createVoidZero(), undefined, rest),
    );
  }

  private invoke(
    called: ts.Identifier,
    self: ts.Expression | undefined,
    args: readonly ts.Expression[],
  ): ts.Expression {
    const result = this.temporary();
    const twin = f.createPropertyAccessExpression(called, "$twin");
    const chosen = f.createParenthesizedExpression(
      f.createBinaryExpression(twin, ts.SyntaxKind.QuestionQuestionToken, called),
    );
    const call = f.createCallExpression(f.createPropertyAccessExpression(chosen, "call"), undefined, [
      self ?? f.createVoidZero(),
      ...args,
    ]);
    const run = f.createConditionalExpression(
      f.createCallExpression(on("isTwin"), undefined, [result]),
      undefined,
      f.createYieldExpression(f.createToken(ts.SyntaxKind.AsteriskToken), result),
      undefined,
      result,
    );
    return f.createParenthesizedExpression(f.createComma(f.createAssignment(result, call), run));
  }

  private read(node: ts.ElementAccessExpression): ts.Expression {
    const [array, index] = [this.temporary(), this.temporary()];
    const isPlain = f.createEquality(f.createPropertyAccessExpression(array, "$shared"), f.createVoidZero());
    const access = f.createConditionalExpression(
      isPlain,
      undefined,
      f.createElementAccessExpression(array, index),
      undefined,
      this.access("read", node, [array, index]),
    );
    const start = f.createAssignment(array, this.expression(node.expression));
    const rest = f.createComma(f.createAssignment(index, this.expression(node.argumentExpression)), access);
    if (!ts.isOptionalChain(node)) return f.createParenthesizedExpression(f.createComma(start, rest));
    const isMissing = f.createEquality(f.createParenthesizedExpression(start), f.createNull());
    return f.createParenthesizedExpression(
      f.createConditionalExpression(isMissing, undefined, f.createVoidZero(), undefined, rest),
    );
  }

  private write(node: ts.BinaryExpression, left: ts.ElementAccessExpression): ts.Expression {
    if (node.operatorToken.kind !== ts.SyntaxKind.EqualsToken)
      throw new Error(`${this.place(node)}: write the element and the operator apart`);
    const [array, index, value] = [this.temporary(), this.temporary(), this.temporary()];
    const isPlain = f.createEquality(f.createPropertyAccessExpression(array, "$shared"), f.createVoidZero());
    const access = f.createConditionalExpression(
      isPlain,
      undefined,
      f.createParenthesizedExpression(
        f.createAssignment(f.createElementAccessExpression(array, index), value),
      ),
      undefined,
      this.access("write", node, [array, index, value]),
    );
    return f.createParenthesizedExpression(
      [
        f.createAssignment(array, this.expression(left.expression)),
        f.createAssignment(index, this.expression(left.argumentExpression)),
        f.createAssignment(value, this.expression(node.right)),
        access,
      ].reduce<ts.Expression>((all, one, i) => (i === 0 ? one : f.createComma(all, one)), f.createNull()),
    );
  }

  private site(node: ts.Node): number {
    const { file, sites } = this.module;
    const text = node.getText(this.source).replace(/\s+/g, " ");
    const { line } = this.source.getLineAndCharacterOfPosition(node.getStart(this.source));
    return sites.push({ file, line: line + 1, text }) - 1;
  }

  private place(node: ts.Node): string {
    const { line } = this.source.getLineAndCharacterOfPosition(node.getStart(this.source));
    return `${this.module.file}:${line + 1}`;
  }
}

/** Something of the machine. */
function on(name: string): ts.Expression {
  return f.createPropertyAccessExpression(f.createIdentifier("$"), name);
}

function delegate(called: ts.Expression, args: readonly ts.Expression[]): ts.Expression {
  const star = f.createToken(ts.SyntaxKind.AsteriskToken);
  const call = f.createCallExpression(called, undefined, args);
  return f.createParenthesizedExpression(f.createYieldExpression(star, call));
}

function isAssignment({ operatorToken }: ts.BinaryExpression): boolean {
  const { kind } = operatorToken;
  return kind >= ts.SyntaxKind.FirstAssignment && kind <= ts.SyntaxKind.LastAssignment;
}

function isAsync({ modifiers }: FunctionNode): boolean {
  return modifiers?.some(({ kind }) => kind === ts.SyntaxKind.AsyncKeyword) ?? false;
}

/** Whether a function gives items one by one; those of an asynchronous one are collected. */
function isGenerator(node: FunctionNode): boolean {
  return node.asteriskToken !== undefined && !isAsync(node);
}

/** A function without parameters that makes a coroutine of a body. */
function boundGenerator(body: ts.Block): ts.Expression {
  const star = f.createToken(ts.SyntaxKind.AsteriskToken);
  const generator = f.createFunctionExpression(undefined, star, undefined, undefined, [], undefined, body);
  const bind = f.createPropertyAccessExpression(f.createParenthesizedExpression(generator), "bind");
  return f.createCallExpression(bind, undefined, [f.createThis()]);
}

function returning(value: ts.Expression): ts.Block {
  return f.createBlock([f.createReturnStatement(value)], true);
}

function isStep(node: ts.Node): node is ts.PrefixUnaryExpression | ts.PostfixUnaryExpression {
  const steps: readonly ts.SyntaxKind[] = [ts.SyntaxKind.PlusPlusToken, ts.SyntaxKind.MinusMinusToken];
  return (
    (ts.isPrefixUnaryExpression(node) || ts.isPostfixUnaryExpression(node)) && steps.includes(node.operator)
  );
}

/** The method of the base class, which twins of asynchronous methods cannot name themselves. */
function superName(name: string): ts.Identifier {
  return f.createIdentifier(`$super_${name}`);
}

function mentionsThis(node: ts.Node): boolean {
  if (node.kind === ts.SyntaxKind.ThisKeyword || node.kind === ts.SyntaxKind.SuperKeyword) return true;
  return ts.forEachChild(node, mentionsThis) ?? false;
}
