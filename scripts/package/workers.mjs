// Puts the code of worker threads into the package as strings, each in the module that makes it from the sources
// otherwise. Needs what `tsc` made of the sources.
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { bundleWorker } from "../../dist/engines/system/bundleWorker.js";

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
