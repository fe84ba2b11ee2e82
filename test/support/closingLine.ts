import { writeFileSync } from "node:fs";
import { relative } from "node:path";
import type { Reporter, TestModule } from "vitest/node";

/** The files with skipped tests, by the reason that their names end with (`optional.ts`). */
function skipped(modules: readonly TestModule[]): ReadonlyMap<string, readonly string[]> {
  const files = new Map<string, Set<string>>();
  for (const module of modules) {
    for (const test of module.children.allTests("skipped")) {
      const [, reason] = /\(((?:needs|only with) .+)\)$/.exec(test.name) ?? [];
      if (reason === undefined) continue;
      files.set(reason, (files.get(reason) ?? new Set()).add(relative(process.cwd(), module.moduleId)));
    }
  }
  return new Map([...files].map(([reason, names]) => [reason, [...names].sort()]));
}

/**
 * Ends every run with what was skipped and why, and with the plain line `N passed, M failed`, which `.ci/run` reads.
 * `SHARDWISE_SKIPPED` names a file that gets the paths of what needs something to be installed, one a line.
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
    const missing = skipped(modules);
    const { SHARDWISE_SKIPPED } = process.env;
    if (SHARDWISE_SKIPPED) {
      const needing = [...missing].filter(([reason]) => reason.startsWith("needs "));
      const files = [...new Set(needing.flatMap(([, names]) => names))];
      writeFileSync(SHARDWISE_SKIPPED, files.map((file) => `${file}\n`).join(""));
    }
    for (const [reason, files] of missing) process.stdout.write(`skipped, ${reason}: ${files.join(", ")}\n`);
    process.stdout.write(`${passed} passed, ${failed} failed\n`);
  },
};
