import { fileURLToPath } from "node:url";
import ts from "typescript";
import { expect, test } from "vitest";
import { checkedProgram } from "./support/sourceFiles.js";

const root = fileURLToPath(new URL("..", import.meta.url));

/** The sources of the entry points. */
const entries: readonly string[] = [
  "index",
  "nn/index",
  "parallel/index",
  "optim/index",
  "engines/index",
  "train/index",
  "random/index",
];

/** Types that a file of the package declares, as far as functions, classes and constants mention them. */
class Mentions {
  private readonly checker: ts.TypeChecker;
  private readonly isOwn: (node: ts.Node) => boolean;

  constructor(checker: ts.TypeChecker, isOwn: (node: ts.Node) => boolean) {
    this.checker = checker;
    this.isOwn = isOwn;
  }

  /** The types that the declaration of an exported name mentions. */
  of(symbol: ts.Symbol): Set<ts.Symbol> {
    const found = new Set<ts.Symbol>();
    for (const declaration of symbol.declarations ?? []) this.inDeclaration(declaration, found);
    return found;
  }

  private inDeclaration(node: ts.Declaration, found: Set<ts.Symbol>): void {
    if (ts.isFunctionLike(node)) {
      // Nobody can call what an overloaded function is implemented with.
      if (ts.isFunctionDeclaration(node) && node.body && this.isOverloaded(node)) return;
      this.inSignature(node, found);
    } else if (ts.isClassDeclaration(node)) {
      for (const clause of node.heritageClauses ?? [])
        for (const type of clause.types) this.inNode(type, found);
      for (const type of node.typeParameters ?? []) this.inNode(type, found);
      for (const member of node.members) if (isPublic(member)) this.inDeclaration(member, found);
    } else if (ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) {
      this.inNode(node, found);
    } else if (ts.isVariableDeclaration(node) || ts.isPropertyDeclaration(node)) {
      if (node.type) this.inNode(node.type, found);
      else this.inType(this.checker.getTypeAtLocation(node), found, new Set());
    }
  }

  private isOverloaded(node: ts.FunctionDeclaration): boolean {
    const symbol = node.name && this.checker.getSymbolAtLocation(node.name);
    return (symbol?.declarations?.length ?? 0) > 1;
  }

  private inSignature(node: ts.SignatureDeclaration, found: Set<ts.Symbol>): void {
    for (const type of node.typeParameters ?? []) this.inNode(type, found);
    for (const { type } of node.parameters) if (type) this.inNode(type, found);
    if (node.type) this.inNode(node.type, found);
    else if (!ts.isConstructorDeclaration(node)) {
      const signature = this.checker.getSignatureFromDeclaration(node);
      if (signature) this.inType(signature.getReturnType(), found, new Set());
    }
  }

  /** The types that are named in what somebody wrote. */
  private inNode(node: ts.Node, found: Set<ts.Symbol>): void {
    const name = ts.isTypeReferenceNode(node)
      ? node.typeName
      : ts.isExpressionWithTypeArguments(node)
        ? node.expression
        : undefined;
    const symbol = name && this.checker.getSymbolAtLocation(name);
    if (symbol) this.add(symbol, found);
    ts.forEachChild(node, (child) => {
      if (!ts.isTypeElement(child) || !isInternal(child)) this.inNode(child, found);
    });
  }

  /** The types that the compiler found. */
  private inType(type: ts.Type, found: Set<ts.Symbol>, seen: Set<ts.Type>): void {
    if (seen.has(type)) return;
    seen.add(type);
    for (const part of this.partsOf(type, found)) this.inType(part, found, seen);
  }

  /** What a type consists of, after its own name and the signatures that it is called by. */
  private partsOf(type: ts.Type, found: Set<ts.Symbol>): readonly ts.Type[] {
    if (type.aliasSymbol && this.add(type.aliasSymbol, found)) return type.aliasTypeArguments ?? [];
    if (type.isUnionOrIntersection()) return type.types;
    if (isReference(type)) {
      // Tuples have no name.
      if (!this.checker.isTupleType(type)) this.add(type.symbol, found);
      return this.checker.getTypeArguments(type);
    }
    if (!isObject(type) || (type.isClassOrInterface() && this.add(type.symbol, found))) return [];
    for (const { declaration } of [...type.getCallSignatures(), ...type.getConstructSignatures()]) {
      if (declaration && ts.isFunctionLike(declaration) && this.isOwn(declaration))
        this.inSignature(declaration, found);
    }
    const own = type.getProperties().filter((p) => p.valueDeclaration && this.isOwn(p.valueDeclaration));
    return own.map((property) => this.checker.getTypeOfSymbol(property));
  }

  /** Whether a symbol is a type of the package, which is then among those found. */
  private add(symbol: ts.Symbol, found: Set<ts.Symbol>): boolean {
    const target = symbol.flags & ts.SymbolFlags.Alias ? this.checker.getAliasedSymbol(symbol) : symbol;
    const isType =
      target.flags & (ts.SymbolFlags.Class | ts.SymbolFlags.Interface | ts.SymbolFlags.TypeAlias);
    const [declared] = target.declarations ?? [];
    if (!isType || !declared || !this.isOwn(declared)) return false;
    // A file's own alias is how an exported type is written, not something that anybody would name.
    if (ts.isTypeAliasDeclaration(declared) && !declared.modifiers?.some(isExport)) return false;
    found.add(target);
    return true;
  }
}

function isObject(type: ts.Type): type is ts.ObjectType {
  return (type.flags & ts.TypeFlags.Object) !== 0;
}

function isReference(type: ts.Type): type is ts.TypeReference {
  return isObject(type) && (type.objectFlags & ts.ObjectFlags.Reference) !== 0;
}

const isExport = ({ kind }: ts.ModifierLike) => kind === ts.SyntaxKind.ExportKeyword;

/** Whether a member of a class or an interface is marked as internal. */
function isInternal(member: ts.ClassElement | ts.TypeElement): boolean {
  return ts.getJSDocTags(member).some(({ tagName }) => tagName.text === "internal");
}

/** Whether users see a member: it is neither private nor marked as internal. */
function isPublic(member: ts.ClassElement): boolean {
  const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
  if (member.name && ts.isPrivateIdentifier(member.name)) return false;
  return !isInternal(member) && (ts.getCombinedModifierFlags(member) & hidden) === 0;
}

test("every type that an exported name mentions can be imported", { timeout: 120_000 }, () => {
  const program = checkedProgram(entries.map((entry) => `${root}src/${entry}.ts`));
  const checker = program.getTypeChecker();
  const mentions = new Mentions(checker, (node) => node.getSourceFile().fileName.startsWith(`${root}src/`));

  const exported = new Map<ts.Symbol, string>();
  const visit = (module: ts.Symbol, prefix: string): void => {
    for (const name of checker.getExportsOfModule(module)) {
      const symbol = name.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(name) : name;
      if (exported.has(symbol)) continue;
      exported.set(symbol, `${prefix}${name.name}`);
      if (symbol.flags & ts.SymbolFlags.ValueModule) visit(symbol, `${prefix}${name.name}.`);
    }
  };
  for (const entry of entries) {
    const source = program.getSourceFile(`${root}src/${entry}.ts`);
    const module = source && checker.getSymbolAtLocation(source);
    if (!module) throw new Error(`${entry} is no module`);
    visit(module, `${entry}: `);
  }
  const missing = [...exported].flatMap(([symbol, name]) =>
    [...mentions.of(symbol)]
      .filter((type) => !exported.has(type))
      .map((type) => `${name} mentions ${type.name}, which no entry point exports`),
  );
  expect(exported.size).toBeGreaterThan(400);
  expect(missing).toEqual([]);
});
