/** The functions of the reference: their descriptions, the meaning of their options, and their examples. */
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { entryPoints } from "./pages.js";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** An exported function as the reference shows it. */
export interface ReferenceFunction {
  /** Such as `nn.Dense`; functions of the main entry point have no prefix. */
  readonly name: string;
  readonly description: string;
  /** Options without a description, as `AdamOptions.b1`. */
  readonly unexplained: readonly string[];
  /** The code of its `@example` tags. */
  readonly examples: readonly string[];
}

/** All exported functions, in the order of the entry points, with those of the modules that they export. */
export function referenceFunctions(): ReferenceFunction[] {
  const sources = entryPoints;
  const config = ts.readConfigFile(`${root}tsconfig.build.json`, ts.sys.readFile).config;
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const program = ts.createProgram(
    sources.map((source) => root + source),
    { ...options, noEmit: true },
  );
  const checker = program.getTypeChecker();
  return sources.flatMap((source) => {
    const file = program.getSourceFile(root + source);
    const module = file && checker.getSymbolAtLocation(file);
    if (!module) throw new Error(`${source} is not a module`);
    const prefix = source === "src/index.ts" ? "" : `${source.split("/")[1]}.`;
    return functionsIn(module, prefix, checker);
  });
}

/** The functions of a module and of the modules that it exports by name, such as `np.linalg`. */
function functionsIn(module: ts.Symbol, prefix: string, checker: ts.TypeChecker): ReferenceFunction[] {
  return checker.getExportsOfModule(module).flatMap((exported) => {
    const isAlias = (exported.flags & ts.SymbolFlags.Alias) !== 0;
    const symbol = isAlias ? checker.getAliasedSymbol(exported) : exported;
    const name = `${prefix}${exported.name}`;
    return symbol.valueDeclaration && ts.isSourceFile(symbol.valueDeclaration)
      ? functionsIn(symbol, `${name}.`, checker)
      : functionOf(symbol, name, checker);
  });
}

/** A function, or an object of functions such as a distribution, whose comment speaks of all of them. */
function functionOf(symbol: ts.Symbol, name: string, checker: ts.TypeChecker): ReferenceFunction[] {
  const declaration = symbol.valueDeclaration;
  if (!declaration) return [];
  const type = checker.getTypeOfSymbolAtLocation(symbol, declaration);
  const signatures = type.getCallSignatures();
  const isDistribution = name.startsWith("scipy.stats.");
  if (signatures.length === 0 && !isDistribution) return [];
  const texts = (tags: readonly ts.JSDocTagInfo[]) =>
    tags.filter(({ name }) => name === "example").map(({ text }) => ts.displayPartsToString(text));
  const tags = new Set([
    ...texts(symbol.getJsDocTags(checker)),
    ...signatures.flatMap((signature) => texts(signature.getJsDocTags())),
  ]);
  return [
    {
      name,
      description: ts.displayPartsToString(symbol.getDocumentationComment(checker)),
      unexplained: [...new Set(signatures.flatMap((signature) => unexplainedOptions(signature, checker)))],
      examples: [...tags].flatMap((text) =>
        [...text.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, code = ""]) => code),
      ),
    },
  ];
}

/** The fields of option types in a signature that nothing explains. */
function unexplainedOptions(signature: ts.Signature, checker: ts.TypeChecker): string[] {
  return signature.getParameters().flatMap((parameter) => {
    const type = checker.getNonNullableType(checker.getTypeOfSymbol(parameter));
    const name = (type.aliasSymbol ?? type.getSymbol())?.name ?? "";
    if (!name.endsWith("Options")) return [];
    return checker
      .getPropertiesOfType(type)
      .filter((property) => property.getDocumentationComment(checker).length === 0)
      .map((property) => `${name}.${property.name}`);
  });
}
