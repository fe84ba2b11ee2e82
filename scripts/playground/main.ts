/**
 * `npm run playground`: builds the playground into `site/playground` and serves it on this machine.
 *
 *   npm run playground [-- --port 4000] [--build]
 *
 * `--build` ends after building.
 */
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { buildPlayground } from "./build.js";
import { serve } from "./serve.js";

const { values } = parseArgs({
  options: { port: { type: "string", default: "4321" }, build: { type: "boolean" } },
});
const out = fileURLToPath(new URL("../../site/playground/", import.meta.url));
await buildPlayground(out);
if (values.build) console.log("the playground is in site/playground");
else {
  const server = await serve(out, Number(values.port));
  const { port } = server.address() as AddressInfo;
  console.log(`open http://localhost:${port}/ (Ctrl+C ends it)`);
}
