import ts from "typescript";

/** One change of one place in a source file. */
export interface Mutant {
  /** The file, relative to the project. */
  readonly file: string;
  readonly start: number;
  readonly end: number;
  /** What stands there instead. */
  readonly text: string;
  /** The line as it is, and as it becomes; together with the file they name the mutant. */
  readonly before: string;
  readonly after: string;
}

const operators: ReadonlyMap<ts.SyntaxKind, string> = new Map([
  [ts.SyntaxKind.PlusToken, "-"],
  [ts.SyntaxKind.MinusToken, "+"],
  [ts.SyntaxKind.AsteriskToken, "/"],
  [ts.SyntaxKind.SlashToken, "*"],
  [ts.SyntaxKind.PercentToken, "*"],
  [ts.SyntaxKind.LessThanToken, "<="],
  [ts.SyntaxKind.LessThanEqualsToken, "<"],
  [ts.SyntaxKind.GreaterThanToken, ">="],
  [ts.SyntaxKind.GreaterThanEqualsToken, ">"],
  [ts.SyntaxKind.EqualsEqualsEqualsToken, "!=="],
  [ts.SyntaxKind.ExclamationEqualsEqualsToken, "==="],
  [ts.SyntaxKind.AmpersandAmpersandToken, "||"],
  [ts.SyntaxKind.BarBarToken, "&&"],
]);

/** Functions of one shape that a rule could take for each other. */
const twins: ReadonlyMap<string, string> = new Map(
  [
    ["max", "min"],
    ["floor", "ceil"],
    ["sin", "cos"],
    ["add", "sub"],
    ["mul", "div"],
    ["and", "or"],
    ["exp", "expm1"],
    ["log", "log1p"],
    ["reduceMax", "reduceMin"],
    ["allGather", "psumScatter"],
    ["some", "every"],
  ].flatMap(([a = "", b = ""]) => [
    [a, b],
    [b, a],
  ]),
);

function changedNumber(text: string): string | undefined {
  const value = Number(text);
  if (!Number.isFinite(value)) return undefined;
  return Number.isInteger(value) ? String(value + 1) : String(value * 1.001);
}

/** What a node may be replaced with, if anything. */
function replacement(node: ts.Node): { readonly node: ts.Node; readonly text: string } | undefined {
  if (ts.isBinaryExpression(node)) {
    const text = operators.get(node.operatorToken.kind);
    const isText = ts.isStringLiteralLike(node.left) || ts.isTemplateExpression(node.left);
    return text === undefined || isText ? undefined : { node: node.operatorToken, text };
  }
  if (ts.isNumericLiteral(node)) {
    const text = changedNumber(node.getText());
    return text === undefined ? undefined : { node, text };
  }
  if (node.kind === ts.SyntaxKind.TrueKeyword) return { node, text: "false" };
  if (node.kind === ts.SyntaxKind.FalseKeyword) return { node, text: "true" };
  if (ts.isPrefixUnaryExpression(node)) {
    const isDropped =
      node.operator === ts.SyntaxKind.ExclamationToken || node.operator === ts.SyntaxKind.MinusToken;
    return isDropped ? { node, text: `(${node.operand.getText()})` } : undefined;
  }
  if (
    ts.isPropertyAccessExpression(node) &&
    ts.isCallExpression(node.parent) &&
    node.parent.expression === node
  ) {
    const text = twins.get(node.name.text);
    return text === undefined ? undefined : { node: node.name, text };
  }
  return undefined;
}

/** Types, imports and messages: nothing that computes. */
const isSilent = (node: ts.Node): boolean =>
  ts.isTypeNode(node) ||
  ts.isImportDeclaration(node) ||
  ts.isInterfaceDeclaration(node) ||
  ts.isTypeAliasDeclaration(node) ||
  ts.isThrowStatement(node) ||
  ts.isTemplateExpression(node) ||
  (ts.isNewExpression(node) && node.expression.getText().endsWith("Error"));

/** Every mutant of a source file. */
export function mutantsOf(file: string, source: string): Mutant[] {
  const tree = ts.createSourceFile(file, source, ts.ScriptTarget.Latest, true);
  const found: Mutant[] = [];
  const visit = (node: ts.Node): void => {
    if (isSilent(node)) return;
    const change = replacement(node);
    if (change) {
      const [start, end] = [change.node.getStart(tree), change.node.end];
      const lineStart = source.lastIndexOf("\n", start - 1) + 1;
      const lineEnd = source.indexOf("\n", end);
      const before = source.slice(lineStart, lineEnd);
      const after = source.slice(lineStart, start) + change.text + source.slice(end, lineEnd);
      found.push({ file, start, end, text: change.text, before: before.trim(), after: after.trim() });
    }
    ts.forEachChild(node, visit);
  };
  visit(tree);
  return found;
}
