import { defineConfig } from "vitest/config";
import { closingLine } from "../support/closingLine.js";
import { resolve } from "../support/sources.js";

export default defineConfig({
  resolve,
  test: { include: ["test/optional/things.ts"], pool: "forks", reporters: ["json", closingLine] },
});
