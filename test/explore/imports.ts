/** What modules import. */
import ts from "typescript";

/** The specifiers of a module's imports, types excepted. */
export function specifiersOf(file: string, text: string): string[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.ES2022);
  return source.statements.flatMap((statement) => {
    const isModule = ts.isImportDeclaration(statement) || ts.isExportDeclaration(statement);
    if (!isModule || isTypeOnly(statement)) return [];
    const { moduleSpecifier } = statement;
    return moduleSpecifier && ts.isStringLiteral(moduleSpecifier) ? [moduleSpecifier.text] : [];
  });
}

function isTypeOnly(statement: ts.ImportDeclaration | ts.ExportDeclaration): boolean {
  if (ts.isExportDeclaration(statement)) return statement.isTypeOnly;
  const clause = statement.importClause;
  if (clause === undefined || clause.name) return false;
  const bindings = clause.namedBindings;
  const areTypes =
    bindings && ts.isNamedImports(bindings) && bindings.elements.every((one) => one.isTypeOnly);
  return clause.phaseModifier === ts.SyntaxKind.TypeKeyword || areTypes === true;
}

/** The names that a module imports from the modules that count. */
export function importsOf(source: ts.SourceFile, counts: (specifier: string) => boolean): string[] {
  return source.statements.flatMap((statement) => {
    if (!ts.isImportDeclaration(statement) || !ts.isStringLiteral(statement.moduleSpecifier)) return [];
    const bindings = statement.importClause?.namedBindings;
    if (!counts(statement.moduleSpecifier.text) || !bindings || !ts.isNamedImports(bindings)) return [];
    return bindings.elements.map(({ name }) => name.text);
  });
}
