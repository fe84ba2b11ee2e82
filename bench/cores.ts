/** The cores that this process may use. */

import { existsSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { at, range } from "../src/ir/shape.js";

/** The numbers of these cores: not all of the machine's if the process was started on some of them. */
export function ownCores(): number[] {
  const file = "/proc/self/status";
  const text = existsSync(file) ? readFileSync(file, "utf8") : "";
  const list = /^Cpus_allowed_list:\s*(.+)$/m.exec(text)?.[1];
  if (list === undefined) return range(availableParallelism());
  return list.split(",").flatMap((part) => {
    const bounds = part.split("-").map(Number);
    const [first, last] = [at(bounds, 0), at(bounds, bounds.length - 1)];
    return range(last - first + 1).map((i) => first + i);
  });
}

/** A command that runs on the first of these cores, where the system lets a process choose. */
export function onCores(
  cores: readonly number[],
  [command, ...args]: readonly [string, ...string[]],
): [string, ...string[]] {
  return process.platform === "linux"
    ? ["taskset", "-c", cores.join(), command, ...args]
    : [command, ...args];
}
