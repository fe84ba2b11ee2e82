/** What compiles for another processor and plays it. */
import { execFileSync } from "node:child_process";

/** The compiler for AArch64. */
export const compiler = "aarch64-linux-gnu-gcc";

/** What runs its programs here. */
export const emulator = "qemu-aarch64";

/** Whether both are installed (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user). */
export function hasTools(): boolean {
  try {
    for (const tool of [compiler, emulator]) execFileSync(tool, ["--version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
