// Puts the code of worker threads into the package as strings, each in the module that otherwise builds it from the
// sources, and makes the file for pages without a bundler. Needs the output of `tsc`.
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { bundleWorker } from "../../dist/engines/system/bundleWorker.js";
import { version } from "../../dist/ir/version.js";
import { bundleForBrowser, workerModule } from "./browserBundle.mjs";

/** The exports of the one file: those of `shardwise`, and the other entry points by their names. */
const everything = `export * from "shardwise";
${["nn", "optim", "parallel", "train", "engines"].map((name) => `export * as ${name} from "shardwise/${name}";`).join("\n")}`;

const root = new URL("../../", import.meta.url);
const dist = new URL("dist/", root);
const paths = readdirSync(dist, { recursive: true, encoding: "utf8" });

for (const path of paths) {
  const [, module, name] = /^(.*?(\w*[wW]orker))Code\.js$/.exec(path.replaceAll("\\", "/")) ?? [];
  if (module !== undefined) {
    const code = JSON.stringify(bundleWorker(new URL(`src/${module}.ts`, root)));
    writeFileSync(new URL(path, dist), `export const ${name}Code = () => ${code};\n`);
    rmSync(new URL(`${path}.map`, dist));
  }
  if (path.includes("bundleWorker.")) rmSync(new URL(path, dist));
}

// Browsers have their own workers, and one file with everything for pages without a bundler.
for (const path of paths.filter((path) => path.endsWith("orkerCode.browser.js"))) {
  const source = new URL(`src/${path.replaceAll("\\", "/").replace("Code.browser.js", ".ts")}`, root);
  writeFileSync(new URL(path, dist), await workerModule(fileURLToPath(source)));
  rmSync(new URL(`${path}.map`, dist));
}
const { outputFiles } = await bundleForBrowser({
  stdin: { contents: everything, resolveDir: fileURLToPath(root) },
  banner: { js: `/*! shardwise ${version}, MIT licence */` },
});
writeFileSync(new URL("shardwise.browser.js", dist), outputFiles[0].contents);
