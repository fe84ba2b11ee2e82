import { cpSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** What the type checker and the test runner read. */
const copied = [
  ...["src", "test", "examples", "scripts", "bench", "docs"],
  ...[
    "package.json",
    "tsconfig.json",
    "tsconfig.build.json",
    "vitest.config.ts",
    "README.md",
    "CHANGELOG.md",
  ],
];

/** A copy of the repository in which some files have another text, for programs that read files. */
export class Overlay implements Disposable {
  readonly folder = realpathSync(mkdtempSync(join(tmpdir(), "shardwise-overlay-")));

  /** @param changes for each path what becomes of the file's text, one change after the other */
  constructor(...changes: readonly ReadonlyMap<string, (text: string) => string>[]) {
    for (const path of copied) cpSync(join(root, path), join(this.folder, path), { recursive: true });
    symlinkSync(join(root, "node_modules"), join(this.folder, "node_modules"), "junction");
    for (const [path, change] of changes.flatMap((map) => [...map])) {
      const file = join(this.folder, path);
      writeFileSync(file, change(readFileSync(file, "utf8")));
    }
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
