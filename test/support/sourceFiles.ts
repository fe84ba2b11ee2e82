/** The sources as the type checker reads them, parsed once for all tests of a process that ask it. */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const root = fileURLToPath(new URL("../..", import.meta.url));
const { config } = ts.readConfigFile(join(root, "tsconfig.json"), ts.sys.readFile);
const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, root);
const parsed = new Map<string, ts.SourceFile | undefined>();

/** A program of these files and of what they import. */
export function checkedProgram(files: readonly string[]): ts.Program {
  const host = ts.createCompilerHost(options);
  const { getSourceFile } = host;
  host.getSourceFile = (path, version) => {
    if (!parsed.has(path)) parsed.set(path, getSourceFile.call(host, path, version));
    return parsed.get(path);
  };
  return ts.createProgram(files, options, host);
}
