/** Runs the rows of one area in this process and writes what became of them, a line of JSON each. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { areas } from "./areas.js";
import { randomFrom, runRow } from "./row.js";

const [title, seed] = process.argv.slice(2);
const only = process.env.FAULT;
const area = areas.find((one) => one.title === title);
if (area === undefined) throw new Error(`there is no area ${title}`);
for (const row of area.rows) {
  if (only !== undefined && !row.fault.includes(only)) continue;
  const folder = mkdtempSync(join(tmpdir(), "shardwise-fault-"));
  const result = await runRow(row, { folder, random: randomFrom(Number(seed)) });
  rmSync(folder, { recursive: true, force: true });
  process.stdout.write(`${JSON.stringify(result)}\n`);
}
process.exit(0);
