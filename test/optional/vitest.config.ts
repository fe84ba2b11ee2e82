import { defineConfig } from "vitest/config";
import { closingLine } from "../support/closingLine.js";

export default defineConfig({
  test: { include: ["test/optional/things.ts"], pool: "forks", reporters: ["json", closingLine] },
});
