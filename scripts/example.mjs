// Runs an example by its name: `npm run example -- collectives`.
import { existsSync, readdirSync } from "node:fs";

const folder = new URL("../examples/", import.meta.url);
const [name = ""] = process.argv.slice(2);
const file = new URL(`${name}.ts`, folder);
if (name === "" || !existsSync(file)) {
  const names = readdirSync(folder)
    .filter((entry) => entry.endsWith(".ts"))
    .map((entry) => entry.slice(0, -".ts".length));
  console.error(`npm run example -- NAME, where NAME is one of: ${names.join(", ")}`);
  process.exit(2);
}
await import(file.href);
