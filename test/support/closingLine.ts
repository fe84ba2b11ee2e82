import { writeFileSync } from "node:fs";
import { relative } from "node:path";
import type { Reporter, TestModule } from "vitest/node";

/** The files with tests that were skipped because of what this machine lacks, by what that is. */
function lacking(modules: readonly TestModule[]): ReadonlyMap<string, readonly string[]> {
  const files = new Map<string, Set<string>>();
  for (const module of modules) {
    for (const test of module.children.allTests("skipped")) {
      const [, need] = /\(needs (.+)\)$/.exec(test.name) ?? [];
      if (need === undefined) continue;
      files.set(need, (files.get(need) ?? new Set()).add(relative(process.cwd(), module.moduleId)));
    }
  }
  return new Map([...files].map(([need, names]) => [need, [...names].sort()]));
}

/**
 * Ends every run with what was skipped because something is missing, and with the plain line `N passed, M failed`, which
 * `.ci/run` reads. `SHARDWISE_SKIPPED` names a file that gets the paths of what was skipped, one a line.
 */
export const closingLine: Reporter = {
  onTestRunEnd(modules, unhandledErrors) {
    let passed = 0;
    let failed = unhandledErrors.length;
    for (const module of modules) {
      let failedHere = 0;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === "passed") passed++;
        if (state === "failed") failedHere++;
      }
      // A file that does not load, or a hook that throws, fails without any failed test.
      failed += failedHere === 0 && !module.ok() ? 1 : failedHere;
    }
    const missing = lacking(modules);
    const { SHARDWISE_SKIPPED } = process.env;
    if (SHARDWISE_SKIPPED) {
      const files = [...new Set([...missing.values()].flat())];
      writeFileSync(SHARDWISE_SKIPPED, files.map((file) => `${file}\n`).join(""));
    }
    for (const [need, files] of missing)
      process.stdout.write(`skipped, needs ${need}: ${files.join(", ")}\n`);
    process.stdout.write(`${passed} passed, ${failed} failed\n`);
  },
};
