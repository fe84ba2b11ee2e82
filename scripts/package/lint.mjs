// Checks the package as npm would publish it: publint reads its manifest, are-the-types-wrong resolves every entry
// point as TypeScript does. Needs the output of `npm run build`.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import { publint } from "publint";
import { formatMessage } from "publint/utils";

// The package is ES modules only: older resolution, and `require` before Node could load them, find nothing to type.
const older = new Set(["node10", "node16-cjs"]);

const folder = mkdtempSync(join(tmpdir(), "shardwise-package-"));
try {
  const packed = spawnSync("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", folder], {
    shell: process.platform === "win32",
  });
  const file = readdirSync(folder).find((name) => name.endsWith(".tgz"));
  if (packed.status !== 0 || file === undefined) throw new Error(`npm pack failed: ${packed.stderr}`);
  const bytes = Uint8Array.from(readFileSync(join(folder, file)));

  const { messages, pkg } = await publint({ pack: { tarball: bytes.buffer }, strict: true });
  const { problems = [] } = await checkPackage(createPackageFromTarballData(bytes));
  const complaints = [
    ...messages.map((message) => `publint: ${formatMessage(message, pkg)}`),
    ...problems
      .filter(({ resolutionKind }) => !older.has(resolutionKind))
      .map(({ kind, entrypoint, resolutionKind }) => `types: ${kind} of ${entrypoint} (${resolutionKind})`),
  ];
  for (const complaint of complaints) console.error(complaint);
  if (complaints.length > 0) process.exitCode = 1;
  else console.log(`the package is sound: ${Math.round(bytes.length / 1024)} KiB`);
} finally {
  rmSync(folder, { recursive: true });
}
