/** TypeScript's language service in a worker: types, completion, and what the browser can run. */

import blankSpace from "ts-blank-space";
import ts from "typescript";
import { roundCall } from "../sandbox/messages.js";

/** A message of the page; each is answered under its number. */
export type ToLanguage =
  | { readonly kind: "load"; readonly files: Readonly<Record<string, string>> }
  | { readonly kind: "compile" | "check"; readonly code: string }
  | { readonly kind: "complete" | "hover"; readonly code: string; readonly at: number };

/** A mistake in the program. */
export interface Mistake {
  readonly from: number;
  readonly to: number;
  readonly line: number;
  readonly message: string;
  /** Whether the program cannot run because of it. */
  readonly isSyntax: boolean;
}

/** An entry of the completion list. */
export interface Completion {
  readonly label: string;
  readonly type: string;
}

/** What a name is. */
export interface Hover {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

const file = "/program.ts";
let files: Readonly<Record<string, string>> = {};
let code = "";
let version = 0;

const options: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2023,
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  lib: ["lib.es2023.d.ts", "lib.esnext.disposable.d.ts", "lib.dom.d.ts"],
  strict: true,
  skipLibCheck: true,
  noEmit: true,
  allowJs: false,
  types: [],
};

const read = (name: string): string | undefined => (name === file ? code : files[name]);

const host: ts.LanguageServiceHost = {
  getCompilationSettings: () => options,
  getScriptFileNames: () => [file],
  getScriptVersion: (name) => (name === file ? String(version) : "0"),
  getScriptSnapshot: (name) => {
    const text = read(name);
    return text === undefined ? undefined : ts.ScriptSnapshot.fromString(text);
  },
  getCurrentDirectory: () => "/",
  getDefaultLibFileName: () => "/lib/lib.es2023.d.ts",
  fileExists: (name) => read(name) !== undefined,
  readFile: read,
  directoryExists: () => true,
  getDirectories: () => [],
};

const service = ts.createLanguageService(host, ts.createDocumentRegistry(true, "/"));

function take(text: string): void {
  if (text === code) return;
  code = text;
  version++;
}

function check(text: string): Mistake[] {
  take(text);
  const syntactic = service.getSyntacticDiagnostics(file);
  const all = syntactic.length > 0 ? syntactic : service.getSemanticDiagnostics(file);
  const source = service.getProgram()?.getSourceFile(file);
  return all.map(({ start = 0, length = 1, messageText }) => ({
    from: start,
    to: start + length,
    line: (source?.getLineAndCharacterOfPosition(start).line ?? 0) + 1,
    message: ts.flattenDiagnosticMessageText(messageText, "\n"),
    isSyntax: syntactic.length > 0,
  }));
}

/**
 * The program without its types, with imports as calls and loops that report where they are; every other character is
 * in its line, and but for those calls in its column, so that places of errors are those of the source.
 */
function compile(text: string): { readonly code: string } | { readonly mistake: Mistake } {
  const mistake = syntaxOf(text);
  if (mistake) return { mistake };
  const plain = blankSpace(text, (node) => {
    throw new SyntaxError(
      `this page cannot run TypeScript's ${ts.SyntaxKind[node.kind]}: write plain JavaScript with types`,
    );
  });
  let result = withRounds(plain);
  const source = ts.createSourceFile("program.js", result, ts.ScriptTarget.ES2023, true);
  for (const statement of [...source.statements].reverse()) {
    const [begin, end] = [statement.getStart(source), statement.getEnd()];
    const put = (replacement: string) => {
      const lines = result.slice(begin, end).split("\n").length - 1;
      result = result.slice(0, begin) + replacement + "\n".repeat(lines) + result.slice(end);
    };
    if (ts.isImportDeclaration(statement)) put(importCall(statement));
    else if (ts.isExportDeclaration(statement)) put("");
  }
  return { code: result.replace(/^export (default )?(?=\w)/gm, "") };
}

/** The program with a call at the start of every round of a loop. */
function withRounds(text: string): string {
  const source = ts.createSourceFile("program.js", text, ts.ScriptTarget.ES2023, true);
  const added: { readonly at: number; readonly text: string }[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isIterationStatement(node, false)) {
      const { statement } = node;
      const round = roundCall(source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1);
      if (ts.isBlock(statement)) added.push({ at: statement.getStart(source) + 1, text: round });
      else
        added.push(
          { at: statement.getStart(source), text: `{${round}` },
          { at: statement.getEnd(), text: "}" },
        );
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  let result = text;
  for (const { at, text } of added.sort((a, b) => b.at - a.at))
    result = result.slice(0, at) + text + result.slice(at);
  return result;
}

function syntaxOf(text: string): Mistake | undefined {
  take(text);
  return check(text).find(({ isSyntax }) => isSyntax);
}

/** `import { a as b } from "m"` as `const { a: b } = importShardwise("m");`. */
function importCall({ importClause, moduleSpecifier }: ts.ImportDeclaration): string {
  const call = `importShardwise(${moduleSpecifier.getText()})`;
  const bindings = importClause?.namedBindings;
  if (!importClause) return `${call};`;
  if (bindings && ts.isNamespaceImport(bindings)) return `const ${bindings.name.text} = ${call};`;
  const names = bindings?.elements.map(({ propertyName, name }) =>
    propertyName ? `${propertyName.getText()}: ${name.text}` : name.text,
  );
  const all = [...(importClause.name ? [`default: ${importClause.name.text}`] : []), ...(names ?? [])];
  return `const { ${all.join(", ")} } = ${call};`;
}

function complete(text: string, at: number): Completion[] {
  take(text);
  const found = service.getCompletionsAtPosition(file, at, { includeCompletionsWithInsertText: false });
  return (found?.entries ?? [])
    .filter(({ sortText }) => !sortText.startsWith("16"))
    .slice(0, 400)
    .map(({ name, kind }) => ({ label: name, type: kind }));
}

function hover(text: string, at: number): Hover | undefined {
  take(text);
  const found = service.getQuickInfoAtPosition(file, at);
  if (!found) return undefined;
  const shown = [ts.displayPartsToString(found.displayParts), ts.displayPartsToString(found.documentation)];
  const { start, length } = found.textSpan;
  return { from: start, to: start + length, text: shown.filter((part) => part !== "").join("\n\n") };
}

function answer(message: ToLanguage): unknown {
  switch (message.kind) {
    case "load":
      files = message.files;
      return undefined;
    case "compile":
      return compile(message.code);
    case "check":
      return check(message.code);
    case "complete":
      return complete(message.code, message.at);
    case "hover":
      return hover(message.code, message.at);
  }
}

addEventListener(
  "message",
  ({ data }: MessageEvent<{ readonly id: number; readonly message: ToLanguage }>) => {
    try {
      postMessage({ id: data.id, value: answer(data.message) });
    } catch (error) {
      postMessage({ id: data.id, error: error instanceof Error ? error.message : String(error) });
    }
  },
);
