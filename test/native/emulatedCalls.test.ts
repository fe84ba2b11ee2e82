import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { writeCallList } from "../../src/compiler/native/callList.js";
import { writeLookLoop } from "../../src/compiler/native/lookLoop.js";
import { emulator, testWith } from "../support/optional.js";

const driver = fileURLToPath(new URL("calls.c", import.meta.url));

/** The lengths that the driver counts on. */
const PIECE_BYTES = 256;

testWith(emulator, "messages are begun and looked for on an emulated processor", {}, (tools) => {
  const folder = mkdtempSync(join(tmpdir(), "emulated-"));
  try {
    const code = Buffer.alloc(2 * PIECE_BYTES);
    [writeCallList("arm64"), writeLookLoop("arm64")].forEach((piece, i) => {
      expect(piece?.length).toBeLessThanOrEqual(PIECE_BYTES);
      code.set(piece ?? [], i * PIECE_BYTES);
    });
    writeFileSync(join(folder, "code"), code);
    execFileSync(tools.compiler, ["-O2", "-static", "-o", join(folder, "calls"), driver]);
    const output = execFileSync(tools.emulator, [join(folder, "calls"), join(folder, "code")], {
      encoding: "utf8",
    });
    expect(output.trim().split("\n")).toEqual([
      "1 2 3 4 5 6 700",
      "11 12 13 14 15 16 1705",
      "result 5",
      "3 looks, flag 1, result 0",
      "2 looks, flag 0, result 7",
      "5 looks, flag 0, result 0",
    ]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
