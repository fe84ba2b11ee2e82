import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { closingLine } from "../support/closingLine.js";

const src = fileURLToPath(new URL("../../src", import.meta.url));

export default defineConfig({
  resolve: { alias: [{ find: /^#(.+)$/, replacement: `${src}/$1.ts` }] },
  test: { include: ["test/optional/things.ts"], pool: "forks", reporters: ["json", closingLine] },
});
