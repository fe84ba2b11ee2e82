import { spawnSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Koffi } from "../../src/engines/system/koffi.js";

/** What the fake plug-in has handed out and not got back. */
export interface FakeCounts {
  readonly buffers: number;
  readonly events: number;
  readonly programs: number;
  readonly errors: number;
}

/** A fake plug-in that was built. */
export interface FakePlugin {
  readonly path: string;
  live(): FakeCounts;
  /** How many calls there were of functions whose arguments are checked: those of runs, buffers and events. */
  calls(): number;
  /** How many clients were created. */
  clients(): number;
}

/**
 * Builds the fake plug-in with the C compiler of this machine.
 *
 * @param minor the version of the API that it has
 * @param delay how long its runs take, in microseconds
 */
export function buildFakePlugin(koffi: Koffi, { minor = 115, delay = 2000 } = {}): FakePlugin {
  const source = fileURLToPath(new URL("./fakePlugin.c", import.meta.url));
  const path = join(mkdtempSync(join(tmpdir(), "shardwise-pjrt-")), "fake.so");
  const flags = [
    "-shared",
    "-fPIC",
    "-O1",
    `-DMINOR=${minor}`,
    `-DDELAY=${delay}`,
    "-o",
    path,
    source,
    "-lpthread",
  ];
  const { status, stderr } = spawnSync("cc", flags, { encoding: "utf8" });
  if (status !== 0) throw new Error(`the fake plug-in does not build: ${stderr}`);
  const library = koffi.load(path);
  const live: (what: number) => number = library.func("int FakeLive(int what)");
  return {
    path,
    live: () => ({ buffers: live(0), events: live(1), programs: live(2), errors: live(3) }),
    calls: library.func("int FakeCalls()"),
    clients: library.func("int FakeClients()"),
  };
}
